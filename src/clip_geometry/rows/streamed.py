"""Streaming, out-of-core rows, which are read block by block in every pass of a measure."""

import copy
import functools
import mmap
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.rows.arguments import Numbers, as_tensor, check_values
from clip_geometry.rows.threads import spans_in_threads

Read = Callable[[Any], Tensor]  # (slice or indices) → rows
Map = Callable[[Tensor, Numbers], Tensor]  # (block of rows, their numbers) → as many rows
Aggregate = Callable[..., Any]  # does `StreamedRows.aggregate` elsewhere; takes the rows and its arguments
Accumulate = Callable[[Any, Tensor, Any], Any]  # (result so far, block of rows, the values along it) → new result

NOISE = 4096  # rows per block of noise; each block has its own seed
MAPPED = 512  # rows at a time, so that intermediate results stay in the cache


class StreamedRows:
    """A matrix of n rows and d columns that is not in memory, accepted by measures with `Measure.streams`.

    x[a:b], x[indices] and x[i] read tensors; `split`, `blocks` and `unit_blocks` iterate over all rows. `map`, `take`
    and `cat` read nothing and return other StreamedRows. Values are checked when they are first read; NaN and infinity
    raise InputError.

    `dtype` is the type of the rows as read, `stored` the type of the numbers that they are made from. `known` holds
    results of earlier passes, such as the mean, for the next measure. `engine` runs the passes that are aggregations
    (see `aggregated_by`); None runs them in this process. Pickling drops `known` and `engine`.
    """

    ndim = 2
    requires_grad = is_cuda = False
    device = torch.device("cpu")

    def __init__(
        self,
        read: Read,
        shape: tuple[int, int],
        dtype: torch.dtype,
        *,
        stored: torch.dtype | None = None,
        name: str = "x",
    ):
        self._read = read
        self.shape = shape
        self.dtype = dtype
        self.stored = stored or dtype
        self.name = name
        self.known: dict[str, Any] = {}
        self.engine: Aggregate | None = None
        self._checked = 0  # number of leading rows that have been checked

    @classmethod
    def of(cls, source: Any, *, name: str = "x", watch: Callable[[int], object] | None = None) -> "StreamedRows":
        """Return the rows of a memory map, or of any object with a shape that returns arrays for slices and indices.

        `name` is the name of the rows in messages. `watch` is called with the number of rows after each block has been
        read.
        """

        def read(rows: Any) -> Tensor:
            values: Any = source[rows if isinstance(source, Tensor) or isinstance(rows, slice) else rows.numpy()]
            if getattr(values, "_mmap", None) is not None:
                values = values.copy()  # because the pages are released next
            block = as_tensor(values, name)
            release(source)
            if watch is not None:
                watch(len(block))
            return block

        n, d = source.shape
        return cls(read, (n, d), as_tensor(source[:1], name).dtype, name=name)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Tensor:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                stop = max(start, stop)
                block = self._read(slice(start, stop))
                if stop > self._checked:
                    self._check(block, start)
                    self._checked = stop if start <= self._checked else self._checked
                return block
            rows = range(start, stop, step)
        rows = torch.tensor(rows, dtype=torch.long) if isinstance(rows, range) else torch.as_tensor(rows)
        return self._chosen(rows) if rows.ndim else self._chosen(rows[None])[0]

    def _chosen(self, rows: Tensor) -> Tensor:
        """Return the rows of a mask or of indices; negative indices count from the end."""
        n = len(self)
        if rows.dtype == torch.bool:
            if rows.shape != (n,):
                raise IndexError(f"a mask of shape {tuple(rows.shape)} was given for {n} rows; expected shape ({n},)")
            rows = rows.nonzero()[:, 0]
        outside = (rows < -n) | (rows >= n)
        if outside.any():
            raise IndexError(f"row {int(rows[outside][0])} is out of range; expected one of {n} rows")
        rows = torch.where(rows < 0, rows + n, rows)
        block = self._read(rows)
        check_values(block, self.name, rows)
        return block

    def _check(self, block: Tensor, first: int) -> None:
        """Raise an error if a row of the block is not finite; `first` is the number of its first row."""

        def check(rows: slice) -> None:
            check_values(block[rows], self.name, range(first + rows.start, first + rows.stop))

        spans_in_threads(check, len(block))

    def split(self, size: int) -> Iterator[Tensor]:
        """Iterate over the rows as they are, `size` at a time."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def aggregate(
        self,
        zero: Callable[[], Any],
        accumulate: Accumulate,
        merge: Callable[[Any, Any], Any],
        size: int,
        along: Tensor | None = None,
    ) -> Any:
        """Run one pass: apply `accumulate`, starting from zero(), to consecutive blocks of `size` rows.

        `along` has one entry per row, (n,), and is split into the same blocks. An engine does this elsewhere for spans
        of the rows, and combines their results in order with `merge`.
        """
        if self.engine is not None:
            return self.engine(self, zero, accumulate, merge, size, along)
        return aggregate_blocks(self, zero, accumulate, size, along, range(len(self)))

    def aggregated_by(self, engine: Aggregate | None) -> "StreamedRows":
        """Return the same rows with the engine that runs their passes. The results of `map` and `take` use it, too."""
        rows = copy.copy(self)
        rows.known = {}
        rows.engine = engine
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "known": {}, "engine": None}

    def map(self, function: Map, d: int, *, dtype: torch.dtype = torch.float64) -> "StreamedRows":
        """Return rows of d columns that `function` computes from a block of these rows and their row numbers.

        Several threads may call the function at the same time.
        """

        def read(rows: Any) -> Tensor:
            block = self[rows]
            numbers = range(rows.start, rows.stop) if isinstance(rows, slice) else rows
            out = torch.empty((len(block), d), dtype=dtype)

            def fill(parts: slice) -> None:
                for k in range(parts.start, parts.stop):
                    span = slice(MAPPED * k, MAPPED * (k + 1))
                    out[span] = function(block[span], numbers[span])

            spans_in_threads(fill, -(-len(block) // MAPPED), fewest=2)
            return out

        rows = StreamedRows(read, (len(self), d), dtype, stored=self.stored, name=self.name)
        return rows.aggregated_by(self.engine)

    def take(self, indices: Int[Tensor, " m"]) -> "StreamedRows":
        """Return the rows with these numbers, in this order."""
        shape = len(indices), self.shape[1]
        rows = StreamedRows(lambda rows: self[indices[rows]], shape, self.dtype, stored=self.stored, name=self.name)
        return rows.aggregated_by(self.engine)

    def double(self) -> "StreamedRows":
        return self.map(lambda block, _: block.double(), self.shape[1])

    def detach(self) -> "StreamedRows":
        return self

    def to(self, device: torch.device) -> "StreamedRows":
        """Return the rows unchanged: they are read to the CPU, whatever the device of other rows."""
        return self


def aggregate_blocks(
    x: StreamedRows, zero: Callable[[], Any], accumulate: Accumulate, size: int, along: Tensor | None, span: range
) -> Any:
    """Aggregate over the blocks of a span of the rows; `along` holds the values for the rows of the span."""
    total = zero()
    for start in range(span.start, span.stop, size):
        stop = min(start + size, span.stop)
        values = None if along is None else along[start - span.start : stop - span.start]
        total = accumulate(total, x[start:stop], values)
    return total


def cat(parts: Sequence[StreamedRows]) -> StreamedRows:
    """Return the rows of all parts, one part after the other, in the widest of their precisions."""
    starts = [0]
    for part in parts:
        starts.append(starts[-1] + len(part))
    dtype = functools.reduce(torch.promote_types, [part.dtype for part in parts])
    stored = functools.reduce(torch.promote_types, [part.stored for part in parts])

    def read(rows: Any) -> Tensor:
        if isinstance(rows, slice):
            blocks = []
            for part, (a, b) in zip(parts, pairwise(starts), strict=True):
                span = slice(max(rows.start, a) - a, min(rows.stop, b) - a)
                if span.stop > span.start:
                    blocks.append(part._read(span).to(dtype))
            if not blocks:
                return parts[0]._read(slice(0, 0)).to(dtype)
            return blocks[0] if len(blocks) == 1 else torch.cat(blocks)
        out = torch.empty((len(rows), parts[0].shape[1]), dtype=dtype)
        for part, (a, b) in zip(parts, pairwise(starts), strict=True):
            of_part = (rows >= a) & (rows < b)
            out[of_part] = part._read(rows[of_part] - a).to(dtype)
        return out

    rows = StreamedRows(read, (starts[-1], parts[0].shape[1]), dtype, stored=stored, name=parts[0].name)
    return rows.aggregated_by(parts[0].engine)


def gaussian_rows(shape: tuple[int, int], seed: int, scale: float = 1.0) -> StreamedRows:
    """Return n × d independent normal numbers, which are the same on each read and never all in memory."""
    n, d = shape
    dtype = torch.float32 if 1e-30 < scale < 1e30 else torch.float64  # the type that can represent the numbers

    def block(k: int) -> Tensor:
        return _gaussian_block(k, (min(NOISE, n - k * NOISE), d), seed).to(dtype) * scale

    def read(rows: Any) -> Tensor:
        rows = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        out = torch.empty((len(rows), d), dtype=dtype)
        for k in (rows // NOISE).unique().tolist():
            of_block = rows // NOISE == k
            out[of_block] = block(k)[rows[of_block] - k * NOISE]
        return out

    return StreamedRows(read, shape, dtype)


@functools.lru_cache(maxsize=2)  # two sets are read in parallel
def _gaussian_block(k: int, shape: tuple[int, int], seed: int) -> Float[Tensor, "b d"]:
    generator = torch.Generator().manual_seed((k * 0x9E3779B1 + seed * 0x85EBCA6B) % 2**32)  # torch uses 32 bits
    return torch.randn(shape, generator=generator)


def taken(x: Any, rows: Any) -> Any:
    """Return the rows of an array with these numbers, an array of integers. StreamedRows are not read yet."""
    numbers = torch.as_tensor(rows)
    if torch.equal(numbers, torch.arange(len(x))):
        return x
    return x.take(numbers) if isinstance(x, StreamedRows) else x[rows]


def release(source: Any) -> None:
    """Release the pages of read-only memory maps: they stay in the system's cache, but not in this process.

    `source` is an array or LazyRows.
    """
    if not hasattr(mmap, "MADV_DONTNEED"):
        return
    mappings = {}
    for array in getattr(source, "parts", (source,)):
        mapping = getattr(array, "_mmap", None)
        if mapping is not None and not array.flags.writeable:
            mappings[id(mapping)] = mapping
    for mapping in mappings.values():
        mapping.madvise(mmap.MADV_DONTNEED)
