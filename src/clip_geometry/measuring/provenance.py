"""What every row of a result has in common: where the numbers come from and how they were made."""

from collections.abc import Mapping, Sequence
from typing import Any

from clip_geometry.embeddings import Embeddings
from clip_geometry.registry import library_versions
from clip_geometry.results import Row
from clip_geometry.transforms import Step


def context(
    sets: Mapping[str, Embeddings],
    *,
    seed: int,
    steps: Sequence[Step | str] = (),
    fitted_on: str | None = None,
    blocks: int = 0,
) -> Row:
    """What every row of these sets has in common: where the numbers come from and how they were made.

    sets: as they were before `steps`. blocks: of the jackknife, 0 for none.
    """
    return {
        "model": _names(sets, "model"),
        "model_options": _options(sets, "model_options"),
        "dataset": _names(sets, "dataset") or _names(sets, "source"),
        "data_options": _options(sets, "data_options"),
        "split": _names(sets, "split"),
        "dtype": "+".join(dict.fromkeys(str(each.vectors.dtype) for each in sets.values())),
        "maps": _maps(sets),
        "pipeline": [str(step) for step in steps],
        "fitted_on": fitted_on,
        "seed": seed,
        "jackknife_blocks": blocks,
        "versions": library_versions(),
    }


def origin_of(sets: Mapping[str, Embeddings]) -> str:
    """`scenes/test`: the data set and split of the rows, where they are known."""
    return "/".join(filter(None, (_names(sets, "dataset", "source"), _names(sets, "split")))) or "these rows"


def _names(sets: Mapping[str, Embeddings], *keys: str) -> str | None:
    """What the sets say under the first of these keys that they have, each once."""
    origins = [each.provenance for each in sets.values()]
    found = (next((origin[key] for key in keys if origin.get(key)), None) for origin in origins)
    return " + ".join(dict.fromkeys(str(each) for each in found if each is not None)) or None


def _options(sets: Mapping[str, Embeddings], key: str) -> dict[str, Any]:
    """Options that all sets share, or those of each."""
    options = {modality: dict(each.provenance.get(key) or {}) for modality, each in sets.items()}
    first = next(iter(options.values()))
    return first if all(each == first for each in options.values()) else options


def _maps(sets: Mapping[str, Embeddings]) -> str | None:
    """The saved maps that the rows had gone through before they were read, in words."""
    applied: dict[str, str] = {}
    for modality, each in sets.items():
        maps = each.provenance.get("maps") or ()
        if words := ", then ".join(f"{' → '.join(map['pipeline'])} fitted on {map['fitted_on']}" for map in maps):
            applied[modality] = words
    if len(applied) == len(sets) and len(set(applied.values())) == 1:
        return next(iter(applied.values()))
    return "; ".join(f"{modality} {words}" for modality, words in applied.items()) or None
