""".npy and .npz. Pickled objects are never loaded."""

from pathlib import Path

from clip_geometry.embeddings import Embeddings
from clip_geometry.formats.vectors import UNNAMED, check_vectors, from_arrays
from clip_geometry.reading import read_npy as load_npy
from clip_geometry.reading import read_npz as load_npz
from clip_geometry.registry import shown


def read_npy(path: Path) -> dict[str, Embeddings]:
    """One array, which says nothing of its modality."""
    vectors = check_vectors(load_npy(path), shown(path))
    return {UNNAMED: Embeddings(vectors, UNNAMED, provenance={"source": str(path), "dtype": str(vectors.dtype)})}


def read_npz(path: Path) -> dict[str, Embeddings]:
    """The arrays "image" and "text" (`vectors.NAMES`), or a single one of any name; and "labels"."""
    return from_arrays(load_npz(path), path, {})
