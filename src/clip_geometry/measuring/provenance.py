"""What every row of a result has in common: where the numbers come from and how they were made."""

from collections.abc import Mapping, Sequence
from typing import Any

from clip_geometry.embeddings import Embeddings
from clip_geometry.results import Row
from clip_geometry.transforms import Step
from clip_geometry.versions import library_versions


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
    origins = {modality: each.provenance for modality, each in sets.items()}

    def common(key: str) -> str | None:
        values = [str(origin[key]) for origin in origins.values() if origin.get(key) is not None]
        return " + ".join(dict.fromkeys(values)) or None

    def options(key: str) -> dict[str, Any]:
        found = {modality: dict(origin.get(key) or {}) for modality, origin in origins.items()}
        first, *others = found.values()
        return first if all(other == first for other in others) else found

    return {
        "model": common("model"),
        "model_options": options("model_options"),
        "dataset": common("dataset") or common("source"),
        "data_options": options("data_options"),
        "split": common("split"),
        "dtype": "+".join(dict.fromkeys(str(each.vectors.dtype) for each in sets.values())),
        "maps": _maps(origins),
        "pipeline": [str(step) for step in steps],
        "fitted_on": fitted_on,
        "seed": seed,
        "jackknife_blocks": blocks,
        "versions": library_versions(),
    }


def _maps(origins: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The saved maps that the rows had gone through before they were read, in words."""
    applied = {
        modality: ", then ".join(
            f"{' → '.join(map['pipeline'])} fitted on {map['fitted_on']}" for map in origin["maps"]
        )
        for modality, origin in origins.items()
        if origin.get("maps")
    }
    if len(applied) == len(origins) and len(set(applied.values())) == 1:
        return next(iter(applied.values()))
    return "; ".join(f"{modality} {words}" for modality, words in applied.items()) or None


def origin_of(sets: Mapping[str, Embeddings]) -> str:
    """`scenes/test`: the data set and split of the rows, where they are known."""
    found = [each.provenance for each in sets.values()]
    names = dict.fromkeys(
        str(p.get("dataset") or p.get("source")) for p in found if p.get("dataset") or p.get("source")
    )
    splits = dict.fromkeys(str(p["split"]) for p in found if p.get("split"))
    return "/".join(filter(None, (" + ".join(names), " + ".join(splits)))) or "these rows"
