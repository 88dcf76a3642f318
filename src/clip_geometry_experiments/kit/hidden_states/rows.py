"""Texts in sub-words, the word that each belongs to, and the rows of words and sub-words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clip_geometry.data.base import words_of
from clip_geometry.encoders.base import EncodedRows
from clip_geometry.encoders.hf import one_sentence
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.corpora import tags_of

NO_WORD = -1  # in place of a word's index
TOKENS = 1024  # of a forward pass, about; short texts are not padded to the longest of a large batch


# --- texts in sub-words


@dataclass(frozen=True)
class SubWords:
    """One text as the model takes it.

    ids: (t,), with padding where the model wants it. length: without padding. word: (t,) int, the index of the word
    that each belongs to; NO_WORD for start, end and padding, for what is in no word, and for a word whose end was
    truncated. cut: whether the text was too long.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    ids: Sequence[int]
    length: int
    word: np.ndarray
    cut: bool

    @property
    def lost(self) -> int:
        """Number of words without a sub-word: truncated, or unknown to the tokenizer."""
        return len(self.words) - len(np.unique(self.word[self.word >= 0]))


def word_of_each(spans: np.ndarray, text: str, words: Sequence[str], cut: bool) -> np.ndarray:
    """(t,) The word of each sub-word, from its (t, 2) span in `text`, where the words appear one after the other.

    A sub-word belongs to the first word that ends after the sub-word's start, so that a space before a word is part of
    its first sub-word. cut: the last word may have lost its end, and is then dropped.
    """
    located = []  # (index, end) of each word
    end = 0
    for index, word in enumerate(words):
        start = text.find(word, end) if word else -1
        if start >= 0:
            end = start + len(word)
            located.append((index, end))
    index, ends = np.array([*located, (NO_WORD, len(text) + 1)]).T
    if cut and len(spans) and len(located):
        last_end = int(spans[:, 1].max())
        index = np.where((ends > last_end) & (index >= 0), NO_WORD, index)
    return index[np.searchsorted(ends, spans[:, 0], side="right").clip(max=len(ends) - 1)]


def in_sub_words(
    tokenizer: Any, texts: Sequence[str], limit: int, *, clean: Callable[[str], str] = str, full: bool = False
) -> list[SubWords]:
    """Texts through a fast tokenizer of transformers, truncated to `limit` tokens.

    clean: applied to a text first. full: pad to the limit.
    """
    if not tokenizer.is_fast:
        raise InputError(
            f"{type(tokenizer).__name__} does not tell which characters its tokens stand for, so they cannot be joined "
            "to words; expected a model with a fast tokenizer (tokenizer.json)"
        )
    cleaned = [clean(text) for text in texts]
    with one_sentence("the tokenizer fails, its files are damaged or incomplete"):
        encoded = tokenizer(
            cleaned,
            truncation=True,
            max_length=limit,
            padding="max_length" if full else False,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
            verbose=False,
        )
    parts = ("input_ids", "attention_mask", "special_tokens_mask", "offset_mapping")
    sub_words = []
    for text, line, ids, mask, special, spans in zip(texts, cleaned, *(encoded[part] for part in parts), strict=True):
        is_token = np.asarray(mask, dtype=bool)
        length = int(is_token.sum())
        # only a text that fills the limit can have been truncated
        cut = length >= limit and len(tokenizer(line, verbose=False)["input_ids"]) > limit
        inner = is_token & ~np.asarray(special, dtype=bool)
        word = np.full(len(is_token), NO_WORD)
        words = words_of(text)
        spans = np.asarray(spans, dtype=np.int64).reshape(-1, 2)[inner]
        word[inner] = word_of_each(spans, line, [clean(each) for each in words], cut)
        sub_words.append(SubWords(words, tags_of(text), ids, length, word, cut))
    return sub_words


# --- rows


@dataclass(frozen=True)
class Units:
    """What becomes the rows of a text.

    place: (s,) the sub-words that are used. unit: (s,) the row that each is part of, ascending from 0. columns: one
    value per row.
    """

    place: np.ndarray
    unit: np.ndarray
    columns: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.columns["position"])


def units_of(text: SubWords, names: Callable[[Sequence[int]], Sequence[str]] | None) -> Units:
    """One unit per word or, with `names`, per sub-word. names: from ids to the tokenizer's strings.

    Columns: token; position, the word's index in the text; tag; for sub-words also word, and piece, the index within
    the word.
    """
    place = np.flatnonzero(text.word >= 0)
    word = text.word[place]
    begins = np.diff(word, prepend=NO_WORD) != 0
    starts, unit = np.flatnonzero(begins), np.cumsum(begins) - 1
    position = word[starts] if names is None else word
    whole = np.array([text.words[k] for k in position.tolist()], dtype=object)
    tags = np.array([text.tags[k] for k in position.tolist()], dtype=object)
    columns = {"token": whole, "position": position.astype(np.int32), "tag": tags}
    if names is None:
        return Units(place, unit, columns)
    columns["token"] = np.array(names([text.ids[k] for k in place.tolist()]), dtype=object)
    columns |= {"word": whole, "piece": (np.arange(len(place)) - starts[unit]).astype(np.int32)}
    return Units(place, np.arange(len(place)), columns)


def text_rows(
    texts: Sequence[SubWords],
    units: Sequence[Units],
    layers: Sequence[int],
    hidden: Callable[[Sequence[SubWords]], Sequence[Tensor]],
) -> EncodedRows:
    """Rows ordered by text, then layer, then position. hidden: from texts to the (n, t, d) states of each layer."""
    counts = np.array([len(unit) for unit in units])
    before = len(layers) * (np.cumsum(counts) - counts)
    chunks: list[list[int]] = [[]]  # of texts of similar length
    for k in sorted(np.flatnonzero(counts).tolist(), key=lambda k: len(texts[k].ids)):
        if chunks[-1] and (len(chunks[-1]) + 1) * len(texts[k].ids) > TOKENS:
            chunks.append([])
        chunks[-1].append(k)
    vectors = None
    for chunk in filter(None, chunks):
        states = hidden([texts[k] for k in chunk])
        count = counts[chunk]
        if vectors is None:
            vectors = np.empty((len(layers) * counts.sum(), states[0].shape[2]), dtype=np.float32)
        # in the states of the chunk: the places of the sub-words, and the unit that each is part of
        length = states[0].shape[1]
        starts = np.cumsum(count) - count
        place = np.concatenate([k * length + units[text].place for k, text in enumerate(chunk)])
        unit = np.concatenate([start + units[text].unit for start, text in zip(starts, chunk, strict=True)])
        where, into = (torch.from_numpy(each).to(states[0].device) for each in (place, unit))
        sizes = torch.bincount(into).unsqueeze(1)  # in sub-words
        first = np.repeat(before[chunk] - starts, count) + np.arange(count.sum())
        for number, state in enumerate(states):
            rows = state.flatten(0, 1)[where].float()
            if len(unit) > len(sizes):  # some unit has several
                rows = rows.new_zeros(len(sizes), rows.shape[1]).index_add_(0, into, rows) / sizes
            vectors[first + number * np.repeat(count, count)] = rows.cpu().numpy()
    if vectors is None:
        vectors = np.zeros((0, 0), dtype=np.float32)
    item = np.repeat(np.arange(len(texts)), len(layers) * counts)
    columns = {"layer": np.concatenate([np.repeat(np.asarray(layers, np.int32), count) for count in counts])}
    for name in units[0].columns:
        columns[name] = np.concatenate([np.tile(of_text.columns[name], len(layers)) for of_text in units])
    return EncodedRows(torch.from_numpy(vectors), item, columns, sum(text.lost for text in texts))
