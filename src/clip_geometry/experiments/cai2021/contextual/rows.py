"""From the rows of one layer to result rows: cosines, clusters, cosines within clusters."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clip_geometry.experiments.cai2021.contextual.clusters import Clusters, find_clusters
from clip_geometry.experiments.cai2021.contextual.config import ContextualConfig
from clip_geometry.geometry import average_cosine, inter_type_cosine, intra_type_cosine, isoscore
from clip_geometry.geometry.adjusted_cosine import adjusted_type_cosines
from clip_geometry.geometry.type_cosine import skipped_types
from clip_geometry.registry import InputError
from clip_geometry.results import Row

NO_TYPES = "the words of these rows are not known"


def layer_rows(x: np.ndarray, types: list[str] | None, sample: np.ndarray, config: ContextualConfig) -> Iterator[Row]:
    """All but the dimensions of the (n, d) rows of a layer, without what they have in common."""
    size = {"n": len(x), "d": x.shape[1]}
    yield from ({**size, **each} for each in _cosine_rows(torch.from_numpy(x), types))
    yield from ({**size, **each} for each in _cluster_rows(x, sample, types, config))


def size_rows(n: int, d: int) -> Iterator[Row]:
    """As Table 3 prints them."""
    yield row("contextual.million_rows", n / 1e6)
    yield row("contextual.columns", d)


def row(measure: str, value: float | None, **rest: Any) -> Row:
    note = {} if rest.get("note") is None else {"note": rest["note"]}
    return {"measure": measure, "value": value, "standard_error": None, **rest, "at": rest.get("at", {})} | note


def tried(measure: str, compute: Callable[[], Tensor], **rest: Any) -> Row:
    """The row, or one without a value that says why."""
    try:
        return row(measure, float(compute()), **rest)
    except InputError as error:
        return row(measure, None, **rest | {"null_value": None, "note": str(error)})


# --- cosines


def _cosine_rows(x: Tensor, types: list[str] | None) -> Iterator[Row]:
    yield tried("average_cosine", partial(average_cosine, x), null_value=0.0)
    yield tried("isoscore", partial(isoscore, x))
    if types is None:
        yield from (row(f"{kind}_type_cosine", None, note=NO_TYPES) for kind in ("inter", "intra"))
        return
    yield tried("inter_type_cosine", partial(inter_type_cosine, x, types), null_value=0.0)
    skipped = skipped_types(x, types)
    yield tried("intra_type_cosine", partial(intra_type_cosine, x, types), null_value=0.0, note=skipped)


# --- clusters


def _cluster_rows(
    x: np.ndarray, sample: np.ndarray, types: list[str] | None, config: ContextualConfig
) -> Iterator[Row]:
    try:
        found = find_clusters(x, sample, config)
    except InputError as error:
        yield row("contextual.clusters", None, note=str(error))
        return
    yield row("contextual.clusters", found.k, note=_told(found, config), sizes=np.bincount(found.labels).tolist())
    values = {str(k): value for k, value in found.silhouettes.items()}
    at = {"clusters": found.best}
    yield row("contextual.silhouette", found.silhouettes[found.best], at=at, n=found.sample, tried=values)
    yield from _adjusted_rows(x, found, types)


def _told(found: Clusters, config: ContextualConfig) -> str:
    best = f"best silhouette {found.silhouettes[found.best]:.3f} at k = {found.best}, of {found.sample} rows"
    if found.k == 1:
        return f"{best}, below {config.least_silhouette:g}: one cluster"
    return f"{best}; {found.method}"


def _adjusted_rows(x: np.ndarray, found: Clusters, types: list[str] | None) -> Iterator[Row]:
    """`weighted_by_rows`: the mean over clusters weighted by their rows, beside the paper's, which counts each once."""
    names = {kind: f"contextual.adjusted_{kind}" for kind in ("inter", "intra")}
    at = {"clusters": found.k}
    if types is None:
        yield from (row(name, None, at=at, note=NO_TYPES) for name in names.values())
        return
    adjusted = adjusted_type_cosines(torch.from_numpy(x), types, found.labels)
    left_out = f"{adjusted.left_out} rows that are their cluster's mean left out" if adjusted.left_out else None
    for kind, name in names.items():
        told = tried(name, partial(adjusted.mean, kind), at=at, null_value=0.0, note=left_out)
        if told["value"] is not None:
            told |= {"weighted_by_rows": float(adjusted.mean(kind, weighted=True))}
        yield told
