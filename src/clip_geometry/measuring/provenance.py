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
    names: dict[str, str | None] = {}
    for key in ("model", "dataset", "source", "split"):
        values = dict.fromkeys(str(origin[key]) for origin in origins.values() if origin.get(key) is not None)
        names[key] = " + ".join(values) or None
    options: dict[str, dict[str, Any]] = {}
    for key in ("model_options", "data_options"):
        by_modality = {modality: dict(origin.get(key) or {}) for modality, origin in origins.items()}
        first = next(iter(by_modality.values()))
        options[key] = first if all(each == first for each in by_modality.values()) else by_modality
    return {
        "model": names["model"],
        "model_options": options["model_options"],
        "dataset": names["dataset"] or names["source"],
        "data_options": options["data_options"],
        "split": names["split"],
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
    applied: dict[str, str] = {}
    for modality, origin in origins.items():
        maps = [f"{' → '.join(each['pipeline'])} fitted on {each['fitted_on']}" for each in origin.get("maps") or ()]
        if maps:
            applied[modality] = ", then ".join(maps)
    if len(applied) == len(origins) and len(set(applied.values())) == 1:
        return next(iter(applied.values()))
    return "; ".join(f"{modality} {words}" for modality, words in applied.items()) or None


def origin_of(sets: Mapping[str, Embeddings]) -> str:
    """`scenes/test`: the data set and split of the rows, where they are known."""
    data: dict[str, None] = {}
    splits: dict[str, None] = {}
    for each in sets.values():
        if name := each.provenance.get("dataset") or each.provenance.get("source"):
            data[str(name)] = None
        if split := each.provenance.get("split"):
            splits[str(split)] = None
    return "/".join(filter(None, (" + ".join(data), " + ".join(splits)))) or "these rows"
