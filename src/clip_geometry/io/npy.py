"""NumPy: a .npy file of rows, and beside it PATH.json with their origin, which .npy cannot hold."""

import json
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from clip_geometry.embeddings import Embeddings
from clip_geometry.files import write_atomically, writing
from clip_geometry.io import reading
from clip_geometry.io.format import Sides
from clip_geometry.io.sides import UNNAMED, Provenance, check_vectors
from clip_geometry.io.writing import blocks, dtype_of
from clip_geometry.registry import shown


class _Origin(BaseModel):
    clip_geometry: Provenance = {}  # another program's file of that name says nothing


def read(path: Path) -> Sides:
    """Read one array, which has no modality, and the origin that `write_npy` left beside it."""
    vectors, beside = check_vectors(reading.read_npy(path), shown(path)), _origin_beside(path)
    known = reading.read_json(beside, "the origin of rows", _Origin).clip_geometry if beside.is_file() else {}
    provenance = {**known, "source": str(path), "dtype": str(vectors.dtype)}
    return {UNNAMED: Embeddings(vectors, UNNAMED, provenance=provenance)}


def write_npy(embeddings: Embeddings, path: Path) -> None:
    """Write the rows, and their origin."""
    write_rows(embeddings, path)
    origin = {"clip_geometry": dict(embeddings.provenance)}
    write_atomically(_origin_beside(path), f"{json.dumps(origin, indent=1, default=str)}\n".encode())


def write_rows(embeddings: Embeddings, path: Path) -> None:
    """Write the rows alone, in blocks."""
    header = {"descr": dtype_of(embeddings).str, "fortran_order": False, "shape": (len(embeddings), embeddings.dim)}
    with writing(path) as file:
        np.lib.format.write_array_header_1_0(file, header)  # pyright: ignore[reportArgumentType]
        for block in blocks(embeddings, finite=False):
            file.write(block.tobytes())


def _origin_beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
