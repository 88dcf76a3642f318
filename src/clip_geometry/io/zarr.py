"""Reader for zarr, versions 2 and 3: a folder X.zarr.

A file names the codecs that decode it, and zarr looks them up among all installed codecs, including pickle. So the
names are checked before zarr opens an array: only CODECS, which decode numbers and text, are allowed. The sharding
codec is not among them, because zarr 3.1 reads zeros from a truncated shard. Blosc reads beyond the end of a chunk
that is shorter than it declares. It is therefore allowed only as the last codec, where the size declared in the chunk
can be compared with the size of the file.
"""

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import FileRows, Reader
from clip_geometry.io.reading import damaged, read_json, reading_with, require_memory
from clip_geometry.io.sides import Sides, sides_of_arrays
from clip_geometry.registry import InputError, library, shown

CODECS = "bytes endian transpose shuffle vlen-utf8 vlen-bytes blosc zstd gzip zlib bz2 lzma lz4 crc32c crc32 adler32"
CODECS += " fletcher32 delta bitround fixedscaleoffset astype quantize packbits"
META = (".zarray", "zarr.json", ".zgroup")


def read(path: Path) -> Sides:
    """Read float matrices as modalities, by name, and the arrays beside them as ids, labels and metadata."""
    arrays = {}
    for file in sorted(entry for entry in path.rglob("*") if entry.name in META[:2]):
        metadata = read_json(file, "the description of an array", dict[str, Any])
        if "shape" in metadata:  # otherwise it describes a group
            with reading_with(path, "zarr"):
                arrays[file.parent.relative_to(path).as_posix()] = _stored(file, metadata)
    return sides_of_arrays(arrays, path)


def _stored(file: Path, metadata: dict[str, Any]) -> FileRows:
    """Return the rows of the array that `metadata`, the content of `file`, describes."""
    codecs = [*(metadata.get("filters") or ()), metadata.get("compressor"), *(metadata.get("codecs") or ())]
    names = [codec.get("id", codec.get("name")) if isinstance(codec, dict) else codec for codec in codecs if codec]
    names = [str(name).removeprefix("numcodecs.") for name in names]
    refused = [name for name in names if name not in CODECS.split()]
    refused += [name for name in names[:-1] if name == "blosc"]
    if refused:
        raise InputError(
            f"{shown(file)} asks for the codec {shown(refused[0])}, which is not allowed in this place: use another"
        )
    zarr = library("zarr", "zarr", shown(file))
    folder = file.parent
    array: Any = zarr.open_array(folder, mode="r", zarr_format=3 if file.name == "zarr.json" else 2)
    size = math.prod(array.chunks) * array.dtype.itemsize
    require_memory(size, f"a chunk of {shown(folder)}")
    if array.nchunks_initialized < array.nchunks:  # zarr would return the fill value
        raise damaged(folder, "zarr", f"it has {array.nchunks_initialized} of {array.nchunks} chunks")
    blosc_chunks = [chunk for chunk in folder.rglob("*[0-9]") if chunk.is_file()] if "blosc" in names else []
    for chunk in blosc_chunks:
        _, unpacked, _, packed = np.fromfile(chunk, "<u4", 4)
        if packed != chunk.stat().st_size or (array.dtype.kind in "fiub" and unpacked != size):
            raise damaged(chunk, "zarr", f"it has {chunk.stat().st_size} bytes, but it declares {packed}")
    return FileRows(functools.partial(_reader, folder, array), array.shape, array.dtype)


@contextmanager
def _reader(path: Path, array: Any) -> Iterator[Reader]:
    with reading_with(path, "zarr"):
        yield lambda start, stop: array[start:stop]


def recognizes(folder: Path) -> bool:
    return folder.suffix.lower() == ".zarr" or any((folder / name).is_file() for name in META)
