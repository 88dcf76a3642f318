"""LanceDB: a table of all rows, with the vectors in the column "vector", where LanceDB looks for them."""

from collections.abc import Iterator
from pathlib import Path

from clip_geometry.formats.writers.base import Sets, common, item_table, record_batches, writers
from clip_geometry.registry import library

TABLE, VECTOR = "embeddings", "vector"


def write(sets: Sets, place: Path, out: Path) -> dict[str, str]:
    """Write a database with the table `embeddings`, or the table TABLE.lance that goes into one."""
    import pyarrow as pa

    lancedb = library("lancedb", "lancedb", "a LanceDB table")
    n, d, dtype = common(sets, "a LanceDB table")
    table = item_table(sets, without=[VECTOR])
    schema = table.schema.append(pa.field(VECTOR, pa.list_(pa.from_numpy_dtype(dtype), d)))
    failed: list[Exception] = []  # what reading the rows raised, which Lance makes a RuntimeError

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from record_batches(sets, table, schema, dtype)
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


writers.add("lancedb", write)
