"""Qdrant's local storage, the folder of `QdrantClient(path=…)`: an SQLite file of pickled points for each collection.

Whoever unpickles a foreign point runs what it asks for, and the client does. Here nothing is unpickled: `_point` reads
the pickled bytes as data. It knows the operations that write numbers, texts, lists, dicts and the two models a point is
made of, and refuses every other one, above all those that call something (REDUCE, INST, OBJ, BUILD of another class).
"""

import functools
import pickle  # the names of its operations
import re
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clip_geometry.embeddings import LazyRows, in_memory_or_lazy
from clip_geometry.formats.format import Format, Sides, formats
from clip_geometry.formats.tables import Facts, column_of, sides_of_columns
from clip_geometry.formats.vectors import UNNAMED, sides_by_name
from clip_geometry.paths import existing_file
from clip_geometry.progress import note
from clip_geometry.reading import damaged, read_json
from clip_geometry.registry import InputError, listed, shown

STORAGE = "storage.sqlite"
KIND = "Qdrant"
CLASSES = ("PointStruct", "SparseVector")


class _Pickled(ValueError):
    """Bytes that are no point as Qdrant pickles it."""


class _Class(NamedTuple):
    name: str


_MARK = object()
_FLOATS = re.compile(rb"(?:G.{8})+", re.DOTALL)
_FIXED = {  # operation → how the number behind it is stored
    pickle.PROTO: "<B",
    pickle.FRAME: "<Q",
    pickle.BININT1: "<B",
    pickle.BININT2: "<H",
    pickle.BININT: "<i",
    pickle.BINGET: "<B",
    pickle.LONG_BINGET: "<I",
}
_SIZED = {  # operation → how the size of what follows is stored
    pickle.SHORT_BINUNICODE: "<B",
    pickle.BINUNICODE: "<I",
    pickle.BINUNICODE8: "<Q",
    pickle.LONG1: "<B",
}
_MADE: dict[bytes, Callable[[], Any]] = {
    pickle.EMPTY_LIST: list,
    pickle.EMPTY_DICT: dict,
    pickle.EMPTY_SET: list,  # only of the names of fields
    pickle.EMPTY_TUPLE: tuple,
    pickle.NONE: lambda: None,
    pickle.NEWTRUE: lambda: True,
    pickle.NEWFALSE: lambda: False,
    pickle.MARK: lambda: _MARK,
}


def _point(data: bytes) -> dict[str, Any]:
    """Return id, vector and payload of a pickled PointStruct.

    Raises:
        _Pickled: It holds anything else.
    """
    try:
        found = _read(data)
    except _Pickled:
        raise
    except (struct.error, LookupError, TypeError, AttributeError, ValueError, MemoryError) as error:
        raise _Pickled(f"{type(error).__name__} in a pickled point") from None
    if not isinstance(found, dict) or not isinstance(found.get("id"), int | str) or "vector" not in found:
        raise _Pickled("a pickled point without id and vector")
    return found


def _operations(data: bytes) -> Iterator[tuple[bytes, Any]]:
    """Yield each operation with the value behind it; a run of numbers, as a vector is, at once."""
    at = 0
    while True:
        operation = data[at : at + 1]
        if operation == pickle.BINFLOAT:
            run = _FLOATS.match(data, at)
            if run is None:
                raise _Pickled("a number that is cut short")
            yield operation, np.frombuffer(run[0], [("operation", "u1"), ("value", ">f8")])["value"].tolist()
            at = run.end()
            continue
        at += 1
        value: Any = None
        if form := _FIXED.get(operation) or _SIZED.get(operation):
            (value,) = struct.unpack_from(form, data, at)
            at += struct.calcsize(form)
        if operation in _SIZED:
            if value > len(data) - at:
                raise _Pickled("a value that is cut short")
            at += value
            value = data[at - value : at]
        yield operation, value


def _read(data: bytes) -> Any:
    stack: list[Any] = []
    memo: list[Any] = []

    def marked() -> list[Any]:
        mark = len(stack) - 1 - stack[::-1].index(_MARK)
        values = stack[mark + 1 :]
        del stack[mark:]
        return values

    for operation, value in _operations(data):
        match operation:
            case pickle.PROTO | pickle.FRAME:
                pass
            case pickle.BINFLOAT:
                stack.extend(value)
            case pickle.BININT1 | pickle.BININT2 | pickle.BININT:
                stack.append(value)
            case pickle.SHORT_BINUNICODE | pickle.BINUNICODE | pickle.BINUNICODE8:
                stack.append(value.decode())
            case pickle.LONG1:
                stack.append(int.from_bytes(value, "little", signed=True))
            case pickle.MEMOIZE:
                memo.append(stack[-1])
            case pickle.BINGET | pickle.LONG_BINGET:
                stack.append(memo[value])
            case pickle.APPEND | pickle.APPENDS | pickle.ADDITEMS:
                items = [stack.pop()] if operation == pickle.APPEND else marked()
                stack[-1].extend(items)
            case pickle.SETITEM | pickle.SETITEMS:
                items = [stack.pop(-2), stack.pop()] if operation == pickle.SETITEM else marked()
                stack[-1].update(zip(items[::2], items[1::2], strict=True))
            case pickle.STACK_GLOBAL:
                name, module = stack.pop(), stack.pop()
                if module.split(".")[0] != "qdrant_client" or name not in CLASSES:
                    raise _Pickled(f"{module}.{name} in place of a point")
                stack.append(_Class(name))
            case pickle.NEWOBJ:
                arguments, of = stack.pop(), stack.pop()
                if not isinstance(of, _Class) or arguments != ():
                    raise _Pickled("an object that is made by a call")
                stack.append({})
            case pickle.BUILD:  # the fields of a model
                state = stack.pop()
                stack[-1].update(state["__dict__"])
            case pickle.STOP:
                break
            case _ if operation in _MADE:
                stack.append(_MADE[operation]())
            case _:
                raise _Pickled(f"operation {operation!r}, which no point needs and which may run code")
    (found,) = stack
    return found


def read_qdrant(path: Path) -> Sides:
    """Read a collection, or all of a storage with one: each vector name is a modality, of the points that have it.

    Ids are item_id, unless the payloads have one, and payloads are metadata. Vectors are as they were added, in
    float32: the client scales those of a cosine collection to unit length when it reads them. Rows are in the order of
    their last change.
    """
    if (path / STORAGE).is_file():
        return _read_collection(path)
    meta = read_json(path / "meta.json", "the list of a storage's collections", dict[str, Any]).get("collections")
    names = sorted(meta) if isinstance(meta, dict) else []
    if any(Path(name).name != name for name in names):
        raise damaged(path / "meta.json", KIND, f"its collections are {listed(names)}")
    if len(names) != 1:
        raise InputError(
            f"{shown(path)} has the collections {listed(names)}: give one of them, as {shown(path / 'collection')}/NAME"
        )
    return _read_collection(path / "collection" / names[0])


def _read_collection(folder: Path) -> Sides:
    path = existing_file(folder / STORAGE, "the points of a collection")
    ids: dict[Any, int] = {}
    payloads: dict[int, dict[str, Any]] = {}
    sizes: dict[str, int] = {}
    rows: dict[str, list[int]] = {}
    left: set[str] = set()
    with _points(path) as points:
        for row, point in points("ORDER BY rowid"):
            ids[point["id"]] = row
            payload = point.get("payload")
            payloads[row] = payload if isinstance(payload, dict) else {}
            for name, vector in _by_name(point["vector"]).items():
                if not (isinstance(vector, list) and bool(vector) and set(map(type, vector)) <= {float, int}):
                    left.add(name)
                    continue
                if sizes.setdefault(name, len(vector)) != len(vector):
                    raise InputError(
                        f"{shown(folder)} has vectors {shown(name)} of {sizes[name]} and of {len(vector)} numbers"
                    )
                rows.setdefault(name, []).append(row)
    left -= set(rows)
    id_of = {row: own for own, row in ids.items()}  # older clients may have written a point twice: its last row holds
    rows = {name: [row for row in numbers if row in id_of] for name, numbers in rows.items()}
    if not rows:
        raise InputError(
            f"{shown(folder)} has no dense vectors: its {len(ids)} points have none, a sparse one, or several"
        )
    if left:
        note(f"left out of {shown(folder)}: {listed(sorted(left))}, which are no dense vectors")
    names = dict.fromkeys(name for row in id_of for name in payloads[row])
    called = {UNNAMED: UNNAMED} if list(rows) == [UNNAMED] else sides_by_name(rows, folder, "vectors")
    sides: Sides = {}
    for modality, name in called.items():
        numbers = np.array(rows[name], np.int64)
        opened = functools.partial(_opened_vectors, path, name, numbers, sizes[name])
        vectors = in_memory_or_lazy([LazyRows(opened, (len(numbers), sizes[name]), np.float32)])
        columns = {str(key): column_of([payloads[row].get(key) for row in rows[name]]) for key in names}
        own = column_of([str(id_of[row]) for row in rows[name]])
        columns = {"id" if "item_id" in columns else "item_id": own, **columns}
        sides |= sides_of_columns({modality: vectors}, columns, Facts(), folder)
    return sides


def _by_name(vector: Any) -> dict[str, Any]:
    return {str(name): each for name, each in vector.items()} if isinstance(vector, dict) else {UNNAMED: vector}


@contextmanager
def _points(path: Path) -> Iterator[Any]:
    """Give a function of the end of a query that yields row numbers and points; the file is only read."""

    def points(order: str, *values: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        for row, data in connection.execute(f"SELECT rowid, point FROM points {order}", values):
            if not isinstance(data, bytes):
                raise damaged(path, KIND, f"row {row} is {type(data).__name__}, not a point")
            yield row, _point(data)

    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            kinds = connection.execute("SELECT type FROM sqlite_master WHERE name = 'points'").fetchall()
            if kinds != [("table",)]:  # a view would compute whatever it says
                raise damaged(path, KIND, "it has no table of points")
            yield points
    except (sqlite3.Error, _Pickled, OverflowError, MemoryError) as error:
        raise damaged(path, KIND, error) from None


@contextmanager
def _opened_vectors(path: Path, name: str, numbers: np.ndarray, d: int) -> Iterator["_Vectors"]:
    with _points(path) as points:
        yield _Vectors(points, path, name, numbers, d)


class _Vectors:
    """A slice reads the vectors of a name in the order of the rows that have one."""

    def __init__(self, points: Any, path: Path, name: str, numbers: np.ndarray, d: int):
        self.points, self.path, self.name, self.numbers, self.d = points, path, name, numbers, d

    def __getitem__(self, rows: slice) -> np.ndarray:
        wanted = self.numbers[rows].tolist()
        found = np.empty((len(wanted), self.d), np.float32)
        if not wanted:
            return found
        place = {row: k for k, row in enumerate(wanted)}
        filled = 0
        for row, point in self.points("WHERE rowid BETWEEN ? AND ?", wanted[0], wanted[-1]):
            if row in place:
                with np.errstate(over="ignore"):  # infinite in float32, for the client too
                    found[place[row]] = _by_name(point["vector"]).get(self.name, ())
                filled += 1
        if filled < len(wanted):
            raise damaged(self.path, KIND, "it has changed since it was opened")
        return found


def is_qdrant(folder: Path) -> bool:
    return (folder / STORAGE).is_file() or ((folder / "meta.json").is_file() and (folder / "collection").is_dir())


formats.add(
    "qdrant",
    Format(
        title="Qdrant local storage",
        holds="vector names are modalities, of the points that have them; ids are item_id, payloads metadata",
        streams="read in blocks",
        read=read_qdrant,
        recognizes=is_qdrant,
        limits="one collection; sparse vectors and multivectors are left out; points are parsed, never unpickled",
    ),
)
