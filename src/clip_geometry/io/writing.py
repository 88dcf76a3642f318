"""What the writers of formats share: rows in blocks, pairs as rows, columns of a table."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from clip_geometry.embeddings import Embeddings, chosen_rows, pair
from clip_geometry.io.format import Sets
from clip_geometry.progress import note
from clip_geometry.registry import InputError, listed

if TYPE_CHECKING:
    import pyarrow as pa

GROUP = 2**14  # rows that are written at a time


# --- rows


def dtype_of(side: Embeddings) -> np.dtype:
    return np.dtype(str(side.vectors.dtype).removeprefix("torch."))  # StreamedRows have torch's


def blocks(side: Embeddings, *, finite: bool = True) -> Iterator[np.ndarray]:
    """The rows, some at a time.

    finite: raise InputError for NaN and infinity, which no index can rank.
    """
    for start in range(0, max(len(side), 1), GROUP):
        block = np.ascontiguousarray(side.vectors[start : start + GROUP])
        if finite and not np.isfinite(block).all():
            row = start + int(np.argmin(np.isfinite(block).all(axis=1)))
            raise InputError(
                f"{side.modality} rows have NaN or infinity in row {row}; remove or repair such rows first"
            )
        yield block


def aligned(sets: Sets) -> dict[str, Embeddings]:
    """Return the sets with row k of each belonging together: the pairs of the first with the second, and so on.

    Reads no rows. How many are left out, since they have no pair, is noted.
    """
    (name, first), *others = sets.items()
    found = {name: first}
    for other, each in others:
        i, j = pair(found[name], each)
        for mine, theirs, rows, side in ((name, other, i, found[name]), (other, name, j, each)):
            if lone := len(side) - len(np.unique(rows)):
                note(f"{lone} of {len(side)} {mine} rows have no {theirs} row and are left out")
        found = {before: rows.take(i, vectors=chosen_rows(rows.vectors, i)) for before, rows in found.items()}
        found[other] = each.take(j, vectors=chosen_rows(each.vectors, j))
    return found


def common(sets: Sets, format_name: str) -> tuple[int, int, np.dtype]:
    """Rows, columns and type of one matrix of all sets; raise InputError where they have different columns."""
    widths = {name: side.dim for name, side in sets.items()}
    if len(set(widths.values())) > 1:
        given = listed(f"{name} {d}" for name, d in widths.items())
        raise InputError(
            f"the modalities have different numbers of columns ({given}), and {format_name} holds one matrix; export "
            "them one by one"
        )
    dtype = np.result_type(*(dtype_of(side) for side in sets.values()))
    return sum(map(len, sets.values())), next(iter(widths.values())), dtype


# --- tables


def columns_beside(side: Embeddings) -> "dict[str, pa.Array]":
    """Return what is known of the rows: item_id, label and the metadata."""
    own = {"item_id": side.item_id, "label": side.labels}
    own = {name: column for name, column in own.items() if column is not None}
    return {name: arrow_column(column) for name, column in {**own, **side.metadata, **own}.items()}


def arrow_column(values: np.ndarray) -> "pa.Array":
    """Return a column for a table; values of several kinds, which Arrow refuses, become text."""
    import pyarrow as pa

    try:
        return pa.array(values if values.ndim == 1 else list(values))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return _texts(values.tolist())


def _texts(values: Sequence[Any]) -> "pa.Array":
    import pyarrow as pa

    return pa.array([None if value is None else str(value) for value in values], pa.string())


def item_table(sets: Sets, without: Sequence[str] = ()) -> "pa.Table":
    """The rows of all sets, one set after the other: modality, item_id, label and metadata, except for columns of these
    names. A column whose types do not agree becomes text.

    Where no set has ids there is the column row instead, the number within its set, since equal ids would say that rows
    belong together; where some have, MODALITY/ROW is the id in the others.
    """
    import pyarrow as pa

    identified = any(side.item_id is not None for side in sets.values())
    parts = []
    for name, side in sets.items():
        numbers = np.arange(len(side))
        own = {"item_id": pa.array(f"{name}/{k}" for k in numbers)} if identified else {"row": pa.array(numbers)}
        parts.append({**own, **columns_beside(side), "modality": pa.array([name] * len(side))})
    names = dict.fromkeys(name for part in parts for name in ("modality", *part) if name not in without)
    lengths = [len(side) for side in sets.values()]
    columns = {
        name: _joined([part.get(name, pa.nulls(n)) for part, n in zip(parts, lengths, strict=True)]) for name in names
    }
    return pa.table(columns).combine_chunks()


def _joined(parts: "list[pa.Array]") -> "pa.ChunkedArray":
    import pyarrow as pa

    tables = [pa.table([part], [""]) for part in parts]
    try:
        return pa.concat_tables(tables, promote_options="permissive").column(0)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.chunked_array([_texts(part.to_pylist()) for part in parts])


def tables_of(
    beside: "Mapping[str, pa.Array | pa.ChunkedArray]", vectors: Mapping[str, Embeddings], *, finite: bool = False
) -> "tuple[pa.Schema, Iterator[pa.Table]]":
    """Return columns and vectors, by the names of their columns, as tables of some rows at a time, and their schema."""
    import pyarrow as pa

    def tables() -> Iterator[pa.Table]:
        rows = [blocks(side, finite=finite) for side in vectors.values()]
        for k, several in enumerate(zip(*rows, strict=True)):
            part = {name: column.slice(k * GROUP, GROUP) for name, column in beside.items()}
            for name, block in zip(vectors, several, strict=True):
                part[name] = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), block.shape[1])
            yield pa.table(part)

    found = tables()
    first = next(found)
    return first.schema, chain([first], found)
