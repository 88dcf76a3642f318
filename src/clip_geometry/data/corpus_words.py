"""Texts that know their words."""

import re
from collections.abc import Sequence

# runs of letters and digits, held together by apostrophes and hyphens and, between digits, by points and commas; runs
# of whatever else is not space
WORDS = re.compile(r"\w+(?:['’\-]\w+|(?<=\d)[.,](?=\d)\w+)*|[^\w\s]+")


class Sentence(str):
    """Words with a space between each two: an ordinary text for whoever does not ask for more.

    tags: one a word (part of speech), "" where there are none.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]

    def __new__(cls, words: Sequence[str], tags: Sequence[str] | None = None) -> "Sentence":
        sentence = super().__new__(cls, " ".join(words))
        sentence.words = tuple(words)
        sentence.tags = ("",) * len(words) if tags is None else tuple(tags)
        return sentence

    def __reduce__(self) -> tuple[type["Sentence"], tuple[tuple[str, ...], tuple[str, ...]]]:
        """str's own would take the text for the words when it is sent to another process."""
        return Sentence, (self.words, self.tags)


def words_of(text: str) -> tuple[str, ...]:
    """The words of a sentence as the corpus has them, of any other text by WORDS: punctuation marks are words."""
    return text.words if isinstance(text, Sentence) else tuple(WORDS.findall(text))


def tags_of(text: str) -> tuple[str, ...]:
    """One for each of `words_of`."""
    return text.tags if isinstance(text, Sentence) else ("",) * len(words_of(text))
