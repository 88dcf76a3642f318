"""The core measures of known models, to compare a value with."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from clip_geometry.config import read_yaml
from clip_geometry.display.numbers import number


@cache
def known_models() -> Mapping[str, Mapping[str, Any]]:
    """Model and data → where the embeddings are from, and their numbers."""
    return read_yaml(Path(__file__).with_suffix(".yaml"))


def values_of(model: str, measures: Iterable[str]) -> str:
    """The values of some measures of a known model in a line; "" where it has none of them.

    Args:
        model: One of `known_models`.
        measures: Names.

    Returns:
        Such as "average_cosine 0.5315 (image), 0.5152 (text); modality_gap 0.8514".
    """
    parts = []
    for name in dict.fromkeys(measures):
        found = [each for each in known_models()[model]["numbers"] if each["measure"] == name]
        sets = [f"{number(each['value'])}{_of(each['set'])}" for each in found]
        parts += [f"{name} {', '.join(sets)}"] if sets else []
    return "; ".join(parts)


def _of(modality: str) -> str:
    return "" if modality == "both" else f" ({modality})"
