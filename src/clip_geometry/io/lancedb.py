"""LanceDB: a table, the folder X.lance, or a database, a folder of tables."""

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clip_geometry.embeddings import Reader
from clip_geometry.io.format import Sets, Sides
from clip_geometry.io.parquet import plain_columns, rows_of_lists, sides_of_table, vector_columns
from clip_geometry.io.reading import reading_with
from clip_geometry.io.sides import Stored, modality_of
from clip_geometry.io.writing import common, item_table, tables_of
from clip_geometry.registry import library, shown

TABLE, VECTOR = "embeddings", "vector"  # where LanceDB looks for vectors


def read(path: Path) -> Sides:
    """Read the latest version of a table: vector columns, item_id (or id), label, modality and plain columns."""
    path = path if path.suffix.lower() == ".lance" else next(path.glob("*.lance"))
    with reading_with(path, "LanceDB"):
        table = _table(path)
        n, plain, vectors = table.count_rows(), plain_columns(table.schema, path), {}
        for name in vector_columns(table.schema, path):
            source = f"{shown(path)}, column {shown(name)},"
            first = rows_of_lists(_read(table, [name], 0, 1).column(name), source)
            opened = functools.partial(_opened, path, table.version, name)
            vectors[name] = Stored((n, first.shape[1]), first.dtype, opened).rows(source)
        beside = _read(table, plain, 0, n) if plain else table.schema.empty_table().select([])
        return sides_of_table(vectors, beside, path, ids=True)


def _table(path: Path, version: int | None = None) -> Any:
    os.environ.setdefault("LANCEDB_LOG", "error")  # its warnings of a damaged table would stand beside our sentence
    table = library("lancedb", "lancedb", shown(path)).connect(path.parent).open_table(path.stem)
    table.checkout(table.version if version is None else version)  # what is written meanwhile has other rows
    return table


def _read(table: Any, columns: list[str], start: int, stop: int) -> Any:
    return table.search().select(columns).offset(start).limit(stop - start).to_arrow()


@contextmanager
def _opened(path: Path, version: int, name: str) -> Iterator[Reader]:
    with reading_with(path, "LanceDB"):
        table = _table(path, version)
        yield lambda start, stop: rows_of_lists(_read(table, [name], start, stop).column(name), shown(path))


def recognizes(folder: Path) -> bool:
    """Whether a folder is a table, or a database of one. Of others, the tables called after modalities are read."""
    return folder.suffix.lower() == ".lance" or [modality_of(each.stem) for each in folder.glob("*.lance")] == [None]


def write(sets: Sets, place: Path, out: Path) -> dict[str, str]:
    """Write a database with the table `embeddings` of all rows, or the table TABLE.lance that goes into one."""
    import pyarrow as pa

    lancedb = library("lancedb", "lancedb", "a LanceDB table")
    n, d, dtype = common(sets, "a LanceDB table")
    items = item_table(sets, without=[VECTOR])
    schema = items.schema.append(pa.field(VECTOR, pa.list_(pa.from_numpy_dtype(dtype), d)))
    failed: list[Exception] = []  # what reading the rows raised, which Lance makes a RuntimeError

    def batches() -> Iterator[pa.RecordBatch]:
        start = 0
        try:
            for side in sets.values():
                columns = {name: items[name].slice(start, len(side)) for name in items.column_names}
                start += len(side)
                for table in tables_of(columns, {VECTOR: side}, finite=True)[1]:
                    yield from table.cast(schema).combine_chunks().to_batches()
        except Exception as error:
            failed.append(error)
            raise

    try:
        reader = pa.RecordBatchReader.from_batches(schema, batches())
        lancedb.connect(str(place)).create_table(TABLE, data=reader)
    except Exception as error:
        raise (failed or [error])[0] from None
    written = place / f"{TABLE}.lance"
    if out.suffix == ".lance":  # the table is what is named
        for part in written.iterdir():
            part.rename(place / part.name)
        written.rmdir()
    return {out.name if out.suffix == ".lance" else written.name: f"{n} × {d} rows, {dtype}, in the column {VECTOR}"}
