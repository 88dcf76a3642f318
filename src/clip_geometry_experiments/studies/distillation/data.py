"""Training data of the student: texts with the rows of the teacher, class prompts, and images for zero-shot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clip_geometry.data import load_dataset
from clip_geometry.data.base import DatasetConfig
from clip_geometry.encoders import load_encoder
from clip_geometry.encoders.base import Encoder
from clip_geometry.encoders.hf import tokenize
from clip_geometry.evaluate import ensemble
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.base import RunFolder
from clip_geometry_experiments.kit.clip_training import zero_shot_by_class
from clip_geometry_experiments.kit.languages import aligned, changed, parallel
from clip_geometry_experiments.studies.distillation.config import DistillationConfig

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
