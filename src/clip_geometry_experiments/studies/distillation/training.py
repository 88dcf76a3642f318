"""The config, the data and the student of the distillation (Carlsson et al. 2022)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from clip_geometry.config import Config
from clip_geometry.data import load_dataset
from clip_geometry.data.base import DatasetConfig
from clip_geometry.encoders import load_encoder
from clip_geometry.encoders.base import Encoder
from clip_geometry.encoders.hf import WEIGHTS, drop_pooler, load_tokenizer, read_settings, tokenize
from clip_geometry.encoders.hf.text import mean_pooling
from clip_geometry.evaluate import ensemble
from clip_geometry.files import write_atomically
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.base import Data, Model, RunConfig, RunFolder, changed
from clip_geometry_experiments.kit.clip_training import (
    OptimizerConfig,
    Place,
    copy_tokenizer,
    save_half,
    with_a_place,
    zero_shot_by_class,
)
from clip_geometry_experiments.kit.languages import aligned, parallel
from clip_geometry_experiments.kit.training import Trainer


class StudentConfig(Config):
    """Config of a BERT without dropout.

    Args:
        width: Width of its rows, a multiple of `heads`.
        layers: Number of layers.
        heads: Number of attention heads.
        hidden: Width of the feed-forward layers.
    """

    width: int = Field(default=128, ge=1)
    layers: int = Field(default=2, ge=1)
    heads: int = Field(default=4, ge=1)
    hidden: int = Field(default=256, ge=1)

    @model_validator(mode="after")
    def _divides(self) -> Self:
        """Check that the number of heads divides the width."""
        if self.width % self.heads:
            raise InputError(
                f"width is {self.width} with {self.heads} heads; expected a multiple of the number of heads"
            )
        return self


class DistillationConfig(RunConfig, OptimizerConfig):
    """Config of the experiment `distillation`.

    Args:
        teacher: An encoder with a text tower and an image tower.
        data: Training captions in several languages, with classes; its own `language` is ignored.
        measured: Other images and captions, on which the states are measured.
        tested: Images for zero-shot accuracy at the end.
        languages: At least two languages; the first is the teacher's, and the student learns it too.
        prompts: Mapping from language to templates of class prompts, for zero-shot classification (an ensemble if there
            are several) and for the share `class_captions` of the training texts.
        training_prompts: Templates for the share `class_captions` alone; null uses `prompts`.
        student: Architecture of the student.
        batch_size: Texts per step, the same number in each language.
        measurements: Approximate number of states to measure.
        seed: Seed of the initial weights and the batches.
    """

    teacher: Model
    data: Data
    measured: Data
    tested: Data
    languages: tuple[str, ...] = Field(min_length=2)
    prompts: Mapping[str, tuple[str, ...]]
    training_prompts: Mapping[str, tuple[str, ...]] | None = None
    student: StudentConfig = StudentConfig()
    measurements: int = Field(default=16, ge=2)

    @model_validator(mode="after")
    def _in_each_language(self) -> Self:
        """Check batch size, data and prompts against the languages."""
        if self.batch_size % len(self.languages):
            raise InputError(
                f"batch_size is {self.batch_size} for {len(self.languages)} languages; expected a multiple of the "
                "number of languages, because each has the same number of texts"
            )
        for name in ("measured", "tested"):
            if getattr(self, name) == self.data:
                raise InputError(f"{name} is the training data; expected other items, such as another split")
        for prompts in (self.prompts, self.training_prompts or self.prompts):
            for language in self.languages:
                if not with_a_place(prompts.get(language, ())):
                    raise InputError(f"there are no prompts in {language!r}; expected templates such as 'Bild: {{}}.'")
        return self


# --- the data

BATCH = 256  # texts or images that the teacher embeds at a time


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts of a language.

    Args:
        tokens: Token ids, (n, t), padded on the right.
        target: Index of the row in `rows` that the student learns for each text, (n,); for class prompts, the class.
        rows: Embeddings by the teacher, (m, d), float32.
        items: Item that each text is a caption of, (n,).
        truncated: Number of texts that were truncated.
    """

    tokens: np.ndarray
    target: np.ndarray
    rows: np.ndarray
    items: np.ndarray
    truncated: int = 0

    def __len__(self) -> int:
        return len(self.tokens)

    def targets(self, chosen: np.ndarray | slice = slice(None)) -> Tensor:
        return torch.from_numpy(self.rows[self.target[chosen]])

    def of_classes(self, seen: np.ndarray) -> "Texts":
        """Return only the prompts of these classes."""
        mask = np.isin(self.target, seen)
        return Texts(self.tokens[mask], self.target[mask], self.rows, self.items[mask])


@dataclass(frozen=True, eq=False)
class LabeledImages:
    """Labeled images for zero-shot classification.

    Args:
        rows: Embeddings by the teacher's image tower, (n, d).
        labels: Labels of the images, (n,).
        seen: Classes of the training captions.
        candidates: Number of classes.
    """

    rows: Tensor
    labels: np.ndarray
    seen: np.ndarray
    candidates: int

    def accuracy(self, classes: Tensor) -> dict[str, float]:
        """Return the top-1 accuracy among all classes, on images of seen and of held-out classes."""
        return zero_shot_by_class(self.rows, classes, self.labels, self.seen)

    def size(self, classes: str) -> dict[str, Any]:
        """Return the number of these images and the chance level, for records."""
        n = int((np.isin(self.labels, self.seen) == (classes == "seen")).sum())
        return {"n": n, "null_value": 1 / self.candidates}


class Sources:
    """The data sets of a config, embedded by the teacher.

    Args:
        config: Config of the experiment.
        workspace: Run folder, which embeds and stores the data.
        tokenizer: Tokenizer of the student.
    """

    def __init__(self, config: DistillationConfig, workspace: RunFolder, tokenizer: Any):
        self.config, self.workspace, self.tokenizer = config, workspace, tokenizer

    @cached_property
    def teacher(self) -> Encoder:
        return load_encoder(self.config.teacher, self.workspace.device)

    # --- captions

    def texts(self, data: DatasetConfig) -> dict[str, Texts]:
        """Map each language to its captions, with the teacher's rows of the same captions in the teacher's language."""
        return {language: self._texts(data, language) for language in self.config.languages}

    def _texts(self, data: DatasetConfig, language: str) -> Texts:
        """Return the tokens of a language's texts, and the teacher's row for each text's translation."""
        source, target = parallel(data, self.config.languages, language)
        items, rows = self._embedded(source)
        side = load_dataset(target).text
        assert side is not None  # the same data set as the teacher's
        i, j = aligned(items, side.item_id)
        tokens, truncated = self._tokens([str(side.load(int(k))) for k in j])
        return Texts(tokens, i, rows, np.asarray(side.item_id)[j], truncated)

    def _tokens(self, texts: Sequence[str]) -> tuple[np.ndarray, int]:
        """Return int32 token ids (n, t), padded on the right, and the number of truncated texts."""
        tokens = tokenize(self.tokenizer, texts, self.tokenizer.model_max_length, "max_length")
        return tokens.inputs["input_ids"].numpy().astype(np.int32), tokens.truncated

    def _embedded(self, source: DatasetConfig) -> tuple[list[str], np.ndarray]:
        """Return item ids and the teacher's rows, which are embedded once and kept in the store."""
        sets = self.workspace.embeddings(self.config.teacher, source, limit=None, batch_size=BATCH, only="text")
        text = sets["text"]
        items = range(len(text)) if text.item_id is None else text.item_id.tolist()
        return [str(item) for item in items], np.array(text.vectors, dtype=np.float32)

    # --- classes

    def seen(self) -> np.ndarray:
        """Return the classes of the training captions."""
        dataset = load_dataset(self.config.data)
        labels = [side.labels for side in dataset.sides if side.labels is not None]
        if not labels or dataset.class_names is None:
            raise InputError(f"{self.config.data.name} has no labels with class names, from which prompts are made")
        return np.unique(labels[0])

    def class_texts(self, data: DatasetConfig, prompts: Mapping[str, Sequence[str]]) -> dict[str, Texts]:
        """Map each language to prompts of all classes, with the mean row of the teacher's prompts per class."""
        source = self.config.languages[0]
        texts, classes = self._class_prompts(data, source, prompts[source])
        rows = self.teacher.text_features(self.teacher.tokenize(texts)).numpy()
        means = np.stack([rows[classes == k].mean(0) for k in range(classes.max() + 1)])
        by_language = {}
        for language in self.config.languages:
            texts, classes = self._class_prompts(data, language, prompts[language])
            by_language[language] = Texts(self._tokens(texts)[0], classes, means, items=classes)
        return by_language

    def _class_prompts(
        self, data: DatasetConfig, language: str, templates: Sequence[str]
    ) -> tuple[list[str], np.ndarray]:
        """Return the texts of all templates, in their order, and the class of each text."""
        texts, classes = [], []
        for template in templates:
            side = load_dataset(changed(data, language=language, prompt=template)).text
            if side is None or side.labels is None or side.pair_on != "label":
                raise InputError(f"{data.name} has no class names in {language!r}, from which prompts are made")
            texts += [str(side.load(k)) for k in range(len(side))]
            classes.append(side.labels)
        return texts, np.concatenate(classes)

    def teacher_classes(self, data: DatasetConfig) -> Tensor:
        """Return one unit row per class, (c, d), from the prompts in the teacher's language."""
        source = self.config.languages[0]
        texts, classes = self._class_prompts(data, source, self.config.prompts[source])
        return ensemble(self.teacher.text_features(self.teacher.tokenize(texts)), classes).float()

    def images(self, data: DatasetConfig) -> LabeledImages:
        """Embed labeled images with the teacher's image tower."""
        sets = self.workspace.embeddings(self.config.teacher, data, limit=None, batch_size=BATCH, only="image")
        image = sets.get("image")
        if image is None or image.labels is None:
            raise InputError(f"{self.config.teacher.model} gives no labeled images of {data.name} for zero-shot")
        rows = torch.from_numpy(np.array(image.vectors, dtype=np.float32))
        return LabeledImages(rows, image.labels, self.seen(), len(load_dataset(data).class_names or ()))


# --- the student and its training

PARTS = 4  # forward passes per batch, each on texts of similar length


class Student(nn.Module):
    """A transformer, mean pooling and one linear layer; parameters are named as in Multilingual-CLIP."""

    def __init__(self, transformer: Any, numbers: int):
        super().__init__()
        self.transformer = transformer
        self.LinearTransformation = nn.Linear(transformer.config.hidden_size, numbers)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map right-padded token ids (n, t) to rows (n, d)."""
        tokens = tokens[:, : int(self.lengths(tokens).max())]
        mask = (tokens != self.transformer.config.pad_token_id).long()
        hidden = self.transformer(input_ids=tokens, attention_mask=mask).last_hidden_state
        return self.LinearTransformation(mean_pooling(hidden, mask))

    def lengths(self, tokens: Tensor) -> Tensor:
        return (tokens != self.transformer.config.pad_token_id).sum(1)


def make_folder(folder: Path, config: StudentConfig, numbers: int, image_model: str) -> Path:
    """Write config and tokenizer of a tower with `numbers` columns, without weights.

    base/config.json describes the transformer in full, so no model of the hub is needed.
    """
    from transformers import BertConfig

    copy_tokenizer(folder)
    tokenizer = load_tokenizer(folder)
    transformer = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.hidden,
        max_position_embeddings=tokenizer.model_max_length,
        type_vocab_size=1,
        pad_token_id=tokenizer.pad_token_id,
        hidden_dropout_prob=0.0,  # not needed: every step has new texts
        attention_probs_dropout_prob=0.0,
    )
    settings = {
        "model_type": "M-CLIP",
        "modelBase": "base",
        "transformerDimensions": config.width,
        "numDims": numbers,
        "image_model": image_model,
    }
    (folder / "base").mkdir(exist_ok=True)
    base = {"architectures": ["BertModel"], **transformer.to_dict()}
    for path, values in ((folder / "base" / "config.json", base), (folder / "config.json", settings)):
        write_atomically(path, (json.dumps(values, indent=2, sort_keys=True) + "\n").encode())
    return folder


def fresh_student(folder: Path, numbers: int, seed: int) -> Student:
    """Return a student with initial weights, drawn on the CPU so that they do not depend on a GPU."""
    from transformers import AutoModel

    config = read_settings(folder / "base", str(folder))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        transformer = AutoModel.from_config(config, trust_remote_code=False)
        drop_pooler(transformer)
        return Student(transformer, numbers)


def save_student(student: Student, folder: Path) -> Path:
    """Save the weights in float16 next to their config, so that `mclip:FOLDER` loads the trained tower."""
    return save_half(student, folder / WEIGHTS[0])


class DistillationTrainer(Trainer):
    """Trains a student on its teacher's rows.

    Each language has its own epochs. Every batch is full: the remainder of an epoch is skipped.

    Args:
        student: A text tower.
        captions: Mapping from language to texts with targets.
        prompts: Mapping from language to class prompts with targets, which make up the share `class_captions`.
        config: Config of the experiment.
        device: Device to train on.
    """

    Place = Place
    PROMPT = 1

    def __init__(
        self,
        student: Student,
        captions: Mapping[str, Texts],
        prompts: Mapping[str, Texts],
        config: DistillationConfig,
        *,
        device: torch.device,
    ):
        self.student, self.captions, self.prompts = student, captions, prompts
        self.texts_per_language = config.batch_size // len(captions)
        for language, texts in captions.items():
            if len(texts) < self.texts_per_language:
                raise InputError(
                    f"batch_size is {config.batch_size}, {self.texts_per_language} texts in each language, but there "
                    f"are {len(texts)} captions in {language!r}; lower batch_size, because all batches are full"
                )
        super().__init__({"student": student}, config, device=device)
        self.optimize(student.parameters(), weight_decay=config.weight_decay, betas=(0.9, config.beta2))

    def loss(self) -> tuple[Tensor, Tensor]:
        self.student.train()
        loss = self.batch_loss(*self.batch(self.number))
        return loss, loss

    def batch_loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        by_length = self.student.lengths(tokens).argsort(stable=True)  # to pad short texts little
        with self.autocast():
            rows = torch.cat([self.student(tokens[part].to(self.device)) for part in by_length.chunk(PARTS)])
        return nn.functional.mse_loss(rows.float(), targets[by_length].to(self.device))

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """Return the tokens of a step, (b, t), and the rows of the teacher, (b, d), one language after the other."""
        parts = [self._texts(k, language, number) for k, language in enumerate(self.captions)]
        tokens, targets = zip(*parts, strict=True)
        return torch.cat(tokens), torch.cat(targets)

    def _texts(self, k: int, language: str, number: int) -> tuple[Tensor, Tensor]:
        """Return captions in the order of an epoch, some of them replaced by class prompts."""
        texts = self.captions[language]
        rows = self.shuffled(number, len(texts), self.texts_per_language, k)
        tokens, targets = texts.tokens[rows], texts.targets(rows)
        random = self.stream(self.PROMPT, k, number)
        chosen = np.flatnonzero(random.random(self.texts_per_language) < self.config.class_captions)
        if len(chosen):
            prompts = self.prompts[language]
            which = random.integers(len(prompts), size=len(chosen))
            tokens[chosen] = prompts.tokens[which]
            targets[torch.from_numpy(chosen)] = prompts.targets(which)
        return torch.from_numpy(tokens.astype(np.int64)), targets
