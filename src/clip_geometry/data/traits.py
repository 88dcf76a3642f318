"""What the configs of several data sets have in common: no splits, certain splits, no classes."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import field_validator

from clip_geometry.data.base import DatasetConfig
from clip_geometry.registry import did_you_mean


class OneSplit(DatasetConfig):
    """A set that comes without splits: `split` stays "all"."""

    split: str = "all"

    @field_validator("split")
    @classmethod
    def _one_split(cls, split: str) -> str:
        if split != "all":
            raise ValueError(f"unknown split {split!r}; this data set has no splits, leave it out")
        return split


class KnownSplits(DatasetConfig):
    """split: one of SPLITS."""

    SPLITS: ClassVar[tuple[str, ...]]

    @field_validator("split")
    @classmethod
    def _known_split(cls, split: str) -> str:
        return known_split(split, cls.SPLITS)


class WithoutClasses(DatasetConfig):
    """Captions or sentences, which have no classes, so no prompts either."""

    @field_validator("prompt")
    @classmethod
    def _no_classes(cls, prompt: str | None) -> str | None:
        if prompt is not None:
            raise ValueError("a prompt needs class names, and this data set has texts of its own instead; leave it out")
        return prompt


def known_split(split: str, known: Sequence[str]) -> str:
    """The split as it is. Raises ValueError, which pydantic tells as of this key, where it is none of the known."""
    if split not in known:
        hint = did_you_mean(split, known) or f"; known are {', '.join(known)}"
        raise ValueError(f"unknown split {split!r}{hint}")
    return split
