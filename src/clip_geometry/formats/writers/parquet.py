"""Parquet: a table for each modality, with the vectors in the column "embedding"."""

from pathlib import Path

from clip_geometry.formats.tables import write_parquet
from clip_geometry.formats.vectors import dtype_of
from clip_geometry.formats.writers.base import Sets, writers
from clip_geometry.registry import InputError, shown


def write(sets: Sets, place: Path, out: Path) -> dict[str, str]:
    """Write MODALITY.parquet into a folder, or the file that is named for the only modality."""
    is_file = not place.is_dir()
    if is_file and len(sets) != 1:
        raise InputError(f"{shown(out)} is one file and there are {len(sets)} modalities; give a folder")
    said = {}
    for name, side in sets.items():
        path = place if is_file else place / f"{name}.parquet"
        write_parquet(side, path)
        said[path.name] = f"{len(side)} rows, {dtype_of(side)}"
    return said


writers.add("parquet", write)
