"""zarr, versions 2 and 3: a folder X.zarr.

A file names the codecs that decode it, and zarr finds them among all that are installed, pickle too: only those in
CODECS, which decode numbers and text, are let through.
"""

import functools
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.formats.arrays import Stored, sides_of_arrays
from clip_geometry.formats.format import Format, Sides, formats, reading_with
from clip_geometry.progress import note
from clip_geometry.reading import damaged, parse_json, read_bytes, require_memory
from clip_geometry.registry import InputError, library, shown

META = ("zarr.json", ".zarray", ".zgroup")
# of both versions, with numcodecs' names in version 3 after "numcodecs."
CODECS = {
    *("bytes", "transpose", "sharding_indexed", "vlen-utf8", "vlen-bytes", "endian", "crc32c", "crc32", "adler32"),
    *("blosc", "zstd", "gzip", "zlib", "bz2", "lzma", "lz4", "shuffle", "delta", "bitround", "fixedscaleoffset"),
    *("astype", "quantize", "packbits", "fletcher32"),
}
MOST_META = 2**22  # bytes of the description of one array
KIND = "zarr"


def read_zarr(path: Path) -> Sides:
    """Read the matrices of floats as modalities by their names, and arrays beside them as ids, labels and metadata."""
    library("zarr", "zarr", shown(path))
    arrays: dict[str, Stored] = {}
    for name, (version, codecs) in _described_arrays(path).items():
        with _opened(path, name, version) as array:
            if (found := _stored(array, name, version, codecs, path)) is not None:
                arrays[name] = found
    with reading_with(path, KIND):
        return sides_of_arrays(arrays, path)


def _described_arrays(path: Path) -> dict[str, tuple[int, list[str]]]:
    """Return name → version and names of the codecs of each array; a name is the folder of its description.

    Raises:
        InputError: A description is no JSON, or asks for a codec other than CODECS.
    """
    found: dict[str, tuple[int, list[str]]] = {}
    for name, content in _descriptions(path):
        source = f"{shown(path)}, {shown(name)},"
        described = parse_json(content, source, dict[str, Any])
        codecs = []
        for codec in _codecs(described):
            called = codec.get("id", codec.get("name")) if isinstance(codec, Mapping) else codec
            if not isinstance(called, str) or called.removeprefix("numcodecs.") not in CODECS:
                raise InputError(
                    f"{source} asks for the codec {shown(called)}, which is not among those that only decode numbers "
                    "and text: write the array with another codec"
                )
            codecs.append(called.removeprefix("numcodecs."))
        folder, _, last = name.rpartition("/")
        if last == ".zarray" or described.get("node_type") == "array":
            found[folder] = (2 if last == ".zarray" else 3, codecs)
    if not found:
        raise InputError(f"{shown(path)} has no zarr arrays; expected zarr.json or .zarray in it, or in folders of it")
    return dict(sorted(found.items()))


def _codecs(described: Mapping[str, Any]) -> Iterator[Any]:
    filters = described.get("filters") or []
    yield from filters if isinstance(filters, list) else [filters]
    yield from [described["compressor"]] if described.get("compressor") is not None else []
    codecs = described.get("codecs") or []
    for codec in codecs if isinstance(codecs, list) else [codecs]:
        yield codec
        inner = codec.get("configuration") if isinstance(codec, Mapping) else None
        if isinstance(inner, Mapping):
            for key in ("codecs", "index_codecs"):
                yield from _codecs({"codecs": inner.get(key)})


def _descriptions(path: Path) -> Iterator[tuple[str, bytes]]:
    for found in sorted(path.rglob("*")):
        if found.name in META:
            yield found.relative_to(path).as_posix(), read_bytes(found, "the description of an array", most=MOST_META)


@contextmanager
def _opened(path: Path, name: str, version: int) -> Iterator[Any]:
    """Open an array by itself: what a group says of its arrays may differ from what was checked."""
    import zarr
    from zarr.storage import LocalStore

    with reading_with(path, KIND), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not have a Zarr V3 specification")
        store = LocalStore(path, read_only=True)
        yield zarr.open_array(store, path=name, mode="r", zarr_format=version)  # pyright: ignore[reportArgumentType]


def _stored(array: Any, name: str, version: int, codecs: list[str], path: Path) -> Stored | None:
    """Return what stands for an array; None for types that NumPy has no plain name for.

    Raises:
        InputError: A chunk is missing, where zarr gives the fill value, or is not as long as it says.
    """
    source = f"{shown(path)}, array {shown(name)},"
    if array.dtype.kind not in "fiubSTUO":
        note(f"left out of {shown(path)}: {name}, whose type is {array.dtype}")
        return None
    if "sharding_indexed" in codecs or codecs.count("blosc") > 1:
        raise InputError(
            f"{source} is sharded or packed twice with Blosc, where a file that was cut short goes unnoticed; "
            "write the array with chunks and one codec"
        )
    size = math.prod(array.chunks) * array.dtype.itemsize
    require_memory(size, f"a chunk of {source}")
    if array.size and array.nchunks_initialized < (expected := array.nchunks):
        raise InputError(
            f"{source} lacks {expected - array.nchunks_initialized} of {expected} chunks, where zarr fills in "
            f"{array.fill_value}: copy or write it again"
        )
    if "blosc" in codecs:
        for chunk in (path / name).rglob("*"):
            if chunk.is_file() and chunk.name not in (*META, ".zattrs"):
                with chunk.open("rb") as file:
                    head = np.frombuffer(file.read(16).ljust(16, b"\0"), "<u4")
                there = chunk.stat().st_size  # if it is not what the chunk says, Blosc reads on behind what is there
                if head[3] != there or (array.dtype.kind in "fiub" and head[1] != size):
                    raise damaged(chunk, KIND, f"a chunk of {head[3]} bytes, unpacked {head[1]}; it has {there}")
    return Stored(array.shape, np.dtype(array.dtype), functools.partial(_opened, path, name, version))


def is_zarr(folder: Path) -> bool:
    return folder.suffix.lower() == ".zarr" or any((folder / name).is_file() for name in META)


formats.add(
    "zarr",
    Format(
        title="zarr",
        holds="arrays (n, d) of floats are modalities by their names; arrays of n values in the same group are "
        "item_id (or id), labels and metadata",
        streams="read in blocks",
        read=read_zarr,
        suffixes=(".zarr",),
        recognizes=is_zarr,
        package="zarr",
        limits="zip archives, shards, arrays with missing chunks, and codecs other than numcodecs' plain "
        "ones are refused",
        by_name=False,
    ),
)
