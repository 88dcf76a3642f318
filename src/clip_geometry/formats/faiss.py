"""FAISS: indices that keep the rows themselves (flat, IVF-flat, HNSW-flat), and the folders that `ship` writes.

The file is parsed here, without the library: FAISS trusts the sizes in a file, and memory-maps only some indices.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import Embeddings
from clip_geometry.formats.format import Format, Sides, formats
from clip_geometry.formats.mapped import rows_at
from clip_geometry.formats.tables import Facts, columns_of, sides_of_columns
from clip_geometry.formats.vectors import UNNAMED
from clip_geometry.paths import existing_file
from clip_geometry.reading import Schema, damaged, read_json, read_table
from clip_geometry.registry import InputError, listed, shown

INDEX = "index.faiss"  # of a folder with one, beside items.parquet
FLAT = ("IxFI", "IxF2", "IxFl")
# why the rows of other indices cannot be read: what begins with the letters
NOT_ROWS = {
    "IxPq": "product-quantized codes",
    "IxPQ": "product-quantized codes",
    "IPfs": "product-quantized codes",
    "IwPQ": "product-quantized codes",
    "IwQR": "product-quantized codes",
    "IwPf": "product-quantized codes",
    "IxSQ": "scalar-quantized codes",
    "IwSq": "scalar-quantized codes",
    "IwSQ": "scalar-quantized codes",
    "IHNs": "scalar-quantized codes",
    "IHNp": "product-quantized codes",
    "IxHe": "binary codes",
    "IxPT": "rows after a transform",
    "IxRF": "quantized codes and rows to refine",
}


@dataclass(frozen=True)
class Rows:
    """Where the rows of an index lie in its file: of each block, the first byte and how many; their ids, if any."""

    d: int
    starts: np.ndarray
    counts: np.ndarray
    ids: np.ndarray | None = None


class _Cursor:
    """Reads numbers from a mapped file, one after the other, within its bounds."""

    def __init__(self, path: Path):
        self.path, self.at = path, 0
        self.bytes = np.memmap(path, np.uint8, "r")

    def skip(self, size: int) -> int:
        """Return where the next `size` bytes begin."""
        if size < 0 or size > len(self.bytes) - self.at:
            raise damaged(self.path, "FAISS", f"it declares {size} bytes where {len(self.bytes) - self.at} follow")
        self.at += size
        return self.at - size

    def array(self, dtype: str, count: int) -> np.ndarray:
        size = np.dtype(dtype).itemsize * count
        start = self.skip(size)
        return np.frombuffer(self.bytes[start : start + size].tobytes(), dtype)

    def number(self, dtype: str) -> int:
        return int(self.array(dtype, 1)[0])

    def vector(self, dtype: str) -> np.ndarray:
        return self.array(dtype, self.number("<u8"))

    def kind(self) -> str:
        return self.array("S4", 1)[0].decode("latin-1")

    def peek(self) -> str:
        kind, self.at = self.kind(), self.at - 4
        return kind


def _index(cursor: _Cursor, depth: int = 0) -> Rows:
    """Return the rows of the index that begins here, and move behind it."""
    kind, name = cursor.kind(), shown(cursor.path)
    if kind in NOT_ROWS:
        raise InputError(
            f"{name} is an index ({kind}) of {NOT_ROWS[kind]}, not of the rows as they were added: give the rows "
            "that it was made of, or a flat or IVF-flat index of them"
        )
    if kind not in (*FLAT, "IxMp", "IxM2", "IwFl", "IHNf") or depth > 4:
        raise damaged(
            cursor.path, "FAISS", f"index {shown(kind)} where a flat, IVF-flat or HNSW-flat index was expected"
        )
    d, n, _, _, _ = (cursor.number(dtype) for dtype in ("<i4", "<i8", "<i8", "<i8", "u1"))
    if cursor.number("<i4") > 1:  # the metric's argument
        cursor.skip(4)
    if d < 1 or n < 0:
        raise damaged(cursor.path, "FAISS", f"it declares {n} rows of {d} columns")
    if kind in FLAT:
        size = cursor.number("<u8")
        if size != n * d:
            raise damaged(cursor.path, "FAISS", f"{size} numbers for {n} rows of {d} columns")
        rows = Rows(d, np.array([cursor.skip(4 * size)]), np.array([n]))
    elif kind == "IwFl":
        rows = _inverted_lists(cursor, d, depth)
    else:
        for dtype in ("<f8", "<i4", "<i4", "<u8", "<i4") if kind == "IHNf" else ():  # the graph
            cursor.vector(dtype)
        cursor.skip(20 if kind == "IHNf" else 0)
        rows = _index(cursor, depth + 1)
        if kind != "IHNf":
            rows = Rows(rows.d, rows.starts, rows.counts, cursor.vector("<i8"))
            if len(rows.ids) != n:  # pyright: ignore[reportArgumentType]
                raise damaged(cursor.path, "FAISS", f"it has {len(rows.ids)} ids for {n} rows")  # pyright: ignore
    if (rows.d, rows.counts.sum()) != (d, n):
        raise damaged(cursor.path, "FAISS", f"{rows.counts.sum()} × {rows.d} numbers for {n} rows of {d} columns")
    return rows


def _inverted_lists(cursor: _Cursor, d: int, depth: int) -> Rows:
    lists = cursor.number("<u8")
    cursor.skip(8)
    if cursor.peek() not in (*FLAT, "IHNf"):
        raise InputError(
            f"{shown(cursor.path)} finds its lists by an index that is not flat ({shown(cursor.peek())}): give a flat "
            "or IVF-flat index"
        )
    _index(cursor, depth + 1)  # of the centroids, whose rows are none of ours
    direct = cursor.number("u1")
    cursor.vector("<i8")
    if direct == 2:
        cursor.skip(16 * cursor.number("<u8"))
    kind = cursor.kind()
    if kind != "ilar":
        raise InputError(
            f"{shown(cursor.path)} keeps its inverted lists elsewhere ({shown(kind)}), as an index on disk does: "
            "give an index with its rows in it"
        )
    count, code = cursor.number("<u8"), cursor.number("<u8")
    if code != 4 * d or count != lists:
        raise damaged(cursor.path, "FAISS", f"{count} lists of {code} bytes a row for {lists} of {4 * d}")
    sizes = np.zeros(count if count <= len(cursor.bytes) else 0, np.int64)
    match cursor.kind():
        case "full":
            sizes = cursor.vector("<u8").astype(np.int64)
        case "sprs":
            pairs = cursor.vector("<u8").reshape(-1, 2).astype(np.int64)
            if len(pairs) and not 0 <= pairs[:, 0].min() <= pairs[:, 0].max() < len(sizes):
                raise damaged(cursor.path, "FAISS", "sizes of lists that it has not")
            sizes[pairs[:, 0]] = pairs[:, 1]
        case other:
            raise damaged(cursor.path, "FAISS", f"lists of sizes {shown(other)}")
    if len(sizes) != count:
        raise damaged(cursor.path, "FAISS", f"{len(sizes)} sizes for {count} lists")
    starts, ids = [], []
    for size in sizes.tolist():
        starts.append(cursor.skip(4 * d * size))
        ids.append(cursor.array("<i8", size))
    return Rows(d, np.array(starts, np.int64), sizes, np.concatenate(ids) if ids else np.zeros(0, np.int64))


def _rows(path: Path) -> tuple[Any, np.ndarray | None]:
    """Return the rows of an index in the order of their ids, and the ids, where they are not 0, 1, 2, …."""
    path = existing_file(path, "a FAISS index")
    cursor = _Cursor(path)
    found = _index(cursor)
    if cursor.at != len(cursor.bytes):
        raise damaged(path, "FAISS", f"{len(cursor.bytes) - cursor.at} bytes follow the index")
    place = np.repeat(found.starts - 4 * found.d * (np.cumsum(found.counts) - found.counts), found.counts)
    offsets = place + 4 * found.d * np.arange(len(place))
    ids = found.ids
    if ids is not None:
        order = np.argsort(ids, kind="stable")
        ids, offsets = ids[order], offsets[order]
        if len(found.starts) > 1 and np.array_equal(ids, np.arange(len(ids))):
            ids = None  # those that an IVF index gives itself
    return rows_at([(cursor.bytes, offsets)], found.d, "<f4"), ids


class _Part(Schema):
    index: str
    first: int


def read_faiss(path: Path) -> Sides:
    """Read the rows of an index, or of a folder with items.parquet, in which row k is that of the index.

    They are in the order of their ids, which become item_id where a program has given them (IndexIDMap, or
    add_with_ids of an IVF index). What `ship` wrote are repaired items, whose queries are to be repaired too.
    """
    if not path.is_dir():
        vectors, ids = _rows(path)
        provenance = {"source": str(path), "dtype": "float32"}
        return {UNNAMED: Embeddings(vectors, UNNAMED, item_id=ids, provenance=provenance)}
    names = {0: INDEX}
    if (path / "search.json").is_file():
        queries = read_json(path / "search.json", "the table of a shipped index", dict[str, list[_Part]])
        names = {part.first: part.index for parts in queries.values() for part in parts}
    if not names or any(Path(name).name != name for name in names.values()):
        raise damaged(path / "search.json", "FAISS", f"its indices are {listed(names.values())}")
    columns = columns_of(read_table(path / "items.parquet"))
    sides: Sides = {}
    for first, name in sorted(names.items()):
        vectors, _ = _rows(path / name)
        part = {column: values[first : first + len(vectors)] for column, values in columns.items()}
        if "modality" not in part or any(len(values) != len(vectors) for values in part.values()):
            raise InputError(f"{shown(path)} has {len(vectors)} rows in {name} and fewer in items.parquet")
        found = sides_of_columns({UNNAMED: vectors}, part, Facts(), path)
        if twice := sides.keys() & found.keys():
            raise InputError(f"{shown(path)} has {min(twice)} rows in two indices; give one of them")
        sides |= found
    return sides


def is_faiss(folder: Path) -> bool:
    if (folder / INDEX).is_file():
        return (folder / "items.parquet").is_file()
    return (folder / "search.json").is_file() and any(folder.glob("items*.faiss"))


formats.add(
    "faiss",
    Format(
        title="FAISS index",
        holds="rows in the order of their ids, which are item_id if a program has given them; a folder of "
        "index.faiss and items.parquet, or of `clip-geometry ship faiss`, has modalities and metadata too",
        streams="read in blocks",
        read=read_faiss,
        suffixes=(".faiss", ".index"),
        recognizes=is_faiss,
        limits="flat, IVF-flat and HNSW-flat only: others keep quantized or transformed rows",
    ),
)
