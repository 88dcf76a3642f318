"""Rows of words, sub-words and patches from the hidden states of all layers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from clip_geometry.encoders.base import Rows
from clip_geometry.encoders.hidden_states.text import SPECIAL, SubWords

Words = Literal["first", "mean", "none"]
TOKENS = 1024  # about how many a forward pass has; short texts are not padded to the longest of a large batch


@dataclass(frozen=True)
class Units:
    """What becomes a row of a text: place (s,) of the sub-words that are used, unit (s,) the row each is part of, from
    0 and ascending; columns: one value a row."""

    place: np.ndarray
    unit: np.ndarray
    columns: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.columns["position"])


def units_of(text: SubWords, words: Words, special: bool, names: Callable[[Sequence[int]], Sequence[str]]) -> Units:
    """One unit a word, or one a sub-word where words = "none". names: of ids, as the tokenizer writes them.

    Columns: token; position, the word's in the text, SPECIAL for special tokens; tag; for sub-words also word, and
    piece, the number within the word.
    """
    place = np.flatnonzero(text.word >= (SPECIAL if special else 0))
    word = text.word[place]
    begins = np.diff(word, prepend=-3) != 0
    begins |= word < 0  # special tokens stand for themselves
    starts = np.flatnonzero(begins)
    chosen, unit = (np.arange(len(place)),) * 2 if words == "none" else (starts, np.cumsum(begins) - 1)
    position = word[chosen]
    whole = np.array([text.words[k] if k >= 0 else "" for k in position.tolist()], dtype=object)
    token = whole
    if words == "none" or special:
        pieces = np.array(names([text.ids[k] for k in place[chosen].tolist()]), dtype=object)
        token = pieces if words == "none" else np.where(position < 0, pieces, whole)
    tags = [text.tags[k] if k >= 0 else "" for k in position.tolist()]
    columns = {"token": token, "position": position.astype(np.int32), "tag": np.array(tags, dtype=object)}
    if words == "none":
        first = starts[np.cumsum(begins) - 1]
        columns |= {"word": whole, "piece": (np.arange(len(place)) - first).astype(np.int32)}
    return Units(place, unit, columns)


def text_rows(
    texts: Sequence[SubWords],
    units: Sequence[Units],
    layers: Sequence[int],
    words: Words,
    hidden: Callable[[Sequence[SubWords]], Sequence[Tensor]],
) -> Rows:
    """Rows by text, within a text by layer, within a layer by position. hidden: from texts to the (n, t, d) states of
    each of the layers."""
    counts = np.array([len(each) for each in units])
    before = len(layers) * (np.cumsum(counts) - counts)
    vectors = None
    for chunk in _chunks([len(text.ids) if count else 0 for text, count in zip(texts, counts, strict=True)]):
        states = _pooled(hidden([texts[k] for k in chunk]), [units[k] for k in chunk], words)
        if vectors is None:
            vectors = np.empty((len(layers) * counts.sum(), states[0].shape[1]), dtype=np.float32)
        count = counts[chunk]
        first = np.repeat(before[chunk] - np.cumsum(count) + count, count) + np.arange(count.sum())
        for number, rows in enumerate(states):
            vectors[first + number * np.repeat(count, count)] = rows
    if vectors is None:
        vectors = np.zeros((0, 0), dtype=np.float32)
    item = np.repeat(np.arange(len(texts)), len(layers) * counts)
    columns = {"layer": np.concatenate([np.repeat(np.asarray(layers, np.int32), count) for count in counts])}
    for name in units[0].columns:
        columns[name] = np.concatenate([np.tile(each.columns[name], len(layers)) for each in units])
    return Rows(torch.from_numpy(vectors), item, columns, sum(text.lost for text in texts))


def _chunks(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices of texts of like length together; those of length 0 are left out."""
    order = [k for k in sorted(range(len(lengths)), key=lengths.__getitem__) if lengths[k]]
    chunk: list[int] = []
    for k in order:
        if chunk and (len(chunk) + 1) * lengths[k] > TOKENS:
            yield chunk
            chunk = []
        chunk.append(k)
    if chunk:
        yield chunk


def _pooled(hidden: Sequence[Tensor], units: Sequence[Units], words: Words) -> list[np.ndarray]:
    """Of each layer the rows of all units of these texts, in float32."""
    length, device = hidden[0].shape[1], hidden[0].device
    starts = np.cumsum([0, *(len(each) for each in units)])
    place = np.concatenate([k * length + each.place for k, each in enumerate(units)])
    unit = np.concatenate([start + each.unit for start, each in zip(starts, units, strict=False)])
    if words == "first":
        chosen = np.flatnonzero(np.diff(unit, prepend=-1))
        place, unit = place[chosen], unit[chosen]
    where = torch.from_numpy(place).to(device)
    rows = [states.flatten(0, 1)[where].float() for states in hidden]
    if len(unit) > starts[-1]:
        into = torch.from_numpy(unit).to(device)
        number = torch.bincount(into).unsqueeze(1)
        rows = [each.new_zeros(len(number), each.shape[1]).index_add_(0, into, each) / number for each in rows]
    return [each.cpu().numpy() for each in rows]


def image_rows(hidden: Sequence[Tensor], layers: Sequence[int], grid: tuple[int, int], special: bool) -> Rows:
    """Rows of the patches, line by line, and where special tokens are asked for of the class token (position −1), if
    there is one: by image, by layer, by position.

    grid: patches from top to bottom and from left to right, whose place is in the columns row and column.
    """
    patches = grid[0] * grid[1]
    if not special:
        hidden = [states[:, -patches:] for states in hidden]
    n, tokens, d = hidden[0].shape
    ahead = tokens - patches
    position = np.arange(-ahead, patches, dtype=np.int32)
    is_patch = position >= 0
    columns = {
        "token": np.where(is_patch, "patch", "class").astype(object),
        "position": np.where(is_patch, position, SPECIAL).astype(np.int32),
        "row": np.where(is_patch, position // grid[1], -1).astype(np.int32),
        "column": np.where(is_patch, position % grid[1], -1).astype(np.int32),
    }
    vectors = torch.stack(list(hidden), dim=1).float().cpu().reshape(-1, d)
    times = n * len(layers)
    columns = {name: np.tile(column, times) for name, column in columns.items()}
    layer = np.tile(np.repeat(np.asarray(layers, np.int32), tokens), n)
    return Rows(vectors, np.repeat(np.arange(n), len(layers) * tokens), {"layer": layer, **columns})
