"""Embeddings: rows with an identity; and pairing two of them."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.registry import InputError

CGROUPS = Path("/sys/fs/cgroup")  # where Linux tells what a container, or a job of a cluster, may take
OWN_CGROUPS = Path("/proc/self/cgroup")  # which of them this process is in


def memory() -> int:
    """Bytes that this machine has, or that the container or job in which this process runs may take."""
    if not hasattr(os, "sysconf"):
        return 2**34
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_limits()])


def _limits() -> Iterator[int]:
    """Those of the process's groups and of all groups around them, of either version of cgroups."""
    for file in _limit_files():
        try:
            limit = file.read_text().strip()
        except OSError:  # there is none, or it is not ours to read
            continue
        if limit.isdecimal():  # "max" is none
            yield int(limit)


def _limit_files() -> Iterator[Path]:
    lines = OWN_CGROUPS.read_text().splitlines() if OWN_CGROUPS.is_file() else []
    for _, controllers, group in (line.split(":", 2) for line in lines):
        if controllers and "memory" not in controllers.split(","):
            continue
        root, name = (CGROUPS / "memory", "memory.limit_in_bytes") if controllers else (CGROUPS, "memory.max")
        # inside a container the path may be the host's, where nothing is: its own group is then the root
        path = Path("/", group)
        for part in (path, *path.parents):
            yield root / part.relative_to("/") / name


# bytes of float64 rows from which on they are streamed: measuring 1:1 pairs in memory took 6 times that at its peak,
# five captions an image 8.4 times (36 000 × 256)
LARGE = memory() // 12


def is_large(*shapes: tuple[int, int]) -> bool:
    """Whether sets of these shapes are not to be held in memory in float64."""
    return sum(n * d * 8 for n, d in shapes) > LARGE


def joined(parts: Sequence[np.ndarray]) -> Any:
    """The rows of all parts, one after the other: an array, or ShardedRows of what is too large for that."""
    if len(parts) == 1:
        return parts[0]
    return ShardedRows(parts) if is_large(*(part.shape for part in parts)) else np.concatenate(parts)


class ShardedRows:
    """The rows of several memory maps, one after the other, without a copy of them all.

    Chosen rows, and numpy.asarray of the whole, are read into an array of their own. Rows are chosen as numpy's are, by
    an integer, a slice, a mask or indices (k,), and columns of them behind a comma. IndexError where
    both are chosen by arrays, and for index arrays that are no vector.
    """

    ndim = 2

    def __init__(self, parts: Sequence[np.ndarray]):
        self.parts = list(parts)
        self.starts = np.cumsum([0, *(len(part) for part in parts)])
        self.shape = (int(self.starts[-1]), parts[0].shape[1])
        self.dtype = np.result_type(*(part.dtype for part in parts))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def first(self, count: int) -> "ShardedRows":
        """The first `count` rows, not read yet."""
        kept = [part[: max(0, count - start)] for start, part in zip(self.starts, self.parts, strict=False)]
        return ShardedRows([part for part in kept if len(part)] or kept[:1])

    @classmethod
    def chosen(cls, vectors: Any, numbers: np.ndarray) -> "ShardedRows":
        """The rows of these numbers, ascending, of an array or ShardedRows; not read yet."""
        parts = vectors.parts if isinstance(vectors, ShardedRows) else [vectors]
        starts = np.cumsum([0, *(len(part) for part in parts)])
        bounds = np.searchsorted(numbers, starts)
        spans = zip(parts, starts, bounds, bounds[1:], strict=False)
        kept = [_Chosen(part, numbers[low:high] - start) for part, start, low, high in spans if low < high]
        return cls(kept or [parts[0][:0]])

    def __getitem__(self, rows: Any) -> Any:
        first, *rest = (rows or (slice(None),)) if isinstance(rows, tuple) else (rows,)
        if isinstance(first, slice) and first.step in (None, 1):
            return self._span(first)[(slice(None), *rest)]
        chosen = self._chosen(first, rest)
        if chosen.ndim == 0:
            return self._gathered(chosen.reshape(1))[(0, *rest)]
        return self._gathered(chosen)[(slice(None), *rest)]

    def _chosen(self, first: Any, rest: Sequence[Any]) -> np.ndarray:
        """(k,) numbers of the rows, or () of one. Raises IndexError for what could not be done in two steps, rows
        first and then columns, as numpy does it in one."""
        shape = np.shape(first)
        chosen = np.asarray(np.arange(len(self))[first]) if len(shape) < 2 else None
        if chosen is None or chosen.ndim > 1 or (first is Ellipsis and rest):
            given = f"an array of shape {shape}" if shape else repr(first)
            raise IndexError(
                f"rows are chosen by {given}; expected an integer, a slice, a mask or indices (k,), or "
                "numpy.asarray of the whole, which reads all rows"
            )
        if shape and any(np.ndim(part) or isinstance(part, bool | np.bool_) for part in rest):
            raise IndexError(
                "rows and columns are both chosen by arrays, which numpy pairs one by one; choose rows first, "
                "x[rows], and then of these"
            )
        return chosen

    def _span(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(len(self))
        spans = [slice(max(0, start - first), max(0, stop - first)) for first in self.starts[:-1]]
        return np.concatenate([part[span] for part, span in zip(self.parts, spans, strict=True)])

    def _gathered(self, rows: np.ndarray) -> np.ndarray:
        shard = np.searchsorted(self.starts, rows, side="right") - 1
        out = np.empty((len(rows), self.shape[1]), self.dtype)
        for k in np.unique(shard):
            here = np.flatnonzero(shard == k)
            out[here] = self.parts[k][rows[here] - self.starts[k]]
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.concatenate(self.parts).astype(dtype or self.dtype, copy=False)


class _Chosen:
    """Rows of an array by their numbers, read when they are asked for: a part of ShardedRows."""

    ndim = 2

    def __init__(self, part: Any, numbers: np.ndarray):
        self.part, self.numbers = part, numbers
        self.shape, self.dtype = (len(numbers), part.shape[1]), part.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self.part[self.numbers[rows]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Embeddings:
    """One set of embeddings, raw as the encoder gave them.

    vectors: (n, d) floating point, possibly a memory map or ShardedRows. modality: "image" or "text".
    item_id: (n,) strings; two sets pair where their ids agree. None: rows pair by position.
    labels: (n,) of anything comparable, or None. pair_on: "label" for class prompts, which stand for
    every image of their class; "item_id" otherwise. metadata: further columns (text, path, …), each of n values.
    provenance: model, data set, split, seed, … as the store's manifest has them.
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
        if self.vectors.ndim != 2:
            raise InputError(
                f"{self.modality} embeddings have shape {self.vectors.shape}; expected rows and columns (n, d)"
            )
        columns = {"item_id": self.item_id, "labels": self.labels, **self.metadata}
        for name, column in columns.items():
            if column is not None and len(column) != len(self.vectors):
                raise InputError(
                    f"{self.modality} embeddings have {len(self.vectors)} rows but {len(column)} values of {name}"
                )

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        return self.vectors.shape[1]

    def take(self, rows: np.ndarray | slice, *, vectors: Any = None) -> "Embeddings":
        """The chosen rows, with everything that belongs to them. vectors: those rows, where they are at hand."""

        def pick(column):
            return None if column is None else column[rows]

        return Embeddings(
            vectors=self.vectors[rows] if vectors is None else vectors,
            modality=self.modality,
            item_id=pick(self.item_id),
            labels=pick(self.labels),
            language=self.language,
            pair_on=self.pair_on,
            metadata={name: column[rows] for name, column in self.metadata.items()},
            provenance=self.provenance,
        )


def pair(image: Embeddings, text: Embeddings, *, distinct: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Index arrays (i, j) such that image row i[k] and text row j[k] belong to the same item.

    Every match counts: an image with five captions gives five pairs, a class prompt one pair per image of its
    class. With distinct=True each item gives one pair, its first image with its first text, so that different pairs
    are different items. Sets without ids pair by position, if they are equally long. Order: by image row, then by
    text row.
    Raises InputError where nothing pairs.
    """
    on_label = "label" in (image.pair_on, text.pair_on)
    left = image.labels if on_label else image.item_id
    right = text.labels if on_label else text.item_id
    if left is None or right is None:
        if on_label or len(image) != len(text):
            raise InputError(
                f"{len(image)} {image.modality} rows and {len(text)} {text.modality} rows cannot be paired: "
                f"they carry no common {'label' if on_label else 'item_id'} and are not equally many"
            )
        return np.arange(len(image)), np.arange(len(text))
    rows_of = defaultdict(list)
    for j, key in enumerate(right):
        rows_of[key].append(j)
    matches = [(i, j) for i, key in enumerate(left) for j in rows_of.get(key, ())]
    if distinct:
        firsts = {left[i]: (i, j) for i, j in reversed(matches)}
        matches = sorted(firsts.values())
    if not matches:
        raise InputError(
            f"{image.modality} and {text.modality} rows have no {'label' if on_label else 'item_id'} in common"
        )
    i, j = np.array(matches).T
    return i, j
