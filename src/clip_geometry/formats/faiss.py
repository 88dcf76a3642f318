"""FAISS: indexes that keep the rows themselves (flat, IVF-flat, HNSW-flat), and the folders that `ship` writes."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import ChosenRows, Embeddings, LazyRows, ShardedRows, in_memory_or_lazy
from clip_geometry.formats.format import Format, Sides, formats
from clip_geometry.formats.tables import Facts, columns_of, sides_of_columns
from clip_geometry.formats.vectors import UNNAMED
from clip_geometry.paths import existing_file
from clip_geometry.reading import Schema, damaged, read_json, read_table, require_memory
from clip_geometry.registry import InputError, library, listed, shown

INDEX = "index.faiss"  # of a folder with one, beside items.parquet


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """Open an index, and the index inside where a program has given it ids (IndexIDMap). The rows of flat ones are
    memory-mapped as long as it is open; FAISS loads the lists of an IVF index."""
    faiss = library("faiss", "faiss-cpu", shown(path))
    size = existing_file(path, "a FAISS index").stat().st_size
    # FAISS allocates what a file declares, so nothing may be declared larger than the file
    limits = faiss.get_deserialization_vector_byte_limit(), faiss.get_deserialization_loop_limit()
    faiss.set_deserialization_vector_byte_limit(size)
    faiss.set_deserialization_loop_limit(size)
    try:
        try:
            outer = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_SKIP_IVF_DATA)
        except RuntimeError:  # it has lists, or is damaged
            require_memory(2 * size, shown(path))  # the index and a copy of its rows
            outer = faiss.read_index(str(path), faiss.IO_FLAG_READ_ONLY)
        yield outer, faiss.downcast_index(outer.index) if isinstance(outer, faiss.IndexIDMap) else outer
    except RuntimeError as error:  # "Error in FUNCTION at FILE:LINE: what is wrong"
        raise damaged(path, "FAISS", str(error).rpartition(".cpp:")[2].partition(": ")[2] or error) from None
    finally:
        faiss.set_deserialization_vector_byte_limit(limits[0])
        faiss.set_deserialization_loop_limit(limits[1])


def _rows(path: Path) -> tuple[Any, np.ndarray | None]:
    """Return the rows of an index in the order of their ids, and the ids where they are not 0, 1, 2, …."""
    import faiss

    with _opened(path) as (outer, index):
        # IndexIDMap2 is an IndexIDMap, too
        ids = faiss.vector_to_array(outer.id_map) if isinstance(outer, faiss.IndexIDMap) else None
        if isinstance(index, faiss.IndexIVFFlat):
            rows, own = _rows_of_lists(index, path)
            places = np.argsort(own, kind="stable")
        else:
            rows, own, places = None, None, np.arange(_flat(index, path).ntotal)
        shape = len(places), outer.d
        if len(places) != outer.ntotal or (ids is not None and len(ids) != len(places)):
            raise damaged(path, "FAISS", f"{len(places)} rows of {outer.ntotal}")
    if rows is None:
        rows = in_memory_or_lazy([LazyRows(functools.partial(_opened_rows, path), shape, np.float32)])
    if ids is not None:
        order = np.argsort(ids, kind="stable")
        ids, places = ids[order], places[order]
    elif own is not None:
        assigned = np.array_equal(own[places], np.arange(len(own)))  # by the IVF index itself
        ids = None if assigned else own[places]
    if not np.array_equal(places, np.arange(len(places))):
        parts: Any = [ChosenRows(rows, places)]
        rows = ShardedRows(parts) if isinstance(rows, ShardedRows) else rows[places]
    return rows, ids


def _flat(index: Any, path: Path) -> Any:
    """Return the flat index that has the rows of another."""
    import faiss

    flat = faiss.downcast_index(index.storage) if isinstance(index, faiss.IndexHNSWFlat) else index
    if not isinstance(flat, faiss.IndexFlat):
        raise InputError(
            f"{shown(path)} is a FAISS {type(index).__name__}, which does not keep the rows as they were added; "
            "give the rows that it was built from, or a flat, IVF-flat or HNSW-flat index of them"
        )
    if flat.codes.size() != 4 * flat.ntotal * flat.d:
        raise damaged(path, "FAISS", f"{flat.codes.size()} bytes for {flat.ntotal} rows")
    return flat


class _Rows:
    """The rows of a flat index that is open: a slice is a copy."""

    def __init__(self, flat: Any):
        self.flat = flat

    def __getitem__(self, rows: slice) -> np.ndarray:
        import faiss

        whole = faiss.rev_swig_ptr(self.flat.get_xb(), self.flat.ntotal * self.flat.d)
        return whole.reshape(self.flat.ntotal, self.flat.d)[rows].copy()


@contextmanager
def _opened_rows(path: Path) -> Iterator[_Rows]:
    with _opened(path) as (_, index):
        yield _Rows(_flat(index, path))


def _rows_of_lists(index: Any, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of an IVF index, list by list, and their ids."""
    import faiss

    inverted = faiss.downcast_InvertedLists(index.invlists)
    if not isinstance(inverted, faiss.ArrayInvertedLists) or inverted.code_size != 4 * index.d:
        raise InputError(f"{shown(path)} keeps its rows in another file; give an index with its rows in it")
    lists = [_inverted_list(faiss, inverted, k, index.d) for k in range(inverted.nlist)]
    rows, own = (np.concatenate(parts) for parts in zip(*lists, strict=True))
    return rows, own


def _inverted_list(faiss: Any, lists: Any, number: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    size = lists.list_size(number)
    if not size:
        return np.empty((0, d), np.float32), np.empty(0, np.int64)
    codes = faiss.rev_swig_ptr(lists.get_codes(number), size * 4 * d)
    return codes.view(np.float32).reshape(size, d).copy(), faiss.rev_swig_ptr(lists.get_ids(number), size).copy()


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
        streams="memory-mapped but for IVF",
        read=read_faiss,
        suffixes=(".faiss", ".index"),
        recognizes=is_faiss,
        package="faiss-cpu",
        limits="flat, IVF-flat and HNSW-flat only: others keep quantized or transformed rows",
    ),
)
