"""Export of embeddings to other programs, in any format that has a writer."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clip_geometry.embeddings import Embeddings
from clip_geometry.files import claimed, new_folder
from clip_geometry.io.format import formats
from clip_geometry.io.sources import read_any
from clip_geometry.io.writing import dtype_of
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, shown, unknown
from clip_geometry.rows.streamed import StreamedRows


def export(source: Any, out: str | Path, *, to: str, normalize: bool = False) -> dict[str, str]:
    """Write embeddings for another program.

    Rows are read and written in blocks, in the type that they have where the format can hold it.

    Args:
        source: Embeddings or an array, one set or one per modality by name, or a path as for `read_any`.
        out: A new folder, or for parquet of one modality a new .parquet file.
        to: clip-retrieval: folders of .npy files whose rows are pairs. parquet: a table for each modality. datasets: a
            folder of Hugging Face datasets, pairs as rows. faiss: a flat inner-product index and a table of its rows.
            lancedb: a database with the table `embeddings`, or a table in a database (DATABASE/TABLE.lance).
        normalize: Make rows unit length first, so that their inner product is the cosine.

    Returns:
        File → what it is.

    Raises:
        InputError: `out` exists, the format cannot hold the rows, or its package is not installed. Nothing is left
            then.

    Example:
        >>> import numpy as np
        >>> import clip_geometry as cg
        >>> image = cg.Embeddings(np.eye(3, dtype="float32"), "image", item_id=["a", "b", "c"])
        >>> cg.export(image, "image.parquet", to="parquet")
        {'image.parquet': '3 rows, float32'}
    """
    writers = {name: each.write for name, each in formats().items() if each.write is not None}
    if to not in writers:
        raise unknown("format", to, writers, "clip-geometry export --help")
    if isinstance(source, str | Path):
        sets = read_any(source)
    else:
        given = source if isinstance(source, Mapping) else {getattr(source, "modality", "") or "rows": source}
        sets = {name: side if isinstance(side, Embeddings) else Embeddings(side, name) for name, side in given.items()}
    if not sum(map(len, sets.values())):
        raise InputError(f"{shown(source)} has no rows; expected at least one to export")
    if normalize:
        sets = {name: replace(side, vectors=_unit(side)) for name, side in sets.items()}
    out = expanded(out)
    is_file = to == "parquet" and out.suffix == ".parquet"
    with claimed(out) if is_file else new_folder(out) as place:
        return writers[to](sets, place, out)


def _unit(side: Embeddings) -> StreamedRows:
    """Rows of unit length, computed in float64 when they are read, of the type that they have."""

    def unit(block: Tensor, _: Any) -> Tensor:
        norms = block.double().norm(dim=1, keepdim=True)
        if not norms.all():
            raise InputError(f"{side.modality} embeddings have a row of zeros, which cannot be made unit length")
        return (block.double() / norms).to(dtype)

    dtype: torch.dtype = getattr(torch, dtype_of(side).name)
    return StreamedRows.of(side.vectors, name=f"{side.modality} rows").map(unit, side.dim, dtype=dtype)
