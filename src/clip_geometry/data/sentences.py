"""Sentences whose words are known, and the words of any other text."""

import re
from collections.abc import Sequence

# runs of letters and digits, joined by apostrophes and hyphens and, between digits, by points and commas; runs of
# anything else that is not space
WORDS = re.compile(r"\w+(?:['’\-]\w+|(?<=\d)[.,](?=\d)\w+)*|[^\w\s]+")


class Sentence(str):
    """Words joined by spaces: an ordinary string with the attributes `words` and `tags`.

    tags: The part of speech of each word, "" if unknown.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]

    def __new__(cls, words: Sequence[str], tags: Sequence[str] | None = None) -> "Sentence":
        sentence = super().__new__(cls, " ".join(words))
        sentence.words = tuple(words)
        sentence.tags = ("",) * len(words) if tags is None else tuple(tags)
        return sentence

    def __reduce__(self) -> tuple[type["Sentence"], tuple[tuple[str, ...], tuple[str, ...]]]:
        """For other processes: str's own method would pass the text as the words."""
        return Sentence, (self.words, self.tags)


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a sentence as the corpus has them, or of any other text by WORDS; punctuation counts."""
    return text.words if isinstance(text, Sentence) else tuple(WORDS.findall(text))


def tags_of(text: str) -> tuple[str, ...]:
    """Return one tag for each of `words_of`."""
    return text.tags if isinstance(text, Sentence) else ("",) * len(words_of(text))
