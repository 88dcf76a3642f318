"""The student, stored in a folder with the layout of Multilingual-CLIP, and its distillation (Carlsson et al. 2022).

The student is trained by mean squared error: its rows of texts in any language approach the teacher's rows of the same
texts in the teacher's language.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clip_geometry.encoders.hf import WEIGHTS, drop_pooler, load_tokenizer, read_settings
from clip_geometry.encoders.hf.text import mean_pooling
from clip_geometry.files import write_atomically
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.clip_training import copy_tokenizer, save_half
from clip_geometry_experiments.kit.training import Trainer
from clip_geometry_experiments.kit.training_states import Place
from clip_geometry_experiments.studies.distillation.config import DistillationConfig, StudentConfig
from clip_geometry_experiments.studies.distillation.data import Texts

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
