"""Sets that are too large for the memory: how their rows are read, and what stands in for a jackknife of them."""

import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from clip_geometry.embedding.engines import Engine
from clip_geometry.embeddings import Embeddings, ShardedRows, is_large
from clip_geometry.geometry import Measure
from clip_geometry.geometry._core.left_out import moments_without_each
from clip_geometry.geometry._core.moments import moments_of_groups
from clip_geometry.geometry._core.rows import BLOCK, as_matrix
from clip_geometry.geometry._core.streamed import GaussianRows, StreamedRows, cat
from clip_geometry.geometry.uncertainty import jackknife
from clip_geometry.progress import PassProgress
from clip_geometry.registry import InputError

MOST_MOMENTS = 2**29  # bytes of the moments of all blocks of a jackknife


def stream(sets: Mapping[str, Embeddings], note: str = "", engine: Engine | None = None) -> dict[str, StreamedRows]:
    """The rows of each set, read in blocks; throughput is logged to stderr.

    engine: runs the passes that are aggregations, and logs their throughput itself. Sets that are small in float64 give
    the numbers that they would give in memory.
    """
    rows: dict[str, StreamedRows] = {}
    for modality, each in sets.items():
        vectors: Any = each.vectors
        size = vectors.shape[1] * getattr(getattr(vectors, "dtype", None), "itemsize", 4)
        watch = PassProgress(f"{modality}{note}", len(vectors), size) if engine is None else None
        parts = vectors.parts if isinstance(vectors, ShardedRows) else [vectors]
        found = [StreamedRows.of(part, name=modality, watch=watch) for part in parts]
        whole = found[0] if len(found) == 1 else cat(found)
        as_matrix(whole, name=modality)
        rows[modality] = whole if engine is None else engine.stream(whole)
    if not is_large(*(each.vectors.shape for each in sets.values())):
        for each in rows.values():
            each.stored = torch.float64
    return rows


def gaussian(rows: StreamedRows, seed: int, *, any_scale: bool) -> GaussianRows:
    """Isotropic noise of the same n, d and, unless no step after it asks, mean squared row length."""
    if any_scale:
        return GaussianRows(rows.shape, seed)

    def accumulate(found: float, block: torch.Tensor, along: torch.Tensor | None) -> float:
        return found + float(block.double().square().sum())

    squares = rows.aggregate(float, accumulate, operator.add, BLOCK)
    return GaussianRows(rows.shape, seed, math.sqrt(squares / (rows.shape[0] * rows.shape[1])))


def error_from_moments(measure: Measure, rows: StreamedRows, block_of: np.ndarray, blocks: int) -> float | None:
    """The jackknife's standard error from the moments of each block, which one pass over the rows gives; None where
    the rows are too few without a block, and where the moments of all blocks would fill the memory that streaming
    saves. block_of: of each row, −1 for those that stay; a block may have none."""
    if 8 * (blocks + 1) * rows.shape[1] ** 2 > MOST_MOMENTS:
        return None
    if "moments of blocks" not in rows.known:
        present = [block for block in range(-1, blocks) if (block_of == block).any()]
        code_of = np.zeros(blocks + 1, np.int32)
        code_of[present] = np.arange(len(present))  # −1 is the last
        found = moments_of_groups(rows, torch.from_numpy(code_of[block_of]), len(present))
        rows.known["moments of blocks"] = dict(zip(present, found, strict=True))
    parts = rows.known["moments of blocks"]
    if len(parts) == 1 and -1 not in parts:
        return None
    try:
        return jackknife(measure(rest) for rest in moments_without_each(parts, blocks))
    except InputError:
        return None
