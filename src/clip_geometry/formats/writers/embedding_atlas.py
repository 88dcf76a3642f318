"""embedding-atlas: a .parquet file with the vectors in the column "embedding", and perhaps the map that it would draw.

It computes a map itself for `--vector embedding`; projection_x, projection_y and neighbors spare it that.
https://apple.github.io/embedding-atlas/tool.html
"""

import shlex
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from clip_geometry.files import writing
from clip_geometry.formats.tables import VECTORS
from clip_geometry.formats.writers.base import (
    Options,
    Sets,
    Writer,
    blocks,
    common,
    item_table,
    record_batches,
    writers,
)
from clip_geometry.planes import UMAP_ROWS, principal_plane, umap_plane
from clip_geometry.progress import note
from clip_geometry.reading import require_memory
from clip_geometry.registry import InputError, shown

X, Y, NEIGHBORS = "projection_x", "projection_y", "neighbors"


class AtlasOptions(Options):
    """Columns that embedding-atlas would compute.

    projection: pca, or umap by the cosine with seed 0. neighbors: number of nearest rows by the cosine, without the row
    itself; null for none.
    """

    projection: Literal["pca", "umap"] | None = None
    neighbors: int | None = Field(default=None, ge=1, le=1000)


class EmbeddingAtlas(Writer):
    """Write one table of all modalities; float16 becomes float32, exactly, since DuckDB has no float16."""

    summary = "a table for embedding-atlas"
    options = AtlasOptions

    def is_file(self, out: Path) -> bool:
        return True

    def write(self, sets: Sets, place: Path, out: Path, options: Any) -> dict[str, str]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if out.suffix != ".parquet":
            raise InputError(f"{shown(out)} is no .parquet file, which embedding-atlas reads; give one")
        n, d, given = common(sets, "a table of embedding-atlas")
        dtype = np.result_type(given, np.float32)
        if given != dtype:
            note("embedding-atlas cannot read float16: rows are written in float32, exactly")
        table, says = item_table(sets, without=[VECTORS, X, Y, NEIGHBORS]), ["--vector", VECTORS]
        if options.projection is not None:
            if options.projection == "pca":
                plane = principal_plane([side.vectors for side in sets.values()]).points
            else:
                if n > UMAP_ROWS:
                    note(f"UMAP is fitted on {UMAP_ROWS:,} of {n:,} rows; the others are placed by their nearest rows")
                plane = umap_plane(_rows(sets, n, d))
            table = table.append_column(X, pa.array(plane[:, 0])).append_column(Y, pa.array(plane[:, 1]))
            says = ["--x", X, "--y", Y]
        if options.neighbors is not None:
            table = table.append_column(NEIGHBORS, _neighbors(_rows(sets, n, d), options.neighbors))
            says += ["--neighbors", NEIGHBORS]
        schema = table.schema.append(pa.field(VECTORS, pa.list_(pa.from_numpy_dtype(dtype), d)))
        plain = [name for name in table.column_names if name != NEIGHBORS]
        with writing(place) as file, pq.ParquetWriter(file, schema, use_dictionary=plain) as writer:  # pyright: ignore
            for batch in record_batches(sets, table, schema, dtype):
                writer.write_batch(batch)
        return {out.name: f"{n} rows, {dtype}: embedding-atlas {shlex.join([str(out), *says])}"}


def _rows(sets: Sets, n: int, d: int) -> np.ndarray:
    """All rows, in memory."""
    require_memory(n * d * 8, "the map of these rows")
    return np.concatenate([block.astype(np.float32, copy=False) for side in sets.values() for block in blocks(side)])


def _neighbors(rows: np.ndarray, k: int) -> Any:
    """{"ids": …, "distances": …} of each row, as embedding-atlas writes them itself."""
    import pyarrow as pa
    from sklearn.neighbors import NearestNeighbors

    if len(rows) < 2:
        raise InputError("there is 1 row; neighbors need at least 2")
    k = min(k, len(rows) - 1)
    found = NearestNeighbors(n_neighbors=k, metric="cosine", algorithm="brute").fit(rows).kneighbors()
    starts = k * np.arange(len(rows) + 1, dtype=np.int32)
    distances, ids = (pa.ListArray.from_arrays(starts, pa.array(each.reshape(-1))) for each in found)
    return pa.StructArray.from_arrays([ids, distances], ["ids", "distances"])


writers.add("embedding-atlas", EmbeddingAtlas())
