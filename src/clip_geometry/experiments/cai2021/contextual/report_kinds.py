"""Kinds of words for the colours of a picture: symbols, numbers, and classes of words where tags tell them."""

from collections.abc import Sequence

# Okabe & Ito 2008; symbols, which pictures are about, have the colour that stands out
KINDS = {
    "symbol": "#D55E00",
    "number": "#CC79A7",
    "noun": "#0072B2",
    "verb": "#009E73",
    "adjective, adverb": "#E69F00",
    "function word": "#6E7781",
    "word": "#56B4E9",
}
BRACKETS = ("-LRB-", "-RRB-", "-LCB-", "-RCB-", "-LSB-", "-RSB-")  # as treebanks write them
# beginnings of the tags of the Penn Treebank and of Brown
NUMBERS = ("CD", "OD")
CLASSES = {
    "noun": ("N",),
    "verb": ("V", "MD", "BE", "HV", "DO"),
    "adjective, adverb": ("J", "RB", "RN", "QL"),
}


def kinds(words: Sequence[str], tags: Sequence[str] | None = None) -> list[str]:
    """The kind of each word: "symbol" without letter and digit, "number"; a class by its tag, "word" without one."""
    return [_kind(word, tag) for word, tag in zip(words, tags if tags is not None else [""] * len(words), strict=True)]


def _kind(word: str, tag: str) -> str:
    if word in BRACKETS or not any(character.isalnum() for character in word):
        return "symbol"
    if tag.startswith(NUMBERS) or (not tag and word[0].isdigit()):
        return "number"
    if not tag:
        return "word"
    return next((name for name, beginnings in CLASSES.items() if tag.startswith(beginnings)), "function word")
