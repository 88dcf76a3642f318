""".npy and .npz. Pickled objects are never loaded."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from clip_geometry.embeddings import Embeddings
from clip_geometry.formats.vectors import UNNAMED, check_vectors, damaged, from_arrays
from clip_geometry.registry import InputError

MAGIC = b"\x93NUMPY"
ERRORS = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)


def load_npy(path: Path, *, mmap: bool = True) -> np.ndarray:
    """The array of a .npy file, memory-mapped; every problem one sentence."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise InputError(f"{path} is no .npy file, it does not begin with {MAGIC!r}: write it with numpy.save")
    try:
        return np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)
    except ERRORS as error:
        raise _problem(path, ".npy", error) from None


def read_npy(path: Path) -> dict[str, Embeddings]:
    """One array, which says nothing of its modality."""
    vectors = check_vectors(load_npy(path), str(path))
    return {UNNAMED: Embeddings(vectors, UNNAMED, provenance={"source": str(path), "dtype": str(vectors.dtype)})}


def read_npz(path: Path) -> dict[str, Embeddings]:
    """The arrays "image" and "text" (`vectors.NAMES`), or a single one of any name; and "labels"."""
    if not zipfile.is_zipfile(path):
        raise damaged(path, ".npz", ValueError("it is no zip archive"))
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except ERRORS as error:
        raise _problem(path, ".npz", error) from None
    return from_arrays(arrays, path, {})


def _problem(path: Path, kind: str, error: Exception) -> InputError:
    if isinstance(error, ValueError) and ("Object arrays" in str(error) or "Python objects" in str(error)):
        return InputError(
            f"{path} holds pickled Python objects, which are not loaded because they can run code: "
            "save a plain array of numbers"
        )
    return damaged(path, kind, error)
