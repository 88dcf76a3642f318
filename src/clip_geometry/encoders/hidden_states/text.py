"""Texts in sub-words, and which word each of these belongs to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clip_geometry.data.sentences import tags_of, words_of
from clip_geometry.encoders.hf.loading import one_sentence
from clip_geometry.registry import InputError

SPECIAL, NO_WORD = -1, -2  # in the place of a word's index


@dataclass(frozen=True)
class SubWords:
    """One text as the model takes it.

    ids: (t,) padding included where the model wants it. length: without it. word: (t,) int, the index of the word of
    each; SPECIAL for start, end, …; NO_WORD for padding, for what is in no word, and for a word whose end was cut off.
    cut: whether the text was too long.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    ids: Sequence[int]
    length: int
    word: np.ndarray
    cut: bool

    @property
    def lost(self) -> int:
        """Words without a sub-word: behind the cut, or unknown to the tokenizer."""
        return len(self.words) - len(np.unique(self.word[self.word >= 0]))


def word_of_each(spans: np.ndarray, text: str, words: Sequence[str], cut: bool) -> np.ndarray:
    """(t,) The word of each sub-word by its (t, 2) span in `text`, where the words are found one after the other.

    A sub-word belongs to the first word that ends behind the sub-word's start: a space before a word is part of the
    word's first one. cut: then the last word may have lost its end, and is none.
    """
    found, end = [], 0
    for index, word in enumerate(words):
        start = text.find(word, end) if word else -1
        if start >= 0:
            end = start + len(word)
            found.append((index, end))
    index, ends = np.array([*found, (NO_WORD, len(text) + 1)]).T
    if cut and len(spans) and len(found):
        reached = int(spans[:, 1].max())
        index = np.where((ends > reached) & (index >= 0), NO_WORD, index)
    return index[np.searchsorted(ends, spans[:, 0], side="right").clip(max=len(ends) - 1)]


def in_sub_words(
    tokenizer: Any,
    texts: Sequence[str],
    limit: int,
    *,
    clean: Callable[[str], str] = str,
    full: bool = False,
) -> list[SubWords]:
    """Texts through a fast tokenizer of transformers, cut to `limit` tokens. clean: what happens to a text before;
    full: padded to the limit."""
    if not tokenizer.is_fast:
        raise InputError(
            f"{type(tokenizer).__name__} does not say which characters its tokens stand for, so they cannot be joined "
            "to words; a model with a fast tokenizer (tokenizer.json) is needed"
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
    found = []
    for text, line, ids, mask, special, spans in zip(texts, cleaned, *(encoded[part] for part in parts), strict=True):
        there = np.asarray(mask, dtype=bool)
        # only a text that fills the limit can have been cut
        cut = int(there.sum()) >= limit and len(tokenizer(line, verbose=False)["input_ids"]) > limit
        inner = there & ~np.asarray(special, dtype=bool)
        word = np.where(there, SPECIAL, NO_WORD)
        words = words_of(text)
        spans = np.asarray(spans, dtype=np.int64).reshape(-1, 2)[inner]
        word[inner] = word_of_each(spans, line, [clean(each) for each in words], cut)
        found.append(SubWords(words, tags_of(text), ids, int(there.sum()), word, cut))
    return found


def in_byte_pairs(tokenizer: Any, texts: Sequence[str], rows: Sequence[Sequence[int]]) -> list[SubWords]:
    """The same for open_clip's own tokenizer, which has no offsets. rows: the ids it gave, padding and cut included."""
    found = []
    for text, ids in zip(texts, rows, strict=True):
        line, words = tokenizer.clean_fn(text), words_of(text)
        spans = []
        for match in tokenizer.pat.finditer(line):
            letters = "".join(tokenizer.byte_encoder[byte] for byte in match.group().encode())
            # only between words does it matter where a sub-word ends
            spans += [match.span()] * len(tokenizer.bpe(letters).split(" "))
        kept, cut = len(ids) - 2, len(spans) > len(ids) - 2
        if cut and spans[kept - 1] == spans[kept]:  # the cut is within a match: its end has not been reached
            start = spans[kept][0]
            spans = [(start, start) if span == spans[kept] else span for span in spans[:kept]]
        spans = np.asarray(spans[:kept], dtype=np.int64).reshape(-1, 2)
        word = np.full(len(ids), NO_WORD)
        word[[0, len(spans) + 1]] = SPECIAL
        word[1 : len(spans) + 1] = word_of_each(spans, line, [tokenizer.clean_fn(each) for each in words], cut)
        found.append(SubWords(words, tags_of(text), ids, len(spans) + 2, word, cut))
    return found
