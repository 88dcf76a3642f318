"""How the rows of large sets are read, and noise of their size."""

import math
import operator
from collections.abc import Mapping
from typing import Any

import torch

from clip_geometry.embedding.engines import Engine
from clip_geometry.embeddings import Embeddings, is_large
from clip_geometry.progress import PassProgress
from clip_geometry.rows.matrix import BLOCK, as_matrix
from clip_geometry.rows.streamed import StreamedRows, gaussian_rows


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
        whole = StreamedRows.of(vectors, name=modality, watch=watch)
        as_matrix(whole, name=modality)
        rows[modality] = whole if engine is None else engine.stream(whole)
    if not is_large(*(each.vectors.shape for each in sets.values())):
        for each in rows.values():
            each.stored = torch.float64
    return rows


def gaussian(rows: StreamedRows, seed: int, *, any_scale: bool) -> StreamedRows:
    """Isotropic noise of the same n, d and, unless no step after it asks, mean squared row length."""
    if any_scale:
        return gaussian_rows(rows.shape, seed)

    def accumulate(found: float, block: torch.Tensor, along: torch.Tensor | None) -> float:
        return found + float(block.double().square().sum())

    squares = rows.aggregate(float, accumulate, operator.add, BLOCK)
    return gaussian_rows(rows.shape, seed, math.sqrt(squares / (rows.shape[0] * rows.shape[1])))
