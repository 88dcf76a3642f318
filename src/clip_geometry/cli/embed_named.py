"""`clip-geometry embed`: which option is whose, and what the rows of a store leave out."""

from collections.abc import Mapping
from typing import Any

from clip_geometry import data, encoders
from clip_geometry.embedding.supply import Throughput
from clip_geometry.registry import InputError, did_you_mean, shown

LISTED = "clip-geometry list models, and list datasets,"


def left_out(side: Mapping[str, Any]) -> str:
    """Lists what the rows leave out: unreadable images, the ends of long texts, words without tokens, captions."""
    skipped, truncated, lost = len(side.get("skipped") or ()), side.get("truncated") or 0, side.get("lost") or 0
    words = [f"{skipped} unreadable and skipped"] * (skipped > 0) + [f"{truncated} truncated"] * (truncated > 0)
    words += [f"{lost} words without a row"] * (lost > 0)
    dropped = side.get("dropped") or 0
    words += [f"{dropped} more captions of these images left out by captions_per_image"] * (dropped > 0)
    return f" ({', '.join(words)})" if words else ""


def share_out(options: Mapping[str, Any], model: str, dataset: str) -> tuple[dict[str, Any], ...]:
    """Sorts options into those of the encoder, the data set and Throughput: by prefix, otherwise by who has the field.

    Only config classes are looked up, because a valid config may need these very options.
    """
    fields = {
        "model": encoders.config_class(model).model_fields.keys() - {"model"},
        "data": data.config_class(dataset).model_fields.keys() - {"name"},
        "throughput": Throughput.model_fields.keys(),
    }
    shares: dict[str, dict[str, Any]] = {owner: {} for owner in fields}
    for key, value in options.items():
        prefix, _, name = key.rpartition(".")
        if prefix not in ("", *fields):
            known = ", ".join(map(repr, fields))
            raise InputError(f"option {shown(key)} has the unknown prefix {shown(prefix)}; known are {known}")
        asked = [prefix] if prefix else list(fields)
        owner = next((owner for owner in asked if name in fields[owner]), None)
        if owner is None:
            known = sorted(set().union(*(fields[each] for each in asked)))
            raise InputError(f"unknown option {shown(key)}{did_you_mean(name, known, listed_by=LISTED)}")
        shares[owner][name] = value
    return tuple(shares.values())
