"""Export of embeddings to other programs, and helpers for its writers: rows in blocks and columns of a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from clip_geometry.embeddings import Embeddings
from clip_geometry.files import claimed, new_folder
from clip_geometry.io.sources import Sets, call, formats, read
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, shown, unknown
from clip_geometry.rows.arguments import flag
from clip_geometry.rows.matrix import unit_rows
from clip_geometry.rows.streamed import StreamedRows

if TYPE_CHECKING:
    import pyarrow as pa

GROUP = 2**14  # rows per written block


def export(source: Any, out: str | Path, *, to: str, normalize: bool = False) -> dict[str, str]:
    """Write embeddings as Parquet or FAISS files for another program.

    Rows are read and written in blocks, and keep their number type if the format supports it.

    Args:
        source: Embeddings or an array, a mapping of modality to these, or a path as for `read`.
        out: A new folder, or, for the parquet format and a single modality, a new .parquet file.
        to: "parquet" writes a table for each modality; "faiss" writes a flat inner-product index and a table of its
            rows.
        normalize: Scale rows to unit length first, so that their inner product is the cosine.

    Returns:
        File name → description of the file.

    Raises:
        InputError: `out` exists, the format cannot hold the rows, or its package is not installed. No files are left
            behind in that case.

    Example:
        >>> import numpy as np
        >>> import clip_geometry as cg
        >>> image = cg.Embeddings(np.eye(3, dtype="float32"), "image", item_id=["a", "b", "c"])
        >>> cg.export(image, "image.parquet", to="parquet")
        {'image.parquet': '3 rows, float32'}
    """
    writers = {name: entry["write"] for name, entry in formats().items() if "write" in entry}
    flag(normalize, "normalize")
    if not isinstance(to, str) or to not in writers:
        raise unknown("format", to, writers, "clip-geometry export --help")
    if isinstance(source, str | Path):
        sets = read(source)
    else:
        sources = source if isinstance(source, Mapping) else {getattr(source, "modality", "") or "rows": source}
        sets = {
            name: rows if isinstance(rows, Embeddings) else Embeddings(rows, name) for name, rows in sources.items()
        }
    if not sum(map(len, sets.values())):
        raise InputError(f"{shown(source)} has no rows; expected at least one to export")
    if normalize:
        sets = {name: replace(side, vectors=_unit(side)) for name, side in sets.items()}
    out = expanded(out)
    is_file = to == "parquet" and out.suffix == ".parquet"
    with claimed(out) if is_file else new_folder(out) as place:
        return call(writers[to], sets, place, out)


def _unit(side: Embeddings) -> StreamedRows:
    """Scale rows to unit length, in float64 when they are read, and keep their type."""
    dtype: torch.dtype = getattr(torch, dtype_of(side).name)
    rows = unit_rows(StreamedRows.of(side.vectors, name=f"the {side.modality} set"))
    return rows.map(lambda block, _: block.to(dtype), side.dim, dtype=dtype)


# --- rows


def dtype_of(side: Embeddings) -> np.dtype:
    return np.dtype(str(side.vectors.dtype).removeprefix("torch."))  # StreamedRows have a torch dtype


def blocks(side: Embeddings, *, finite: bool = True) -> Iterator[np.ndarray]:
    """Yield the rows in blocks.

    Args:
        side: The embeddings.
        finite: Raise InputError for NaN and infinity, which no index can rank.
    """
    for start in range(0, max(len(side), 1), GROUP):
        block = np.ascontiguousarray(side.vectors[start : start + GROUP])
        if finite and not np.isfinite(block).all():
            row = start + int(np.argmin(np.isfinite(block).all(axis=1)))
            raise InputError(
                f"{side.modality} rows have NaN or infinity in row {row}; remove or repair such rows first"
            )
        yield block


# --- tables


def columns_beside(side: Embeddings) -> "dict[str, pa.Array]":
    """Return the columns that describe the rows: item_id, label and metadata. Columns of mixed types become text."""
    import pyarrow as pa

    fields = {"item_id": side.item_id, "label": side.labels}
    fields = {name: column for name, column in fields.items() if column is not None}
    columns = {}
    # the fields come first and take precedence over columns of the same name
    for name, values in {**fields, **side.metadata, **fields}.items():
        try:
            columns[name] = pa.array(values if values.ndim == 1 else list(values))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            columns[name] = _texts(values.tolist())
    return columns


def _texts(values: Sequence[Any]) -> "pa.Array":
    import pyarrow as pa

    return pa.array([None if value is None else str(value) for value in values], pa.string())


def item_table(sets: Sets) -> "pa.Table":
    """Return a table that describes the rows of all sets, set by set: modality, item_id, label and metadata.

    A column whose types differ between sets becomes text. If no set has ids, the table has the column row instead of
    item_id, with the row number within the set, because equal ids would mean that rows belong together. If only some
    sets have ids, the ids of the others are MODALITY/ROW.
    """
    import pyarrow as pa

    has_ids = any(side.item_id is not None for side in sets.values())
    columns_of_sets = []
    for name, side in sets.items():
        numbers = np.arange(len(side))
        default = {"item_id": pa.array(f"{name}/{k}" for k in numbers)} if has_ids else {"row": pa.array(numbers)}
        columns_of_sets.append({**default, **columns_beside(side), "modality": pa.array([name] * len(side))})
    names = dict.fromkeys(name for columns in columns_of_sets for name in ("modality", *columns))
    merged = {}
    for name in names:
        chunks = [
            columns.get(name, pa.nulls(len(side))) for columns, side in zip(columns_of_sets, sets.values(), strict=True)
        ]
        tables = [pa.table([chunk], [name]) for chunk in chunks]
        try:
            merged[name] = pa.concat_tables(tables, promote_options="permissive").column(0)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            merged[name] = pa.chunked_array([_texts(chunk.to_pylist()) for chunk in chunks])
    return pa.table(merged).combine_chunks()
