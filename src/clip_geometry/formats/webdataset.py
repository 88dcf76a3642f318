"""webdataset shards of vectors: tars of KEY.npy, or KEY.image.npy and KEY.text.npy, with .json, .txt and .cls beside.

A tar that is not compressed holds its members as they are, so a row is the content of a .npy file where it lies.
"""

import io
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.data.webdataset import samples
from clip_geometry.formats.format import Format, Sides, by_suffix, formats
from clip_geometry.formats.labels import INTEGER
from clip_geometry.formats.mapped import rows_at
from clip_geometry.formats.tables import Facts, column_of, sides_of_columns
from clip_geometry.formats.vectors import check_vectors, modality_of, sides_by_name
from clip_geometry.paths import existing_file
from clip_geometry.progress import note
from clip_geometry.reading import npy_header, parse_json, require_memory
from clip_geometry.registry import InputError, listed, shown

HEADER = 4096  # bytes in which the header of a vector's .npy ends
BESIDE = ("json", "txt", "cls")


@dataclass
class _Found:
    """The rows of one name: where they lie, by shard, and whose they are."""

    name: str
    d: int
    dtype: np.dtype
    offsets: dict[int, list[int]] = field(default_factory=dict)
    samples: list[int] = field(default_factory=list)


def read_webdataset(path: Path) -> Sides:
    """Read a tar, or all tars of a folder by name: the vectors of each name are a modality, the keys are item_id.

    A .txt is the column text, a .cls the label, and the keys of a .json are columns.
    """
    shards = sorted(path.glob("*.tar")) if path.is_dir() else [path]
    keys: list[tuple[str, str]] = []  # of samples: the name of the shard, and the key
    beside: list[dict[str, Any]] = []
    found: dict[str, _Found] = {}
    mapped: list[np.ndarray] = []
    left: set[str] = set()
    headers: dict[tuple[int, bytes], Any] = {}
    for number, shard in enumerate(shards):
        shard = existing_file(shard, "a tar of vectors")
        content = np.memmap(shard, np.uint8, "r")
        mapped.append(content)
        for key, members in samples(shard):
            keys.append((shard.stem, key))
            beside.append({})
            for kind, member in members.items():
                start, size, source = member.offset_data, member.size, f"{shown(shard)}, {shown(member.name)},"
                if kind == "npy" or kind.endswith(".npy"):
                    called = kind.removesuffix("npy").removesuffix(".")
                    shape, dtype, begin = _header(content, start, size, headers, source)
                    rows = _add(found, called, shape, dtype, source, len(keys) - 1)
                    rows.offsets.setdefault(number, []).append(start + begin)
                elif kind in BESIDE:
                    require_memory(size, source)
                    beside[-1] |= _columns(kind, content[start : start + size].tobytes(), source)
                else:
                    left.add(kind)
    if not found:
        raise InputError(
            f"{shown(path)} has no vectors: expected .npy files, KEY.npy or KEY.image.npy, and found "
            f"{listed(sorted(f'.{kind}' for kind in left | {k for each in beside for k in each}))}"
        )
    if left:
        note(f"left out of {shown(path)}: files {listed(sorted(f'.{kind}' for kind in left))}")
    names = dict.fromkeys(name for each in beside for name in each)
    named = sides_by_name(found, path, "kinds of vectors")
    distinct = len({key for _, key in keys}) == len(keys)  # otherwise every shard counts from 0
    ids = [key if distinct else f"{stem}/{key}" for stem, key in keys]
    sides: Sides = {}
    for modality, name in named.items():
        rows = found[name]
        parts = [(mapped[k], np.array(offsets, np.int64)) for k, offsets in rows.offsets.items()]
        columns = {called: column_of([beside[k].get(called) for k in rows.samples]) for called in names}
        own = {"key" if "item_id" in columns else "item_id": column_of([ids[k] for k in rows.samples])}
        sides |= sides_of_columns({modality: rows_at(parts, rows.d, rows.dtype)}, own | columns, Facts(), path)
    return sides


def _header(
    content: np.ndarray, start: int, size: int, known: dict[tuple[int, bytes], Any], source: str
) -> tuple[tuple[int, ...], np.dtype, int]:
    """Return the shape and type in the header of a .npy, and where its numbers begin; `known` by the header's bytes."""
    begin = content[start : start + min(size, HEADER)].tobytes()
    length = int.from_bytes(begin[8:10], "little") + 10 if begin[6:8] == b"\1\0" else HEADER
    if (size, begin[:length]) not in known:
        file = io.BytesIO(begin)
        shape, dtype = npy_header(file, source, size)
        known[size, begin[:length]] = shape, dtype, file.tell()
    return known[size, begin[:length]]


def _add(
    found: dict[str, _Found], called: str, shape: tuple[int, ...], dtype: np.dtype, source: str, sample: int
) -> _Found:
    if len(shape) != 1 and not (len(shape) == 2 and shape[0] == 1):
        raise InputError(f"{source} has the shape {list(shape)}; expected one vector, (d,) or (1, d)")
    if called not in found:
        check_vectors(np.zeros((0, shape[-1]), dtype.newbyteorder("=")), source)
        found[called] = _Found(called, shape[-1], dtype)
    rows = found[called]
    if (shape[-1], dtype) != (rows.d, rows.dtype):
        raise InputError(f"{source} is {shape[-1]} × {dtype} and those before it {rows.d} × {rows.dtype}")
    rows.samples.append(sample)
    return rows


def _columns(kind: str, content: bytes, source: str) -> dict[str, Any]:
    if kind == "json":
        values = parse_json(content, source)
        return {str(name): value for name, value in values.items()} if isinstance(values, dict) else {"json": values}
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise InputError(f"{source} is not text in UTF-8; the text or class of a vector was expected") from None
    if kind == "txt":
        return {"text": text}
    stripped = text.strip()
    return {"label": int(stripped) if re.fullmatch(INTEGER, stripped) else stripped}


def is_webdataset(folder: Path) -> bool:
    """Whether a folder has tars, and no files beside that are called after modalities, image.npy and text.npy."""
    if not any(folder.glob("*.tar")):
        return False
    known = by_suffix()
    return not any(modality_of(path.stem) and known.get(path.suffix.lower()) for path in folder.glob("*.*"))


formats.add(
    "webdataset",
    Format(
        title="webdataset",
        holds="vectors KEY.npy, or KEY.image.npy and KEY.text.npy as modalities; keys are item_id, .txt the text, "
        ".cls the label, .json further columns",
        streams="memory-mapped",
        read=read_webdataset,
        suffixes=(".tar",),
        recognizes=is_webdataset,
        limits="one vector a file; a folder holds the shards of one data set; no compressed tars",
        by_name=False,
    ),
)
