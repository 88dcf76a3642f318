"""Parquet: a table for each modality, with the vectors in the column "embedding"."""

from pathlib import Path
from typing import Any

from clip_geometry.formats.tables import write_parquet
from clip_geometry.formats.writers.base import Sets, Writer, dtype_of, writers
from clip_geometry.registry import InputError, shown


class Parquet(Writer):
    """Write MODALITY.parquet into a folder, or the file that is named for the only modality."""

    summary = "a table for each modality"

    def is_file(self, out: Path) -> bool:
        return out.suffix == ".parquet"

    def write(self, sets: Sets, place: Path, out: Path, options: Any) -> dict[str, str]:
        if self.is_file(out) and len(sets) != 1:
            raise InputError(f"{shown(out)} is one file and there are {len(sets)} modalities; give a folder")
        paths = {name: place if self.is_file(out) else place / f"{name}.parquet" for name in sets}
        for name, path in paths.items():
            write_parquet(sets[name], path)
        return {paths[name].name: f"{len(side)} rows, {dtype_of(side)}" for name, side in sets.items()}


writers.add("parquet", Parquet())
