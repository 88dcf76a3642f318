"""What teacher learning learns from: tokens in each language and the rows of what they say in the teacher's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clip_geometry.data.base import Side
from clip_geometry.encoders.hf.loading import tokenize
from clip_geometry.progress import progress
from clip_geometry.registry import InputError

CHUNK = 1000  # texts that are tokenized at a time


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts of a language. tokens: (n, t), padded behind. target: (n,) the row of `rows`, (m, d) float32 embeddings by
    the teacher, that the student should give. items: (n,) what each is a caption of. truncated: how many texts did not
    fit."""

    tokens: np.ndarray
    target: np.ndarray
    rows: np.ndarray
    items: np.ndarray
    truncated: int = 0

    def __len__(self) -> int:
        return len(self.tokens)

    def targets(self, chosen: np.ndarray | slice = slice(None)) -> Tensor:
        return torch.from_numpy(self.rows[self.target[chosen]])


@dataclass(frozen=True, eq=False)
class ClassTexts:
    """Prompts of all classes in a language. tokens: (k, t); classes: (k,) of what class each is; rows: (c, d) what the
    teacher says of the classes in its own language."""

    tokens: np.ndarray
    classes: np.ndarray
    rows: np.ndarray

    def of(self, seen: np.ndarray) -> Texts:
        """Those of these classes only, with the teacher's rows as targets."""
        kept = np.isin(self.classes, seen)
        return Texts(self.tokens[kept], self.classes[kept], self.rows, items=self.classes[kept])


def text_tokens(texts: Sequence[str], tokenizer: Any, limit: int) -> tuple[np.ndarray, int]:
    """((n, limit) int32 padded behind, how many were cut)."""
    parts = [tokenize(tokenizer, texts[k : k + CHUNK], limit, "max_length") for k in range(0, len(texts), CHUNK)]
    tokens = np.concatenate([part.inputs["input_ids"].numpy().astype(np.int32) for part in parts])
    return tokens, sum(part.truncated for part in parts)


def read_texts(side: Side, language: str) -> list[str]:
    """The captions, with their progress told."""
    texts = []
    with progress(f"captions in {language}", total=len(side)) as advance:
        for k in range(len(side)):
            texts.append(str(side.load(k)))
            advance(1)
    return texts


def aligned(source: Sequence[str], target: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Indices (i, j): the k-th caption of an item in the one language translates its k-th caption in the other."""
    row_of = {key: row for row, key in enumerate(_keys(source))}
    found = [(row_of[key], row) for row, key in enumerate(_keys(target)) if key in row_of]
    if not found:
        raise InputError("source and target have no captions in common, by their item ids; expected parallel captions")
    i, j = np.array(found).T
    return i, j


def _keys(items: Sequence[str]) -> list[tuple[str, int]]:
    """(item, how many captions of it came before)."""
    counts: dict[str, int] = {}
    keys = []
    for item in items:
        counts[item] = counts.get(item, -1) + 1
        keys.append((item, counts[item]))
    return keys
