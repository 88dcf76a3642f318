"""Sets that are too large for the memory: how their rows are read, and what stands in for a jackknife of them."""

import functools
import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from clip_geometry.embeddings import Embeddings, ShardedRows, is_large
from clip_geometry.engines import Engine
from clip_geometry.geometry import (
    Measure,
    average_cosine,
    coordinate_spread,
    inter_type_cosine,
    intra_type_cosine,
    isoscore,
    modality_gap,
    objectives,
    participation_ratio,
)
from clip_geometry.geometry.moments import moments_of_groups
from clip_geometry.geometry.rows import BLOCK, as_matrix
from clip_geometry.geometry.streamed import GaussianRows, StreamedRows, cat
from clip_geometry.geometry.uncertainty import jackknife
from clip_geometry.progress import Throughput
from clip_geometry.registry import InputError

OF_MOMENTS = (participation_ratio, isoscore, coordinate_spread, objectives.isotropy)  # functions that take Moments
# functions of Moments, means and class sums, whose passes an engine makes
AGGREGATED = (
    *OF_MOMENTS,
    average_cosine,
    modality_gap,
    inter_type_cosine,
    intra_type_cosine,
    objectives.silhouette,
    objectives.classifier,
)


def stream(sets: Mapping[str, Embeddings], note: str = "", engine: Engine | None = None) -> dict[str, StreamedRows]:
    """The rows of each set, to be read block by block; how fast, is told on stderr. engine: who makes the passes that
    are aggregations, and tells itself how fast; of sets that are not large in float64, as in memory."""
    rows = {modality: _streamed(each.vectors, modality, note, engine) for modality, each in sets.items()}
    if not is_large(*(each.vectors.shape for each in sets.values())):
        for each in rows.values():
            each.stored = torch.float64
    return rows


def _streamed(vectors: Any, modality: str, note: str, engine: Engine | None) -> StreamedRows:
    n, d = vectors.shape
    parts = vectors.parts if isinstance(vectors, ShardedRows) else [vectors]
    size = d * getattr(getattr(vectors, "dtype", None), "itemsize", 4)
    watch = Throughput(f"{modality}{note}", n, size) if engine is None else None
    found = [StreamedRows.of(part, name=modality, watch=watch) for part in parts]
    rows = found[0] if len(found) == 1 else cat(found)
    as_matrix(rows, name=modality)
    return rows if engine is None else engine.stream(rows)


def gaussian(rows: StreamedRows, seed: int, *, any_scale: bool) -> GaussianRows:
    """Isotropic noise of the same n, d and, unless no step after it asks, mean squared row length."""
    if any_scale:
        return GaussianRows(rows.shape, seed)

    def accumulate(found: float, block: torch.Tensor, along: torch.Tensor | None) -> float:
        return found + float(block.double().square().sum())

    squares = rows.aggregate(float, accumulate, operator.add, BLOCK)
    return GaussianRows(rows.shape, seed, math.sqrt(squares / (rows.shape[0] * rows.shape[1])))


def has_error(measure: Measure, fits: bool) -> bool:
    """Whether its standard error takes one pass: of a function of moments, after steps that learn nothing."""
    return measure.function in OF_MOMENTS and not fits


def error_from_moments(measure: Measure, rows: StreamedRows, block_of: np.ndarray, blocks: int) -> float | None:
    """The jackknife's standard error from the moments of each block, which one pass over the rows gives; None where
    the rows are too few without a block. block_of: of each row, −1 for those that stay; a block may have none."""
    if "moments of blocks" not in rows.known:
        present, codes = np.unique(block_of, return_inverse=True)
        found = moments_of_groups(rows, torch.from_numpy(codes), len(present))
        rows.known["moments of blocks"] = dict(zip(present.tolist(), found, strict=True))
    parts = rows.known["moments of blocks"]
    if len(parts) == 1 and -1 not in parts:
        return None
    without = ((each for number, each in parts.items() if number != block) for block in range(blocks))
    try:
        return float(jackknife([measure(functools.reduce(operator.add, rest)) for rest in without]))
    except InputError:
        return None
