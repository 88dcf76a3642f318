"""Exact k nearest neighbors of each row.

Products of float32 rows are fast, but wrong for near rows. They are therefore used only to select candidates, whose
distances are then computed from differences in float64. Each product is a lower bound of a distance, not an estimate,
so it can be proved that no row was missed. Rows without such a proof are searched again with float64 products. If these
cannot decide either (ties, rows equal to seven digits), the differences to all rows in question are computed.
"""

import functools
import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clip_geometry.geometry.distances.best_scores import BestScores
from clip_geometry.geometry.distances.pairwise import entries_at_a_time, single_is_exact, squared_distances_of_pairs
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import BLOCK, CACHED, SUMMED, Matrix, mean_row
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.rows.threads import spans_in_threads

QUERIES, COLUMNS = 512, 16384  # size of a block of products: 32 MB of float32
COLUMN_ENTRIES = 2**23  # entries of the rows behind the columns of a block: 64 MB in float64
SQUARE = 2048, 4096  # size of a block that is used for both its rows and its columns
FEW = 32  # largest k for which such blocks pay off
STREAMED = 4  # factor on the number of queries if each block of columns is read again for every block of queries
POSSIBLE = 2**22  # pairs per block where products cannot decide
DENSE = 8  # if more than one row in 8 is a possible neighbor, all distances are computed
MANY = 1024  # fewest rows whose neighbor lists are cached for the next statistic
LISTS, LIST_BYTES = 8, 2**24  # number of cached lists, and bytes of one: 100 neighbors of 10,000 rows
UNDECIDED = 64  # if more than one comparison in 64 is undecided, float64 products are faster than differences of these


@torch.no_grad()
def nearest(
    x: Float[Matrix, "n d"], k: int, *, y: Float[Matrix, "m d"] | None = None
) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    """Return the Euclidean distances to the k nearest rows, in ascending order, and the indices of these rows.

    The search is among the rows of y or, without y, among the other rows of x: a row is not its own neighbor, but its
    copies are. x and y are checked rows of any precision. Distances are those of the rows as given, exact to the last
    digits of float64. Equally near rows are in the order of their indices, and the lowest index wins the k-th place.
    The cost is O(nmd). Besides the result, the memory needed is one copy of the rows that are searched and a few
    blocks; StreamedRows are not copied, but read once for every QUERIES · STREAMED rows. The result has no gradient.
    Raises InputError unless k is between 1 and the number of rows to choose from.
    """
    choice = len(x) - 1 if y is None else len(y)  # number of rows to choose from
    if not 1 <= k <= choice:
        raise InputError(f"k = {k}; expected a number of nearest rows from 1 to {choice}")
    return _nearest(x, k, y) if isinstance(x, StreamedRows) or y is not None else _nearest_cached(x, k)


def _nearest(x: Float[Matrix, "n d"], k: int, y: Float[Matrix, "m d"] | None):
    """Return distances (n, k) and indices (n, k) of the k nearest rows of y, or of x without the row itself."""
    if y is None and _is_faster_both_ways(x, k):
        return _completed(x, y, _both_ways(_Bounds(x, y, torch.float32), k, k)[0])
    rows = torch.arange(len(x), device=x.device)
    dtype = torch.float32 if single_is_exact(x.device) else torch.float64
    return _completed(x, y, _by_products(_Bounds(x, y, dtype), rows, k))


# cached neighbor lists, keyed by a digest of the rows, which takes a fiftieth of the time of a search; None disables
# the cache
_cached_lists: dict[tuple[Any, ...], tuple[Tensor, Tensor]] | None = None


@contextmanager
def keeping_lists() -> Iterator[None]:
    """Cache neighbor lists within this context, so that statistics of the same rows search only once."""
    global _cached_lists
    outer = _cached_lists
    if outer is None:
        _cached_lists = {}
    try:
        yield
    finally:
        _cached_lists = outer


def _nearest_cached(x: Float[Tensor, "n d"], k: int) -> tuple[Tensor, Tensor]:
    """Return the k nearest other rows, from a cache by content for many rows on the CPU."""
    if _cached_lists is None or x.is_cuda or len(x) < MANY or 16 * len(x) * k > LIST_BYTES:
        return _nearest(x, k, None)
    content: Any = x.detach().contiguous().view(torch.uint8).numpy()
    key = hashlib.sha256(content).digest(), x.dtype, x.shape
    lists = _cached_lists.pop(key, None)
    if lists is None or lists[0].shape[1] < k:
        lists = _nearest(x, k, None)
    _cached_lists[key] = lists
    for oldest in list(_cached_lists)[:-LISTS]:
        del _cached_lists[oldest]
    distances, indices = lists
    return distances[:, :k].clone(), indices[:, :k].clone()


@torch.no_grad()
def nearest_both_ways(
    x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], k: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return `nearest` of x among y and of y among x, from the same products.

    If a set has fewer than k rows, all of them are returned.
    """
    if not _is_faster_both_ways(x, k):
        return nearest(x, min(k, len(y)), y=y), nearest(y, min(k, len(x)), y=x)
    of_x, of_y = _both_ways(_Bounds(x, y, torch.float32), min(k, len(y)), min(k, len(x)))
    return _completed(x, y, of_x), _completed(y, x, of_y)


def _is_faster_both_ways(x: Float[Matrix, "n d"], k: int) -> bool:
    """Return whether selecting neighbors by rows and by columns is faster than computing the products twice."""
    return not isinstance(x, StreamedRows) and not x.is_cuda and k <= FEW and single_is_exact(x.device)


def _completed(x: Float[Matrix, "n d"], y: Float[Matrix, "m d"] | None, neighbors: "_ProvedNeighbors"):
    """Return distances and indices, after an exact search for the rows whose neighbors the bounds do not prove."""
    squares, indices, proved = neighbors
    rows = (~proved).nonzero()[:, 0]
    if len(rows) > 0:
        bounds = _Bounds(x, y, torch.float64)
        squares[rows], indices[rows], proved = _by_products(bounds, rows, squares.shape[1])
        rows = rows[~proved]
        for batch in rows.split(max(1, POSSIBLE // len(bounds.y))):
            squares[batch], indices[batch] = _nearest_possible(bounds, batch, squares[batch])
    return squares.sqrt(), indices


class _Bounds:
    """Lower bounds of squared distances, computed as one product of rows with three additional columns.

    [c_i, ‖c_i‖, 1, (1 − ε)‖c_i‖²] · [−2 c_j, −2ε‖c_j‖, (1 − ε)‖c_j‖², 1] = ‖c_i − c_j‖² − ε(‖c_i‖ + ‖c_j‖)², where c
    are the centered rows, scaled by a power of two to norms of at most 1, and ε is the largest relative rounding error
    of such a sum, whatever the order of summation (Higham 2002, section 3.1; subtracting any vector rounds relative to
    its result).
    """

    def __init__(self, x: Float[Matrix, "n d"], y: Float[Matrix, "m d"] | None, dtype: torch.dtype):
        self.x = x.detach()  # threads record gradients, even if the caller does not
        self.y = self.x if y is None else y.detach()
        self.among_themselves = y is None
        self.dtype = dtype
        self.centre = mean_row(self.y)
        self.scale = 1.0  # until the longest row is known
        self.at_once = BLOCK if x.is_cuda else CACHED  # rows whose float64 copies stay in the cache
        sets = (self.x,) if y is None else (self.x, self.y)
        blocks = (block for rows in sets if len(rows) for block in rows.split(SUMMED))
        # a list of the results would keep the allocator from reusing the memory of freed blocks
        longest = functools.reduce(torch.maximum, map(self._longest, blocks))
        self.scale = 2.0 ** -math.frexp(float(longest))[1]
        terms = x.shape[1] + 20  # includes the rounding of entries, norms and ε
        self.epsilon = 1.03 * terms * torch.finfo(dtype).eps / 2
        self.exact_epsilon = 1.03 * terms * torch.finfo(torch.float64).eps / 2
        self.underflow = 4 * terms * torch.finfo(dtype).tiny
        self._right = None  # right factor of all rows, unless they are streamed
        if not isinstance(self.y, StreamedRows):
            self._right = self._factor(self.y, right=True)

    def centered(self, rows: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        return rows.to(torch.float64, copy=True).sub_(self.centre).mul_(self.scale)

    def _longest(self, rows: Float[Tensor, "b d"]) -> Float[Tensor, ""]:
        """Return the largest norm of the centered rows."""

        def longest(span: slice) -> Tensor:
            return torch.stack(
                [self.centered(part).norm(dim=1).amax() for part in rows[span].split(self.at_once)]
            ).amax()

        return torch.stack(self._in_spans(longest, rows)).amax()

    def _factor(self, rows: Float[Tensor, "b d"], *, right: bool) -> Float[Tensor, "b d3"]:
        """Return factors whose products are lower bounds of squared distances despite rounding."""
        factor = torch.ones((len(rows), rows.shape[1] + 3), dtype=self.dtype, device=rows.device)

        def fill(span: slice) -> None:
            for part, out in zip(rows[span].split(self.at_once), factor[span].split(self.at_once), strict=True):
                c = self.centered(part)
                norms = c.norm(dim=1)
                out[:, :-3] = c.mul_(-2) if right else c
                out[:, -3] = -2 * self.epsilon * norms if right else norms
                out[:, -2 if right else -1] = (1 - self.epsilon) * norms.square()

        self._in_spans(fill, rows)
        return factor

    def _in_spans(self, function: Callable[[slice], Any], rows: Float[Tensor, "b d"]) -> list[Any]:
        """Return `function` of spans of the rows, which threads of the CPU compute without waiting for each other."""
        return [function(slice(0, len(rows)))] if rows.is_cuda else spans_in_threads(function, len(rows))

    def left(self, rows: Int[Tensor, " b"]) -> Float[Tensor, "b d3"]:
        """Return the left factor of the given rows."""
        return self._factor(self.x[rows], right=False)

    def block(self, left: Float[Tensor, "b d3"], first: int, size: int, rows: Int[Tensor, " b"]):
        """Return the bounds of some rows and `size` columns, b × c; the bound of a row and itself is infinite."""
        columns = slice(first, first + size)
        right = self._factor(self.y[columns], right=True) if self._right is None else self._right[columns]
        products = left @ right.T
        if self.among_themselves:
            own = rows - first
            inside = (own >= 0) & (own < products.shape[1])
            # without branching on `inside`, which would wait for the GPU
            column = own.clamp(0, products.shape[1] - 1)[:, None]
            products.scatter_(1, column, torch.where(inside[:, None], torch.inf, products.gather(1, column)))
        return products

    def scaled(self, squares: Tensor) -> Tensor:
        """Return exact squared distances in the unit of the bounds, plus the largest rounding error."""
        return squares * self.scale**2 * (1 + self.exact_epsilon) + self.underflow


class _ProvedNeighbors(NamedTuple):
    squares: Float[Tensor, "b k"]  # ascending
    indices: Int[Tensor, "b k"]
    proved: Bool[Tensor, " b"]


class _Candidates:
    """The least bounds so far of each of n rows, slightly more than k of them."""

    def __init__(self, n: int, k: int, choice: int, bounds: Tensor):
        self.k = k
        self.choice = choice
        self.count = min(k + max(4, k // 8), choice)
        self.least = BestScores(n, self.count, lowest=True, dtype=bounds.dtype, device=bounds.device)

    def add(self, rows: slice, bounds: Float[Tensor, "b c"], first: int) -> None:
        """Add the bounds of some rows to the columns from `first` on."""
        self.least.add(bounds, torch.arange(first, first + bounds.shape[1], device=bounds.device), rows)

    def measured(self, x: Float[Tensor, "n d"], y: Float[Matrix, "m d"], bounds: _Bounds) -> _ProvedNeighbors:
        """Return the k nearest candidates; a row is proved if the bounds of all other rows exceed their distances."""
        # stable sorting by distance then keeps ties in the order of their indices
        indices = self.least.items.sort(dim=1).values
        squares, order = _squared_differences(x, y, indices).sort(dim=1, stable=True)
        proved = bounds.scaled(squares[:, self.k - 1]) < self.least.scores.amax(1).double()
        proved |= self.count == self.choice
        return _ProvedNeighbors(squares[:, : self.k], indices.gather(1, order[:, : self.k]), proved)


def _by_products(bounds: _Bounds, rows: Int[Tensor, " b"], k: int) -> _ProvedNeighbors:
    """Find the k nearest rows by bounds on distances from matrix products, one block of columns at a time."""
    choice = len(bounds.y) - bounds.among_themselves
    columns = max(1024, min(COLUMNS, COLUMN_ENTRIES // bounds.y.shape[1]))
    queries = QUERIES
    if rows.is_cuda:
        queries *= 8
    elif isinstance(bounds.y, StreamedRows):
        queries *= STREAMED
    neighbors = []
    for batch in rows.split(queries):
        left = bounds.left(batch)
        candidates = _Candidates(len(batch), k, choice, left)
        for first in range(0, len(bounds.y), columns):
            candidates.add(slice(None), bounds.block(left, first, columns, batch), first)
        neighbors.append(candidates.measured(bounds.x[batch], bounds.y, bounds))
    return _ProvedNeighbors(*(torch.cat(parts) for parts in zip(*neighbors, strict=True)))


def _both_ways(bounds: _Bounds, k_x: int, k_y: int) -> tuple[_ProvedNeighbors, _ProvedNeighbors]:
    """Return the nearest rows of y for each row of x and vice versa; within one set each product is computed once."""
    own, x, y = bounds.among_themselves, bounds.x[:], bounds.y[:]
    of_x = _Candidates(len(x), k_x, len(y) - own, bounds.left(torch.arange(0)))
    of_y = of_x if own else _Candidates(len(y), k_y, len(x), of_x.least.scores)
    for rows in torch.arange(len(x)).split(SQUARE[0]):
        start, stop = int(rows[0]), int(rows[-1]) + 1
        left = bounds.left(rows)
        for first in range(start if own else 0, len(y), SQUARE[1]):
            products = bounds.block(left, first, SQUARE[1], rows)
            of_x.add(slice(start, stop), products, first)
            beyond = max(first, stop) if own else first  # earlier columns are rows of this block
            if beyond < first + products.shape[1]:
                of_y.add(slice(beyond, first + products.shape[1]), products[:, beyond - first :].T, start)
    neighbors_of_x = of_x.measured(x, y, bounds)
    return neighbors_of_x, neighbors_of_x if own else of_y.measured(y, x, bounds)


@torch.no_grad()
def count_nearer(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "m d"] | None,
    squares: Float[Tensor, " n"],
    is_nearer: Callable[[Tensor, Tensor], Tensor],
    *,
    slack: float = 0.0,
) -> Int[Tensor, " n"]:
    """Count the rows of y, or the other rows of x, that are nearer to each row of x than its value in `squares` allows.

    Most pairs are decided by bounds on both sides. `is_nearer` decides the remaining pairs (i, j) of rows; if there are
    many of them, float64 products are tried first. `slack` is the largest difference between `squares` and the squares
    that is_nearer allows.
    """
    bounds_in = functools.cache(lambda dtype: _Bounds(x, y, dtype))

    def compared(dtype: torch.dtype, rows: Tensor, first: int) -> tuple[Tensor, Tensor]:
        """Return which columns are nearer, and which are undecided."""
        bounds = bounds_in(dtype)
        left = bounds.left(rows)
        low, high = (bounds.scaled(squares[rows, None] + change) for change in (-slack, slack))
        # bounds fall short of the distances by at most twice ε(‖c_i‖ + ‖c_j‖)²
        shortfall = 2.1 * bounds.epsilon * (left[:, -3:-2].double() + 1).square() + 2 * bounds.underflow
        products = bounds.block(left, first, COLUMNS, rows)
        nearer = products < (low - 1.1 * shortfall).to(dtype)
        return nearer, (products <= (high + 0.1 * shortfall).to(dtype)) ^ nearer

    counts = torch.zeros(len(x), dtype=torch.long, device=x.device)
    for rows in torch.arange(len(x), device=x.device).split(QUERIES):
        for first in range(0, len(x if y is None else y), COLUMNS):
            use_float32 = single_is_exact(x.device)
            nearer, undecided = compared(torch.float32 if use_float32 else torch.float64, rows, first)
            if use_float32 and undecided.count_nonzero() * UNDECIDED > undecided.numel():
                nearer, undecided = compared(torch.float64, rows, first)
            i, j = undecided.nonzero(as_tuple=True)
            counts[rows] += nearer.sum(1, dtype=torch.int32)  # twelve times as fast as in int64
            counts.index_add_(0, rows[i], is_nearer(rows[i], j + first).long())
    return counts


def _squared_differences(
    x: Float[Tensor, "b d"], y: Float[Matrix, "m d"], indices: Int[Tensor, "b k"]
) -> Float[Tensor, "b k"]:
    """Return ‖x_i − y_j‖² for each row and its candidates from float64 differences, which are exact for near rows."""
    step = max(1, entries_at_a_time(x.device) // (x.shape[1] * indices.shape[1]))
    squares = torch.empty(indices.shape, dtype=torch.float64, device=x.device)
    # reused, because a new allocation each time costs as much as the copy
    buffer = x.new_empty((step * indices.shape[1], x.shape[1]), dtype=y.dtype)
    for rows, near, out in zip(x.split(step), indices.split(step), squares.split(step), strict=True):
        j = near.flatten()
        neighbors = y[j] if isinstance(y, StreamedRows) else torch.index_select(y, 0, j, out=buffer[: len(j)])
        differences = neighbors.double().unflatten(0, near.shape)
        differences -= rows.double()[:, None]
        torch.sum(differences.square_(), -1, out=out)
    return squares


def _nearest_possible(
    bounds: _Bounds, rows: Int[Tensor, " b"], squares_so_far: Float[Tensor, "b k"]
) -> tuple[Float[Tensor, "b k"], Int[Tensor, "b k"]]:
    """Find the k nearest rows by computing the differences to all rows that may be as near as the k-th row so far."""
    left = bounds.left(rows)
    limit = bounds.scaled(squares_so_far[:, -1:])
    firsts = range(0, len(bounds.y), COLUMNS)
    possible = torch.cat([bounds.block(left, first, COLUMNS, rows) <= limit for first in firsts], dim=1)
    i, j = possible.nonzero(as_tuple=True)
    # with many ties, computing all distances is faster than gathering most of the rows
    if len(i) > possible.numel() // DENSE:
        indices = torch.arange(len(bounds.y), device=rows.device).expand(len(rows), -1)
        squares = _squared_differences(bounds.x[rows], bounds.y, indices)[i, j]
    else:
        squares = squared_distances_of_pairs(bounds.x, bounds.y, rows[i], j)
    order = squares.argsort(stable=True)
    order = order[i[order].argsort(stable=True)]  # sorted by row, then distance, then index
    counts = torch.bincount(i, minlength=len(rows))
    ranks = torch.arange(squares_so_far.shape[1], device=rows.device)
    chosen = order[(counts.cumsum(0) - counts)[:, None] + ranks]
    return squares[chosen], j[chosen]
