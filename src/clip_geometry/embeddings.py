"""Embeddings, whose rows carry the ids of their items, and the pairing of the rows of two sets."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from clip_geometry.memory import memory
from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, printable, shown
from clip_geometry.rows.arguments import RowError, as_tensor, flag, is_missing, one_of
from clip_geometry.rows.matrix import as_values
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.tokens import TokenRows

# rows that take more bytes than this in float64 are streamed; see docs/memory.md
LARGE = min(memory() // 12, 2 * 10**8)


def is_large(*shapes: tuple[int, int]) -> bool:
    """Return whether sets of these shapes are streamed because they would take more than LARGE bytes in float64."""
    return sum(n * d * 8 for n, d in shapes) > LARGE


def joined(parts: Sequence[Any]) -> Any:
    """Return the rows of all parts as one array, or as `LazyRows` if the array would be large."""
    if len(parts) == 1 and isinstance(parts[0], np.ndarray):
        return parts[0]
    rows = LazyRows(parts)
    return rows if is_large(rows.shape) else np.asarray(rows)


Reader = Callable[[int, int], Any]  # (start, stop) → rows, as a new array


@dataclass(frozen=True)
class FileRows:
    """Rows of a file that its format's library reads by (start, stop); a part of LazyRows.

    Args:
        opened: Returns a context manager that gives a Reader. It is entered for each read, so that no file stays open
            and the rows can be pickled.
        shape: (n, d).
        dtype: Type of the rows as read, in native byte order.
    """

    SPAN: ClassVar[int] = 4096  # most rows that indexing reads in one call
    NEAR: ClassVar[int] = 64  # largest gap of unneeded rows that is read to avoid a second call

    opened: Callable[[], AbstractContextManager[Reader]]
    shape: tuple[int, int]
    dtype: Any

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self.shape[0])
            if start >= stop:
                return np.empty((0, self.shape[1]), self.dtype)
            with self.opened() as read:
                block = np.asarray(read(start, stop), self.dtype)
            if block.shape != (stop - start, self.shape[1]):
                raise InputError(f"rows {start} to {stop} of a file have the shape {block.shape}; the file has changed")
            return block
        unique, positions = np.unique(rows, return_inverse=True)
        is_gap = (np.diff(unique) > self.NEAR) | (np.diff(unique // self.SPAN) > 0)
        spans = np.split(unique, np.flatnonzero(is_gap) + 1)
        with self.opened() as read:
            blocks = [np.asarray(read(int(span[0]), int(span[-1]) + 1), self.dtype)[span - span[0]] for span in spans]
        return np.concatenate(blocks)[positions.reshape(-1)]


class LazyRows:
    """Rows that are read on demand: a concatenation of several parts, or a selection of its rows.

    Indexing reads the selected rows into a new array; `numpy.asarray` reads all rows. The index is an integer, a
    slice, a mask or an array of indices (k,).

    Args:
        parts: Arrays, memory maps and FileRows.
        numbers: Indices (n,) of the selected rows in the concatenation, in the order wanted. Default: all.

    Raises:
        IndexError: The index is of another kind or also selects columns.
    """

    ndim = 2

    def __init__(self, parts: Sequence[Any], numbers: np.ndarray | None = None):
        self.parts = list(parts)
        self.numbers = numbers
        self.starts = np.cumsum([0, *(part.shape[0] for part in parts)])
        n = int(self.starts[-1]) if numbers is None else len(numbers)
        self.shape = (n, int(parts[0].shape[1]))
        self.dtype = np.result_type(*(part.dtype for part in parts))

    def __repr__(self) -> str:
        return f"<LazyRows: {self.shape[0]} × {self.shape[1]} {self.dtype} in {len(self.parts)} parts>"

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def __getitem__(self, rows: Any) -> np.ndarray:
        if isinstance(rows, slice) and rows.step in (None, 1) and self.numbers is None:
            start, stop, _ = rows.indices(len(self))
            spans = [slice(max(0, start - begin), max(0, stop - begin)) for begin in self.starts[:-1]]
            return np.concatenate([part[span] for part, span in zip(self.parts, spans, strict=True)])
        indices = None if isinstance(rows, tuple) else np.asarray(np.arange(len(self))[rows])
        if indices is None or indices.ndim > 1:
            raise IndexError(
                "rows are selected by an integer, a slice, a mask or indices (k,); select columns after reading, as in "
                "x[rows][:, columns], or read all rows with numpy.asarray(x)"
            )
        numbers = indices.reshape(-1) if self.numbers is None else self.numbers[indices.reshape(-1)]
        part_of = np.searchsorted(self.starts, numbers, side="right") - 1
        values = np.empty((len(numbers), self.shape[1]), self.dtype)
        for k in np.unique(part_of):
            positions = np.flatnonzero(part_of == k)
            values[positions] = self.parts[k][numbers[positions] - self.starts[k]]
        return values if indices.ndim else values[0]


def chosen_rows(vectors: Any, numbers: np.ndarray) -> Any:
    """Select rows of an array, LazyRows or StreamedRows by their indices, in the order given, without reading them."""
    if isinstance(vectors, LazyRows):
        return LazyRows(vectors.parts, numbers if vectors.numbers is None else vectors.numbers[numbers])
    return LazyRows([vectors], numbers) if isinstance(vectors, np.ndarray) else vectors.take(torch.from_numpy(numbers))


@dataclass(frozen=True, eq=False, repr=False)
class Embeddings:
    """Embeddings of one modality with their ids, labels and metadata; rows are not normalized.

    Tensors, tables and lists are converted to arrays. Rows that are read from disk when needed, such as a memory map,
    are kept as they are.

    Args:
        vectors: The rows, (n, d), floating point, or `TokenRows`.
        modality: Name of the modality: "image", "text", "audio", "text_de", …; "" if unknown.
        item_id: Id of the item of each row, (n,) strings. Rows of two sets are paired if their ids are equal. None:
            rows are paired by position.
        labels: Class of each row, (n,), of any comparable type; or None.
        language: Language of the texts.
        pair_on: "item_id" pairs rows with equal ids. "label" is for class prompts: each prompt is paired with all
            images of its class.
        metadata: Name → additional column of n values, such as "text" or "path".
        provenance: Where the rows come from: model, data set, split, seed, …, as in the manifest of a store.

    Raises:
        InputError: A field has the wrong type, a column has the wrong length, or an id is missing or empty (rows
            without an id would be paired with each other).

    Example:
        >>> import numpy as np
        >>> import clip_geometry as cg
        >>> cg.Embeddings(np.eye(3), "image", item_id=["a", "b", "c"])
        <Embeddings: 3 × 3 float64, image, with item_id>
    """

    vectors: np.ndarray
    modality: str
    item_id: np.ndarray | None = None
    labels: np.ndarray | None = None
    language: str | None = None
    pair_on: str = "item_id"
    metadata: Mapping[str, np.ndarray] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        if not (isinstance(self.modality, str) and self.modality == ""):
            modality_name(self.modality)
        one_of(self.pair_on, "pair_on", ("item_id", "label"))
        if not isinstance(self.metadata, Mapping) or not isinstance(self.provenance, Mapping):
            raise InputError(f"metadata = {shown(self.metadata)}; expected metadata and provenance as mappings by name")
        owner = f"{self.modality} embeddings".lstrip()
        fields: dict[str, Any] = {"vectors": _vectors(self.vectors, f"the set of {owner}")}
        n = len(fields["vectors"])
        if self.item_id is not None:
            fields["item_id"] = _as_ids(_column(self.item_id, "item_id", owner, n, 1), owner)
        if self.labels is not None:
            fields["labels"] = _column(self.labels, "labels", owner, n, 1)
        columns = {name: values for name, values in self.metadata.items() if values is not None}
        fields["metadata"] = {name: _column(values, name, owner, n) for name, values in columns.items()}
        vars(self).update(fields)

    def __len__(self) -> int:
        return len(self.vectors)

    def __repr__(self) -> str:
        n, d = self.vectors.shape
        dtype = str(getattr(self.vectors, "dtype", "")).removeprefix("torch.")
        origin = [str(self.provenance[key]) for key in ("model", "dataset") if self.provenance.get(key)]
        columns = [name for name in ("item_id", "labels") if getattr(self, name) is not None]
        facts = [f"{n} × {d} {dtype}", self.modality, *origin, f"with {', '.join(columns)}" if columns else ""]
        return printable(f"<Embeddings: {', '.join(filter(None, facts))}>")

    @property
    def dim(self) -> int:
        """The number of columns."""
        return self.vectors.shape[1]

    def take(self, rows: np.ndarray | slice, *, vectors: Any = None) -> "Embeddings":
        """Select rows together with their ids, labels and metadata.

        Args:
            rows: Indices, a mask or a slice.
            vectors: The selected rows, if the caller already has them.
        """
        vectors = self.vectors[rows] if vectors is None else vectors
        item_id = None if self.item_id is None else self.item_id[rows]
        labels = None if self.labels is None else self.labels[rows]
        metadata = {name: column[rows] for name, column in self.metadata.items()}
        return replace(self, vectors=vectors, item_id=item_id, labels=labels, metadata=metadata)


def _vectors(x: Any, name: str) -> Any:
    """Convert rows to an array; rows that are read on demand are returned as they are."""
    if isinstance(x, TokenRows):
        return x
    if isinstance(x, np.ndarray | LazyRows | StreamedRows):
        as_tensor(x[:0] if x.ndim == 2 else x, name)  # checks shape and type without reading anything
        return x
    tensor = as_tensor(x, name).detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _column(values: Any, name: str, owner: str, n: int, max_ndim: int = 32) -> np.ndarray:
    """Return n values, one per row, as an array of at most `max_ndim` dimensions."""
    column = None
    if isinstance(values, list | tuple | range):
        kinds = set(map(type, values))
        is_plain = len(kinds) == 1 and kinds <= {int, float, bool}
        column = np.array(values) if is_plain else np.fromiter(values, object, len(values))
    elif hasattr(values, "__array__") and not isinstance(values, type):
        with suppress(Exception):  # a tensor without values, or any error of a foreign __array__
            column = np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)
    if column is None or not 1 <= column.ndim <= max_ndim:
        raise InputError(f"{shown(name)} of {owner} is {shown(values)}; expected a list or an array, one value per row")
    if len(column) != n:
        raise InputError(f"{owner} have {n} rows but {len(column)} values of {name}")
    return column


def _as_ids(column: np.ndarray, owner: str) -> np.ndarray:
    """Return ids as an object array of strings; a missing id is an error."""

    def as_id(value: Any) -> str:
        if isinstance(value, bytes):
            return value.decode(errors="backslashreplace")
        try:
            return "" if is_missing(value) else str(value)
        except Exception:  # a foreign __str__ may raise anything
            return ""

    ids = [as_id(value) for value in column.tolist()]
    if "" in ids:
        raise InputError(
            f"item_id of {owner} is missing or empty in row {ids.index('')}, and missing ids would be paired with each "
            "other; give an id to every row, or to no row, so that rows are paired by position"
        )
    return np.fromiter(ids, object, len(ids))


def model_and_maps(embeddings: Embeddings) -> dict[str, str]:
    """Return the model and the maps of the rows, as text, where their provenance names them."""
    found = {name: embeddings.provenance.get(name) for name in ("model", "maps")}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in found.items() if value}


def in_order(sets: Mapping[str, Embeddings]) -> list[str]:
    """Return the names of sets in the order in which two of them are compared: by name, class prompts last.

    The measures of two sets, such as (image, text), then do not depend on the order in which the sets were given.
    """
    return sorted(sets, key=lambda name: (sets[name].pair_on == "label", name))


@contextmanager
def naming_files(sets: Mapping[str, Embeddings]) -> Iterator[None]:
    """Add the file and the row to an error about a zero row, NaN or infinity, if the set was read from a file."""
    try:
        yield
    except RowError:
        sources = [side.provenance.get("source") for side in sets.values()]
        for side, source in zip(sets.values(), sources, strict=True):
            name = side.modality if source is None else shown(Path(source))
            if source is not None and sources.count(source) > 1:
                name += f" ({side.modality})"
            for start in range(0, len(side), 4096):
                block = np.asarray(side.vectors[start : start + 4096])
                for row in np.flatnonzero(~np.isfinite(block).all(1))[:1]:
                    problem = f"NaN or infinity in row {start + row}; remove or repair such rows first"
                    raise RowError(f"{name} has {problem}") from None
                for row in np.flatnonzero(~block.any(1))[:1]:
                    problem = f"a zero row (row {start + row}), which has no direction; remove such rows first"
                    raise RowError(f"{name} has {problem}") from None
        raise


def pair_of(sets: Mapping[str, Embeddings]) -> Callable[[str, str], tuple[np.ndarray, np.ndarray]]:
    """Return a function (name, name) → pairs of the two sets, as `Pipeline.fit` expects it."""
    return lambda first, second: pair(sets[first], sets[second])


def pair(image: Embeddings, text: Embeddings, *, distinct: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return the index arrays that pair the rows of two sets by item.

    Every match is a pair: an image with five captions gives five pairs, and a class prompt gives one pair for each
    image of its class. Sets of equal length without ids are paired by position.

    Args:
        image: One set.
        text: The other set.
        distinct: Return a single pair per item, its first image with its first text, so that no two pairs share an
            item.

    Returns:
        Index arrays (i, j), where image row i[k] and text row j[k] belong to the same item. They are ordered by image
        row, then by text row.

    Raises:
        InputError: No rows can be paired.

    Example:
        >>> import numpy as np
        >>> import clip_geometry as cg
        >>> image = cg.Embeddings(np.eye(2), "image", item_id=["a", "b"])
        >>> text = cg.Embeddings(np.eye(3), "text", item_id=["b", "a", "b"])
        >>> i, j = cg.pair(image, text)
        >>> i.tolist(), j.tolist()
        ([0, 1, 1], [1, 0, 2])
    """
    for embeddings in (image, text):
        if not isinstance(embeddings, Embeddings):
            raise InputError(f"pair was given {shown(embeddings)}; expected two sets of Embeddings")
    distinct = flag(distinct, "distinct")
    on_label = "label" in (image.pair_on, text.pair_on)
    key_name = "label" if on_label else "item_id"
    image_keys = _labels(image) if on_label else image.item_id
    text_keys = _labels(text) if on_label else text.item_id
    if image_keys is None or text_keys is None:
        if on_label or len(image) != len(text):
            counts = f"{len(image)} {image.modality} rows and {len(text)} {text.modality} rows"
            raise InputError(f"{counts} cannot be paired: they have no common {key_name} and their numbers differ")
        return np.arange(len(image)), np.arange(len(text))
    text_rows = defaultdict(list)
    for j, key in enumerate(text_keys):
        text_rows[key].append(j)
    matches = [(i, j) for i, key in enumerate(image_keys) for j in text_rows.get(key, ())]
    if distinct:
        first_pairs = {image_keys[i]: (i, j) for i, j in reversed(matches)}
        matches = sorted(first_pairs.values())
    if not matches:
        raise InputError(f"{image.modality} and {text.modality} rows have no {key_name} in common")
    i, j = np.array(matches).T
    return i, j


def _labels(side: Embeddings) -> list | None:
    """Return the labels to pair on. A missing label is an error, since missing labels would match each other."""
    if side.labels is None:
        return None
    name = f"labels of {side.modality} embeddings"
    labels = as_values(side.labels, name=name)
    try:
        set(labels)
    except Exception:  # a list is unhashable, and a foreign __hash__ may raise anything
        raise InputError(f"{name} are not single values that can be compared; expected one label per row") from None
    return labels
