"""HDF5: .h5 and .hdf5, datasets by name."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.formats.arrays import Stored, sides_of_arrays
from clip_geometry.formats.format import Format, Sides, formats, reading_with
from clip_geometry.paths import existing_file
from clip_geometry.progress import note
from clip_geometry.registry import InputError, library, listed, shown

KIND = "HDF5"


def read_hdf5(path: Path) -> Sides:
    """Read the matrices of floats as modalities by their names, and arrays beside them as ids, labels and metadata.

    Contiguous datasets are memory-mapped; chunked ones are read in blocks if they are large.
    """
    with _opened_file(path) as file, reading_with(path, KIND):
        arrays = {name: _stored(dataset, name, path) for name, dataset in _datasets(file, path, set())}
        return sides_of_arrays({name: each for name, each in arrays.items() if each is not None}, path)


@contextmanager
def _opened_file(path: Path) -> Iterator[Any]:
    h5py = library("h5py", "h5py", shown(path))
    path = existing_file(path, "a file of embeddings")
    with reading_with(path, KIND), h5py.File(path, "r") as file:
        yield file


def _datasets(group: Any, path: Path, seen: set[int], above: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the datasets in a group and below, in order, with their names.

    Links are not followed, and an object of several names is taken once: groups that contain each other would be
    visited along every path through them.
    """
    import h5py
    from h5py import h5o  # pyright: ignore[reportAttributeAccessIssue]

    if depth > 16:
        raise InputError(f"{shown(path)} has groups in groups, more than 16 deep; expected arrays by name")
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            note(f"left out of {shown(path)}: {above}{name} is a link")
            continue
        found = group[name]
        address = h5o.get_info(found.id).addr
        if address in seen:
            continue
        seen.add(address)
        if isinstance(found, h5py.Group):
            yield from _datasets(found, path, seen, f"{above}{name}/", depth + 1)
        elif isinstance(found, h5py.Dataset):
            yield f"{above}{name}", found


def _stored(dataset: Any, name: str, path: Path) -> Stored | None:
    """Return what stands for a dataset; None for types that NumPy has no plain name for.

    Raises:
        InputError: Its values are in other files, which a file from outside must not have read, or part of them has
            never been written, and HDF5 would give zeros.
    """
    import h5py

    if dataset.external or dataset.is_virtual:
        raise InputError(
            f"{shown(path)} keeps the values of {shown(name)} in other files, which are not followed: copy the file "
            "with h5repack, or write the array itself"
        )
    string = h5py.check_string_dtype(dataset.dtype)
    if dataset.shape is None or (string is None and dataset.dtype.kind not in "fiubS"):
        note(f"left out of {shown(path)}: {name}, whose type is {dataset.dtype}")
        return None
    if dataset.size and _missing(dataset):
        raise InputError(
            f"{shown(path)} has declared {name} as {listed(dataset.shape)} values and not written all of them, where "
            "HDF5 fills in zeros: copy or write it again"
        )
    mapped = None
    if dataset.chunks is None and dataset.size and dataset.id.get_offset() is not None and dataset.ndim:
        mapped = np.memmap(path, dataset.dtype, "r", dataset.id.get_offset(), dataset.shape)
        mapped = mapped if mapped.flags.aligned else None
    opened = functools.partial(_opened_dataset, path, name)
    return Stored(dataset.shape, dataset.dtype, opened, mapped)


def _missing(dataset: Any) -> bool:
    if dataset.chunks is None:
        return dataset.id.get_storage_size() == 0
    grid = np.prod([-(-size // chunk) for size, chunk in zip(dataset.shape, dataset.chunks, strict=True)])
    return dataset.id.get_num_chunks() < grid


@contextmanager
def _opened_dataset(path: Path, name: str) -> Iterator[Any]:
    import h5py

    with _opened_file(path) as file:
        dataset = file[name]
        yield dataset.asstr(errors="replace") if h5py.check_string_dtype(dataset.dtype) else dataset


formats.add(
    "hdf5",
    Format(
        title="HDF5",
        holds="datasets (n, d) of floats are modalities by their names; arrays of n values in the same group are "
        "item_id (or id), labels and metadata",
        streams="memory-mapped, or read in blocks if chunked",
        read=read_hdf5,
        suffixes=(".h5", ".hdf5"),
        package="h5py",
        limits="links, external and virtual datasets are not followed",
    ),
)
