"""AnnData: .h5ad, an HDF5 file with the matrix X and the table obs of its rows."""

from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.formats.format import Format, Sides, formats, reading_with
from clip_geometry.formats.hdf5 import opened_file, stored
from clip_geometry.formats.tables import Facts, sides_of_columns
from clip_geometry.formats.vectors import UNNAMED
from clip_geometry.reading import require_memory
from clip_geometry.registry import InputError, listed, shown


def read_h5ad(path: Path) -> Sides:
    """Read the matrix X of an AnnData file, or the only one of obsm, with the columns of obs; its index is item_id."""
    with opened_file(path) as file, reading_with(path, ".h5ad"):
        matrices = {"X": file["X"]} if "X" in file else {f"obsm/{name}": x for name, x in file["obsm"].items()}
        dense = {name: x for name, x in matrices.items() if hasattr(x, "dtype") and x.ndim == 2}
        if len(dense) != 1:
            raise InputError(f"{shown(path)} has {listed(matrices)}; expected rows in X, or one dense matrix in obsm")
        ((name, x),) = dense.items()
        matrix = stored(x, name, path)
        if matrix is None:
            raise InputError(f"{shown(path)}, matrix {name}, holds {x.dtype} values; embeddings are floats")
        vectors, obs = matrix.rows(f"{shown(path)}, matrix {name},"), file["obs"]
        index = obs.attrs["_index"]
        columns = {column: _of_obs(obs[column], path) for column in (*obs.attrs["column-order"], index)}
        own = columns.pop(index)
        return sides_of_columns({UNNAMED: vectors}, {"item_id": own, **columns}, Facts(), path)


def _of_obs(column: Any, path: Path) -> np.ndarray:
    """Return a column of obs, whose categories are codes and what they stand for, −1 for none."""
    grouped = hasattr(column, "keys")
    if grouped and "categories" in column:
        values = np.array([*_of_obs(column["categories"], path), None], dtype=object)
        return values[column["codes"][:]]
    held = column["values"] if grouped else column  # a nullable column has a mask beside
    require_memory(held.size * held.dtype.itemsize, f"{shown(path)}, a column of obs,")
    values = held[:]
    return np.array([each.decode() for each in values], dtype=object) if values.dtype.kind in "SO" else values


formats.add(
    "h5ad",
    Format(
        title="AnnData",
        holds="X, or the only matrix of obsm; the index of obs is item_id, its columns are labels and metadata",
        streams="memory-mapped, or read in blocks if chunked",
        read=read_h5ad,
        suffixes=(".h5ad",),
        extra="hdf5",
        limits="no sparse matrices",
    ),
)
