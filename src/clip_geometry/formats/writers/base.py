"""The registry of writers, the function that calls them, and what they share: rows in blocks, columns of a table."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from clip_geometry.config import Config, validate
from clip_geometry.embeddings import Embeddings
from clip_geometry.files import claimed, new_folder
from clip_geometry.formats.tables import arrow_column
from clip_geometry.formats.vectors import GROUP
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, Registry, listed, shown

if TYPE_CHECKING:
    import pyarrow as pa

Sets = Mapping[str, Embeddings]


class Options(Config):
    """What a writer can be asked for; most have no options."""


class Writer:
    """Base of the writers; a subclass implements `write`.

    Attributes:
        summary: What it writes, in a line.
        options: Its options.
    """

    summary: str = ""
    options: ClassVar[type[Options]] = Options

    def is_file(self, out: Path) -> bool:
        """Whether `out` is a file; otherwise it is a folder."""
        return False

    @abstractmethod
    def write(self, sets: Sets, place: Path, out: Path, options: Any) -> dict[str, str]:
        """Write into the folder `place`, or the file, and return file → what it is. `out` is what it is called then."""


NAMES = (
    "clip-retrieval",
    "parquet",
    "embedding-atlas",
    "datasets",
    "faiss",
    "lancedb",
)
writers: Registry[Writer] = Registry(
    "format",
    "clip-geometry export --help",
    {name: f"clip_geometry.formats.writers.{name.replace('-', '_')}" for name in NAMES},
)


def export(source: Any, out: str | Path, *, to: str, normalize: bool = False, **options: Any) -> dict[str, str]:
    """Write embeddings for another program.

    Rows are read and written in blocks, in the type that they have where the format can hold it.

    Args:
        source: Embeddings or an array, one set or one per modality by name, or a path as for `read_any`.
        out: A new folder, or for embedding-atlas and parquet of one modality a new .parquet file.
        to: clip-retrieval: folders of .npy files whose rows are pairs. parquet: a table for each modality.
            embedding-atlas: one table. datasets: a folder of Hugging Face datasets, pairs as rows. faiss: a flat
            inner-product index and a table of its rows. lancedb: a database with the table `embeddings`, or a table in
            a database (DATABASE/TABLE.lance).
        normalize: Make rows unit length first, so that their inner product is the cosine.
        **options: For embedding-atlas: `projection`, pca or umap, adds coordinates of the plane; `neighbors`, a number,
            adds the nearest rows of each by the cosine. Both need the rows in memory, except for pca.

    Returns:
        File → what it is.

    Raises:
        InputError: `out` exists, the format cannot hold the rows, or its package is not installed. Nothing is left
            then.

    Example:
        >>> import numpy as np
        >>> import clip_geometry as cg
        >>> image = cg.Embeddings(np.eye(3, dtype="float32"), "image", item_id=["a", "b", "c"])
        >>> cg.export(image, "image.parquet", to="embedding-atlas")
        {'image.parquet': '3 rows, float32: embedding-atlas image.parquet --vector embedding'}
    """
    writer, out = writers[to], expanded(out)
    asked = validate(writer.options, options, f"export to {to}")
    sets = _sets(source)
    if not sum(map(len, sets.values())):
        raise InputError(f"{shown(source)} has no rows; expected at least one to export")
    if normalize:
        sets = {name: replace(side, vectors=_unit(side)) for name, side in sets.items()}
    target: AbstractContextManager[Path] = claimed(out) if writer.is_file(out) else new_folder(out)
    with target as place:
        return writer.write(sets, place, out, asked)


def _sets(source: Any) -> Sets:
    from clip_geometry.formats import read_any

    if isinstance(source, str | Path):
        return read_any(source)
    given = source if isinstance(source, Mapping) else {getattr(source, "modality", "") or "rows": source}
    return {name: side if isinstance(side, Embeddings) else Embeddings(side, name) for name, side in given.items()}


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


def dtype_of(side: Embeddings) -> np.dtype:
    return np.dtype(str(side.vectors.dtype).removeprefix("torch."))  # StreamedRows have torch's


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


def columns(side: Embeddings) -> "dict[str, pa.Array]":
    """What is known of the rows: item_id, label and the metadata."""
    own = {"item_id": side.item_id, "label": side.labels}
    found = {**side.metadata, **{name: column for name, column in own.items() if column is not None}}
    return {name: arrow_column(column) for name, column in found.items()}


def vectors_of(block: np.ndarray) -> "pa.Array":
    """Rows as a column of lists."""
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(block).reshape(-1)), block.shape[1])


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
        own = {"item_id": pa.array(f"{name}/{k}" for k in range(len(side)))} if identified else {}
        rows = {} if identified else {"row": pa.array(range(len(side)))}
        parts.append({**own, **rows, **columns(side), "modality": pa.array([name] * len(side))})
    names = dict.fromkeys(name for part in parts for name in ("modality", *part) if name not in without)
    names = {name: _type([part[name].type for part in parts if name in part]) for name in names}
    tables = []
    for part, side in zip(parts, sets.values(), strict=True):
        arrays = {
            name: _cast(part[name], kind) if name in part else pa.nulls(len(side), kind) for name, kind in names.items()
        }
        tables.append(pa.table(arrays))
    return pa.concat_tables(tables).combine_chunks()


def _type(types: "list[pa.DataType]") -> "pa.DataType":
    import pyarrow as pa

    fields = [pa.schema([pa.field("", each)]) for each in types]
    try:
        return pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.string()


def _cast(column: "pa.Array", kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa

    if kind == pa.string() and column.type != kind:
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], kind)
    return column.cast(kind)


def record_batches(sets: Sets, table: "pa.Table", schema: "pa.Schema", dtype: np.dtype) -> "Iterator[pa.RecordBatch]":
    """The rows of `item_table` with their vectors, which are the last column of the schema."""
    import pyarrow as pa

    start = 0
    for side in sets.values():
        for block in blocks(side):
            part = table.slice(start, len(block)).combine_chunks()
            beside = [column.chunk(0) for column in part.columns]
            yield pa.record_batch([*beside, vectors_of(block.astype(dtype, copy=False))], schema=schema)
            start += len(block)
