"""NumPy archives, .npz: arrays by name. Pickled objects are never loaded."""

from pathlib import Path

from clip_geometry.io.format import Sides
from clip_geometry.io.reading import read_npz
from clip_geometry.io.sides import sides_of_arrays


def read(path: Path) -> Sides:
    """Read the arrays of rows by modality ("image", "text_emb", …), or a single one of any name; and "labels"."""
    return sides_of_arrays(read_npz(path), path)
