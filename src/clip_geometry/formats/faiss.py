"""FAISS: indexes that keep the rows themselves (flat, IVF-flat, HNSW-flat), and the folders that `ship` writes."""

from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import Embeddings
from clip_geometry.formats.format import Format, Sides, formats
from clip_geometry.formats.tables import Facts, columns_of, sides_of_columns
from clip_geometry.formats.vectors import UNNAMED
from clip_geometry.paths import existing_file
from clip_geometry.reading import Schema, damaged, read_json, read_table, require_memory
from clip_geometry.registry import InputError, library, listed, shown

INDEX = "index.faiss"  # of a folder with one, beside items.parquet


def _rows(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the rows of an index in the order of their ids, and the ids where they are not 0, 1, 2, …."""
    faiss = library("faiss", "faiss-cpu", shown(path))
    path = existing_file(path, "a FAISS index")
    size = path.stat().st_size
    require_memory(2 * size, shown(path))  # the index and a copy of its rows
    # FAISS allocates what a file declares, so nothing may be declared larger than the file
    limits = faiss.get_deserialization_vector_byte_limit(), faiss.get_deserialization_loop_limit()
    faiss.set_deserialization_vector_byte_limit(size)
    faiss.set_deserialization_loop_limit(size)
    try:
        return _rows_of(faiss, faiss.read_index(str(path), faiss.IO_FLAG_READ_ONLY), path)
    except RuntimeError as error:  # "Error in FUNCTION at FILE:LINE: what is wrong"
        raise damaged(path, "FAISS", str(error).rpartition(".cpp:")[2].partition(": ")[2] or error) from None
    finally:
        faiss.set_deserialization_vector_byte_limit(limits[0])
        faiss.set_deserialization_loop_limit(limits[1])


def _rows_of(faiss: Any, outer: Any, path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    index, ids = outer, None
    if isinstance(outer, faiss.IndexIDMap):  # IndexIDMap2 is one, too; it owns the index inside, and has to live on
        index, ids = faiss.downcast_index(outer.index), faiss.vector_to_array(outer.id_map)
    if isinstance(index, faiss.IndexIVFFlat):
        inverted = faiss.downcast_InvertedLists(index.invlists)
        if not isinstance(inverted, faiss.ArrayInvertedLists) or inverted.code_size != 4 * index.d:
            raise InputError(f"{shown(path)} keeps its rows in another file; give an index with its rows in it")
        lists = [_inverted_list(faiss, inverted, k, index.d) for k in range(inverted.nlist)]
        rows, own = (np.concatenate(parts) for parts in zip(*lists, strict=True))
    else:
        flat = faiss.downcast_index(index.storage) if isinstance(index, faiss.IndexHNSWFlat) else index
        if not isinstance(flat, faiss.IndexFlat):
            raise InputError(
                f"{shown(path)} is a FAISS {type(index).__name__}, which does not keep the rows as they were added; "
                "give the rows that it was built from, or a flat, IVF-flat or HNSW-flat index of them"
            )
        rows, own = faiss.vector_to_array(flat.codes).view(np.float32).reshape(-1, flat.d), None
    if len(rows) != outer.ntotal or (ids is not None and len(ids) != len(rows)):
        raise damaged(path, "FAISS", f"{len(rows)} rows of {index.ntotal}")
    if own is not None and ids is None:
        order = np.argsort(own, kind="stable")
        ids, rows = own[order], rows[order]
        ids = None if np.array_equal(ids, np.arange(len(ids))) else ids  # those that an IVF index assigns itself
    elif ids is not None:
        rows = rows if own is None else rows[np.argsort(own, kind="stable")]
        order = np.argsort(ids, kind="stable")
        ids, rows = ids[order], rows[order]
    return rows, ids


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
        streams="",
        read=read_faiss,
        suffixes=(".faiss", ".index"),
        recognizes=is_faiss,
        package="faiss-cpu",
        limits="flat, IVF-flat and HNSW-flat only: others keep quantized or transformed rows",
    ),
)
