"""Reader for LanceDB: a table (a folder X.lance) or a database with a single table."""

import os
from pathlib import Path

import pyarrow as pa

from clip_geometry.io.reading import reading_with, require_memory
from clip_geometry.io.sides import Sides, modality_of
from clip_geometry.io.tables import sides_of_table
from clip_geometry.registry import library, shown


def recognizes(folder: Path) -> bool:
    """Return whether a folder is a table or a database with a single table that is not named after a modality.

    In other folders, each table that is named after a modality is read as that modality.
    """
    return folder.suffix.lower() == ".lance" or [modality_of(table.stem) for table in folder.glob("*.lance")] == [None]


def read(path: Path) -> Sides:
    """Read the latest version of a table, like any other table."""
    path = path if path.suffix.lower() == ".lance" else next(path.glob("*.lance"))
    os.environ.setdefault("LANCEDB_LOG", "error")  # its warnings about a damaged table would appear next to our error
    lancedb = library("lancedb", "lancedb", shown(path))
    with reading_with(path, "LanceDB"):
        table = lancedb.connect(path.parent).open_table(path.stem)
        batches = []
        size = 0
        for batch in table.search().limit(table.count_rows()).to_batches():
            size += batch.nbytes
            require_memory(size, shown(path))
            batches.append(batch)
        return sides_of_table(pa.Table.from_batches(batches, table.schema), path)
