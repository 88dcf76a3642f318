"""The registry of writers, the function that calls them, and what they share: rows in blocks, columns of a table."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from clip_geometry.embeddings import Embeddings, chosen_rows, pair
from clip_geometry.files import claimed, new_folder
from clip_geometry.formats import read_any
from clip_geometry.formats.tables import columns_beside, texts_of, vectors_of
from clip_geometry.formats.vectors import GROUP, dtype_of
from clip_geometry.paths import expanded
from clip_geometry.progress import note
from clip_geometry.registry import InputError, Registry, listed, shown
from clip_geometry.rows.streamed import StreamedRows

if TYPE_CHECKING:
    import pyarrow as pa

Sets = Mapping[str, Embeddings]
# (sets, place, out) → file → what it is: writes into the new folder `place`, which is called `out` when all is written
Writer = Callable[[Sets, Path, Path], dict[str, str]]

NAMES = (
    "clip-retrieval",
    "parquet",
    "datasets",
    "faiss",
    "lancedb",
)
writers: Registry[Writer] = Registry(
    "format",
    "clip-geometry export --help",
    {name: f"clip_geometry.formats.writers.{name.replace('-', '_')}" for name in NAMES},
)


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
    write, out = writers[to], expanded(out)
    if isinstance(source, str | Path):
        sets = read_any(source)
    else:
        given = source if isinstance(source, Mapping) else {getattr(source, "modality", "") or "rows": source}
        sets = {name: side if isinstance(side, Embeddings) else Embeddings(side, name) for name, side in given.items()}
    if not sum(map(len, sets.values())):
        raise InputError(f"{shown(source)} has no rows; expected at least one to export")
    if normalize:
        sets = {name: replace(side, vectors=_unit(side)) for name, side in sets.items()}
    is_file = to == "parquet" and out.suffix == ".parquet"
    with claimed(out) if is_file else new_folder(out) as place:
        return write(sets, place, out)


def _unit(side: Embeddings) -> StreamedRows:
    """Rows of unit length, computed in float64 when they are read, of the type that they have."""

    def unit(block: Tensor, _: Any) -> Tensor:
        norms = block.double().norm(dim=1, keepdim=True)
        if not norms.all():
            raise InputError(f"{side.modality} embeddings have a row of zeros, which cannot be made unit length")
        return (block.double() / norms).to(dtype)

    dtype: torch.dtype = getattr(torch, dtype_of(side).name)
    return StreamedRows.of(side.vectors, name=f"{side.modality} rows").map(unit, side.dim, dtype=dtype)


# --- what writers share


def blocks(side: Embeddings) -> Iterator[np.ndarray]:
    """The rows, some at a time; raise InputError for NaN and infinity, which no index can rank."""
    for start in range(0, len(side), GROUP):
        block = np.ascontiguousarray(side.vectors[start : start + GROUP])
        if not np.isfinite(block).all():
            row = start + int(np.argmin(np.isfinite(block).all(axis=1)))
            raise InputError(
                f"{side.modality} rows have NaN or infinity in row {row}; remove or repair such rows first"
            )
        yield block


def aligned(sets: Sets) -> dict[str, Embeddings]:
    """Return the sets with row k of each belonging together: the pairs of the first with the second, and so on.

    Reads no rows. How many are left out, since they have no pair, is noted.
    """
    (name, first), *others = sets.items()
    found = {name: first}
    for other, each in others:
        i, j = pair(found[name], each)
        for mine, theirs, rows, side in ((name, other, i, found[name]), (other, name, j, each)):
            if lone := len(side) - len(np.unique(rows)):
                note(f"{lone} of {len(side)} {mine} rows have no {theirs} row and are left out")
        found = {before: rows.take(i, vectors=chosen_rows(rows.vectors, i)) for before, rows in found.items()}
        found[other] = each.take(j, vectors=chosen_rows(each.vectors, j))
    return found


def common(sets: Sets, format_name: str) -> tuple[int, int, np.dtype]:
    """Rows, columns and type of one matrix of all sets; raise InputError where they have different columns."""
    widths = {name: side.dim for name, side in sets.items()}
    if len(set(widths.values())) > 1:
        given = listed(f"{name} {d}" for name, d in widths.items())
        raise InputError(
            f"the modalities have different numbers of columns ({given}), and {format_name} holds one matrix; export "
            "them one by one"
        )
    dtype = np.result_type(*(dtype_of(side) for side in sets.values()))
    return sum(map(len, sets.values())), next(iter(widths.values())), dtype


def item_table(sets: Sets, without: Sequence[str] = ()) -> "pa.Table":
    """The rows of all sets, one set after the other: modality, item_id, label and metadata, except for columns of these
    names. A column whose types do not agree becomes text.

    Where no set has ids there is the column row instead, the number within its set, since equal ids would say that rows
    belong together; where some have, MODALITY/ROW is the id in the others.
    """
    import pyarrow as pa

    identified = any(side.item_id is not None for side in sets.values())
    parts = []
    for name, side in sets.items():
        numbers = np.arange(len(side))
        own = {"item_id": pa.array(f"{name}/{k}" for k in numbers)} if identified else {"row": pa.array(numbers)}
        parts.append({**own, **columns_beside(side), "modality": pa.array([name] * len(side))})
    names = dict.fromkeys(name for part in parts for name in ("modality", *part) if name not in without)
    lengths = [len(side) for side in sets.values()]
    columns = {
        name: _joined([part.get(name, pa.nulls(n)) for part, n in zip(parts, lengths, strict=True)]) for name in names
    }
    return pa.table(columns).combine_chunks()


def _joined(parts: "list[pa.Array]") -> "pa.ChunkedArray":
    import pyarrow as pa

    tables = [pa.table([part], [""]) for part in parts]
    try:
        return pa.concat_tables(tables, promote_options="permissive").column(0)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.chunked_array([texts_of(part.to_pylist()) for part in parts])


def record_batches(sets: Sets, table: "pa.Table", schema: "pa.Schema", dtype: np.dtype) -> "Iterator[pa.RecordBatch]":
    """The rows of `item_table` with their vectors, which are the last column of the schema."""
    import pyarrow as pa

    start = 0
    for side in sets.values():
        for block in blocks(side):
            beside = [column.combine_chunks() for column in table.slice(start, len(block)).columns]
            yield pa.record_batch([*beside, vectors_of(block.astype(dtype, copy=False))], schema=schema)
            start += len(block)
