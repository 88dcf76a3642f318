"""Reader for the datasets of HDF5 files (.h5, .hdf5). Links are not followed; values in other files are not read."""

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import FileRows, Reader
from clip_geometry.io.reading import reading_with
from clip_geometry.io.sides import Sides, sides_of_arrays
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, library, shown


def read(path: Path) -> Sides:
    """Read float matrices as modalities, by name, and the arrays beside them as ids, labels and metadata."""
    with _opened(existing_file(path, "a file of embeddings")) as file:
        objects: dict[str, Any] = {}
        file.visititems(objects.__setitem__)  # visits hard links only, each object once
        arrays = {name: item for name, item in objects.items() if getattr(item, "shape", None) is not None}
        return sides_of_arrays({name: _stored(array, name, path) for name, array in arrays.items()}, path)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    h5py = library("h5py", "h5py", shown(path))
    with reading_with(path, "HDF5"), h5py.File(path, "r") as file:
        yield file


def _stored(array: Any, name: str, path: Path) -> FileRows:
    """Return the rows of an HDF5 array; raise InputError if some of its values are not in the file."""
    chunks = array.chunks or array.shape
    expected = math.prod(-(-n // chunk) for n, chunk in zip(array.shape, chunks, strict=True) if n)
    written = array.id.get_num_chunks() if array.chunks else array.id.get_storage_size()
    if array.external or array.is_virtual or (array.size and written < expected):  # HDF5 would read zeros
        raise InputError(f"{shown(path)} does not hold all values of {shown(name)}: copy it with h5repack")
    is_text = (array.dtype.metadata or {}).get("vlen") in (str, bytes)  # other objects: references, ragged arrays
    dtype = np.dtype("V") if array.dtype.kind == "O" and not is_text else array.dtype
    return FileRows(functools.partial(_reader, path, name), array.shape, dtype)


@contextmanager
def _reader(path: Path, name: str) -> Iterator[Reader]:
    with _opened(path) as file:
        array = file[name].asstr(errors="replace") if file[name].dtype.kind == "O" else file[name]
        yield lambda start, stop: array[start:stop]
