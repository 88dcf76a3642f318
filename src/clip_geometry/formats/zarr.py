"""zarr, versions 2 and 3: a folder X.zarr or a zip archive of one.

A file names the codecs that decode it, and zarr finds them among all that are installed, pickle too: only those in
CODECS, which decode numbers and text, are let through.
"""

import functools
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.formats.arrays import Stored, sides_of_arrays
from clip_geometry.formats.format import Format, Sides, formats, library, reading_with
from clip_geometry.paths import existing
from clip_geometry.progress import note
from clip_geometry.reading import damaged, parse_json, read_bytes, require_memory
from clip_geometry.registry import InputError, shown

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
    library("zarr", "zarr", "zarr", path)
    path = existing(path, "a zarr folder or archive")
    _check_codecs(path)
    with _opened(path, "") as root:
        arrays = {name: _stored(array, name, path) for name, array in _arrays(root, path).items()}
        return sides_of_arrays({name: each for name, each in arrays.items() if each is not None}, path)


def _check_codecs(path: Path) -> None:
    """Raise InputError for descriptions of arrays that are no JSON, and for codecs other than CODECS."""
    for name, content in _descriptions(path):
        source = f"{shown(path)}, {shown(name)},"
        for codec in _codecs(parse_json(content, source, dict[str, Any])):
            called = codec.get("id", codec.get("name")) if isinstance(codec, Mapping) else codec
            if not isinstance(called, str) or called.removeprefix("numcodecs.") not in CODECS:
                raise InputError(
                    f"{source} asks for the codec {shown(called)}, which is not among those that only decode numbers "
                    "and text: write the array with another codec"
                )


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
    if path.is_dir():
        for found in sorted(path.rglob("*")):
            if found.name in META:
                yield str(found.relative_to(path)), read_bytes(found, "the description of an array", most=MOST_META)
        return
    with reading_with(path, "zip"), zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            require_memory(entry.file_size, f"{shown(path)}, {shown(entry.filename)},")
            if entry.filename.rpartition("/")[2] in META:
                if entry.file_size > MOST_META:
                    raise damaged(path, KIND, f"{entry.filename} has {entry.file_size} bytes")
                yield entry.filename, archive.read(entry)


@contextmanager
def _opened(path: Path, name: str) -> Iterator[Any]:
    """Open the root, or the array of this name; what was consolidated may differ from what was checked."""
    import zarr
    from zarr.storage import LocalStore, ZipStore

    with reading_with(path, KIND):
        kind = LocalStore if path.is_dir() else ZipStore
        store = kind(path, read_only=True)
        try:
            root = _root(zarr, store, path)
            yield root[name] if name else root
        finally:
            store.close()


def _root(zarr: Any, store: Any, path: Path) -> Any:
    for version in (3, 2):
        for open_one in (zarr.open_group, zarr.open_array):
            options = {"use_consolidated": False} if open_one is zarr.open_group else {}
            try:
                return open_one(store, mode="r", zarr_format=version, **options)
            except (FileNotFoundError, zarr.errors.NodeNotFoundError, zarr.errors.ContainsArrayError):
                continue
    raise InputError(f"{shown(path)} has no zarr array or group at its root; expected zarr.json, .zarray or .zgroup")


def _arrays(root: Any, path: Path) -> dict[str, Any]:
    import zarr

    if isinstance(root, zarr.Array):
        return {"": root}
    return {name: each for name, each in root.members(max_depth=8) if isinstance(each, zarr.Array)}


def _stored(array: Any, name: str, path: Path) -> Stored | None:
    """Return what stands for an array; None for types that NumPy has no plain name for.

    Raises:
        InputError: A chunk is missing, where zarr gives the fill value.
    """
    source = f"{shown(path)}, array {shown(name)},"
    if array.dtype.kind not in "fiubSTUO":
        note(f"left out of {shown(path)}: {name}, whose type is {array.dtype}")
        return None
    require_memory(int(np.prod([float(size) for size in array.chunks])) * array.dtype.itemsize, f"a chunk of {source}")
    if array.size and array.nchunks_initialized < (expected := array.nchunks):
        raise InputError(
            f"{source} lacks {expected - array.nchunks_initialized} of {expected} chunks, where zarr fills in "
            f"{array.fill_value}: copy or write it again"
        )
    return Stored(array.shape, np.dtype(array.dtype), functools.partial(_opened, path, name))


def is_zarr(folder: Path) -> bool:
    return any((folder / name).is_file() for name in META)


formats.add(
    "zarr",
    Format(
        title="zarr",
        holds="arrays (n, d) of floats are modalities by their names; arrays of n values in the same group are "
        "item_id (or id), labels and metadata",
        streams="read in blocks",
        read=read_zarr,
        suffixes=(".zarr", ".zip"),
        recognizes=is_zarr,
        extra="zarr",
        limits="arrays whose chunks are not all there, and codecs that are not among numcodecs' plain ones, are "
        "refused",
    ),
)
