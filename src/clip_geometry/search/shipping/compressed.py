"""Export of a compressor with the codes of an index: NumPy files and a script that searches them with raw queries."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from clip_geometry.display.words import render
from clip_geometry.embeddings import Embeddings
from clip_geometry.files import new_folder, writing
from clip_geometry.io.export import blocks
from clip_geometry.registry import InputError
from clip_geometry.search.compression.compressor import Compressor


def write_compressed(compressor: Compressor, sets: Mapping[str, Embeddings], out: Path) -> dict[str, str]:
    """Write the codes of all rows and a script for queries to the new folder `out`, completely or not at all.

    Args:
        compressor: A fitted compressor.
        sets: Modality → rows of the index, which are read in blocks.
        out: A folder that does not exist or is empty.

    Returns:
        File → description.

    Raises:
        InputError: The compressor was not fitted for a modality, the rows are unsuitable, or `out` is not empty.
    """
    if unknown := sets.keys() - compressor.maps.keys():
        known = " and ".join(compressor.maps)
        raise InputError(f"the compressor was fitted for {known} rows, but {' and '.join(sorted(unknown))} were given")
    files = {}
    with new_folder(out) as folder:
        for name, side in sets.items():
            files[f"{name}.npy"] = _write_codes(compressor, name, side, folder / f"{name}.npy")
        constants = {f"{name}.W": compressor.maps[name].W.astype(np.float32) for name in sets}
        constants |= {f"{name}.{key}": array for name in sets for key, array in compressor.codecs[name].learned.items()}
        np.savez(folder / "constants.npz", **constants)  # pyright: ignore[reportArgumentType]
        values = {"renormalise": next(iter(compressor.maps.values())).renormalise, "columns": compressor.columns}
        script = render(Path(__file__).with_name("compressed.py.j2"), dtype=compressor.dtype, **values)
        (folder / "search.py").write_text(script, encoding="utf-8")
    files["constants.npz"] = "its constants"
    return files | {"search.py": "search(modality, raw_queries, k, full=None); needs numpy only"}


def _write_codes(compressor: Compressor, name: str, side: Embeddings, path: Path) -> str:
    first = compressor.encode(side.vectors[:1], name)
    shape = (len(side), first.shape[1])
    with writing(path) as file:
        header = {"descr": first.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)  # pyright: ignore[reportArgumentType]
        for block in blocks(side):
            file.write(compressor.encode(block, name).tobytes())
    return f"{shape[0]} × {shape[1]} {first.dtype}"
