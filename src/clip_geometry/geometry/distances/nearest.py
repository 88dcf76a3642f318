"""The k nearest neighbors of every row, exactly: found by products, measured by differences.

Products of float32 rows are fast and, for near rows, wrong. So they only select candidates, whose distances are then
taken from differences in float64; and each product is a lower bound of a distance, not an estimate of it, so that it
can be proved that no row was missed. Rows without a proof are searched again with float64 products and, where these
cannot tell either (ties, rows equal to seven digits), by the differences of all rows in question.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clip_geometry.geometry.distances.distinct import entries_at_a_time, squared_distances_of_pairs
from clip_geometry.geometry.distances.pairwise import single_is_exact
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Integer, whole_number
from clip_geometry.rows.matrix import Matrix, Rows, as_matrix, blocks, mean_row
from clip_geometry.rows.streamed import StreamedRows

QUERIES, COLUMNS = 512, 16384  # of a block of products: 32 MB of float32
STREAMED = 4  # times as many queries where every block of columns is read again for them
POSSIBLE = 2**22  # pairs that are looked at at a time where products cannot tell
DENSE = 8  # from one possible neighbor in 8 rows on, no row is looked up
GROUP = 8  # columns whose minimum is taken before the least are looked for


def as_rows_with_neighbors(
    x: Rows, k: Integer, *, name: str = "x", least_d: int = 1, least_k: int = 1
) -> tuple[Float[Matrix, "n d"], int]:
    """as_matrix with at least k + 1 rows, and k, from least_k on."""
    x = as_matrix(x, name=name, least_d=least_d)
    k = whole_number(k, "k", least=least_k, of=", of neighbors")
    if len(x) <= k:
        raise InputError(f"{name} has {len(x)} rows; expected at least {k + 1} for k = {k} neighbors, or a smaller k")
    return x, k


@torch.no_grad()
def nearest(
    x: Float[Matrix, "n d"], k: int, *, y: Float[Matrix, "m d"] | None = None
) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    """Euclidean distances to the k nearest rows, ascending, and the indices of these rows.

    Among the other rows of x (no row is its own neighbor, its copies are), or among the rows of y. x, y: checked rows
    of any precision; the distances are those of the rows as given, float64 to the last digits. Equally near rows come
    in the order of their indices, and where they compete for the k-th place the lowest index wins.
    O(nmd) time; beside the result the memory of one copy of the rows searched in (of StreamedRows none: they are read
    once for every QUERIES · STREAMED rows) and of a few blocks. Without gradient. Raises InputError for k outside
    1 … number of rows to choose from.
    """
    choice = len(x) - 1 if y is None else len(y)
    if not 1 <= k <= choice:
        raise InputError(f"k = {k} nearest of {choice} rows were asked for; expected k between 1 and {choice}")
    squares = torch.empty((len(x), k), dtype=torch.float64, device=x.device)
    indices = torch.empty_like(squares, dtype=torch.long)
    rows = torch.arange(len(x), device=x.device)  # those whose neighbors are not proved yet
    if single_is_exact(x.device):
        squares, indices, proved = _by_products(_Bounds(x, y, torch.float32), rows, k)
        rows = rows[~proved]
    if len(rows) > 0:
        bounds = _Bounds(x, y, torch.float64)
        squares[rows], indices[rows], proved = _by_products(bounds, rows, k)
        rows = rows[~proved]
        if len(rows) > 0:
            for part in rows.split(max(1, POSSIBLE // len(bounds.y))):
                squares[part], indices[part] = _nearest_possible(bounds, part, squares[part])
    return squares.sqrt(), indices


class _Bounds:
    """Lower bounds of squared distances, less ‖c_i‖², as one product of rows that carry two columns more.

    [c_i, ‖c_i‖, 1] · [−2 c_j, −2ε‖c_j‖, (1 − ε)‖c_j‖²] = ‖c_j‖² − 2⟨c_i, c_j⟩ − ε(2‖c_i‖‖c_j‖ + ‖c_j‖²) with c the
    rows less their mean, scaled by a power of two to at most 1, and ε the largest relative rounding of such a sum
    in whatever order it is taken (Higham 2002, section 3.1; subtracting any vector rounds relative to its result).
    """

    def __init__(self, x: Float[Matrix, "n d"], y: Float[Matrix, "m d"] | None, dtype: torch.dtype):
        self.x, self.y = x, x if y is None else y
        self.among_themselves = y is None
        self.dtype = dtype
        self.centre = mean_row(self.y)
        self.scale = 1.0  # until the longest is known
        sets = (x,) if y is None else (x, y)
        longest = torch.stack([self.centered(block).norm(dim=1).amax() for rows in sets for block in blocks(rows)])
        self.scale = 2.0 ** -math.frexp(float(longest.amax()))[1]
        terms = x.shape[1] + 20  # the last digits of entries, norms and ε included
        self.epsilon, self.exact_epsilon = (1.03 * terms * torch.finfo(kind).eps / 2 for kind in (dtype, torch.float64))
        self.underflow = 4 * terms * torch.finfo(dtype).tiny
        streamed = isinstance(self.y, StreamedRows)
        self._kept = None if streamed else tuple(self._right(part) for part in self.y.split(COLUMNS))

    @property
    def numbers(self) -> range:
        """Of the blocks of columns."""
        return range(-(-len(self.y) // COLUMNS))

    def columns(self, number: int) -> Float[Tensor, "c d2"]:
        if self._kept is not None:
            return self._kept[number]
        return self._right(self.y[number * COLUMNS : (number + 1) * COLUMNS])

    def centered(self, rows: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        return (rows.double() - self.centre) * self.scale

    def _right(self, rows: Float[Tensor, "b d"]) -> Float[Tensor, "b d2"]:
        parts = []
        for block in blocks(rows):
            c = self.centered(block)
            norms = c.norm(dim=1, keepdim=True)
            bound = (-2 * c, -2 * self.epsilon * norms, (1 - self.epsilon) * norms.square())
            parts.append(torch.cat(bound, dim=1).to(self.dtype))
        return torch.cat(parts)

    def left(self, rows: Int[Tensor, " b"]) -> tuple[Float[Tensor, "b d2"], Float[Tensor, " b"]]:
        """The left factor, and what is to be added to the product, rounding included: a little less than ‖c_i‖²."""
        c = self.centered(self.x[rows])
        norms = c.norm(dim=1, keepdim=True)
        factor = torch.cat((c, norms, torch.ones_like(norms)), dim=1).to(self.dtype)
        return factor, (1 - self.exact_epsilon) * norms.squeeze(1).square() - self.underflow

    def block(self, left: Float[Tensor, "b d2"], number: int, rows: Int[Tensor, " b"]) -> Float[Tensor, "b c"]:
        """The products with one block of columns; a row and itself are infinitely far apart."""
        products = left @ self.columns(number).T
        if self.among_themselves:
            own = rows - number * COLUMNS
            there = (own >= 0) & (own < products.shape[1])
            column = own.clamp(0, products.shape[1] - 1)[:, None]  # without asking which: that would wait for a GPU
            products.scatter_(1, column, torch.where(there[:, None], torch.inf, products.gather(1, column)))
        return products

    def scaled(self, squares: Tensor) -> Tensor:
        """Exact squared distances in the bounds' units, rounding included."""
        return squares * self.scale**2 * (1 + self.exact_epsilon)


class _Found(NamedTuple):
    squares: Float[Tensor, "b k"]  # ascending
    indices: Int[Tensor, "b k"]
    proved: Bool[Tensor, " b"]


def _by_products(bounds: _Bounds, rows: Int[Tensor, " b"], k: int) -> _Found:
    """The k nearest of some more candidates; proved where every other row's bound exceeds their distance."""
    choice = len(bounds.y) - bounds.among_themselves
    count = min(k + max(4, k // 8), choice)
    found = []
    for part in rows.split(QUERIES * (8 if rows.is_cuda else STREAMED if isinstance(bounds.y, StreamedRows) else 1)):
        left, add = bounds.left(part)
        least, indices = left.new_empty((len(part), 0)), part.new_empty((len(part), 0))
        for number in bounds.numbers:  # the least bounds of each row and their indices, in no order
            new, columns = _least(bounds.block(left, number, part), count)
            least, indices = torch.cat((least, new), 1), torch.cat((indices, columns + number * COLUMNS), 1)
            least, kept = least.topk(min(count, least.shape[1]), dim=1, largest=False, sorted=False)
            indices = indices.gather(1, kept)
        indices = indices.sort(dim=1).values  # stable sorting by distance leaves ties in this order
        squares, order = _squared_differences(bounds.x[part], bounds.y, indices).sort(dim=1, stable=True)
        proved = bounds.scaled(squares[:, k - 1]) < least.amax(1).double() + add
        if count == choice:
            proved = torch.ones_like(proved)
        found.append(_Found(squares[:, :k], indices.gather(1, order[:, :k]), proved))
    return _Found(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _squared_differences(
    x: Float[Tensor, "b d"], y: Float[Matrix, "m d"], indices: Int[Tensor, "b k"]
) -> Float[Tensor, "b k"]:
    """‖x_i − y_j‖² of each row and its candidates, from differences in float64: near rows keep all digits."""
    step = max(1, entries_at_a_time(x.device) // (x.shape[1] * indices.shape[1]))
    parts = []
    for rows, near in zip(x.split(step), indices.split(step), strict=True):
        differences = y[near.flatten()].double().unflatten(0, near.shape)
        differences -= rows.double()[:, None]
        parts.append(differences.square_().sum(-1))
    return torch.cat(parts)


def _least(values: Float[Tensor, "b c"], count: int) -> tuple[Float[Tensor, "b k"], Int[Tensor, "b k"]]:
    """The `count` least of each row and their columns, in no order.

    They lie in the `count` groups of columns with the least minima (and the columns left over), which are found
    faster than the values themselves, and in groups again.
    """
    groups = values.shape[1] // GROUP
    if groups < 2 * count:
        return values.topk(min(count, values.shape[1]), dim=1, largest=False, sorted=False)
    minima = values[:, : groups * GROUP].unflatten(1, (GROUP, groups)).amin(1)
    _, near = _least(minima, count)
    members = groups * torch.arange(GROUP, device=values.device)
    columns = (near[:, :, None] + members).flatten(1)
    rest = torch.arange(groups * GROUP, values.shape[1], device=values.device).expand(len(values), -1)
    columns = torch.cat((columns, rest), dim=1)
    least, kept = values.gather(1, columns).topk(count, dim=1, largest=False, sorted=False)
    return least, columns.gather(1, kept)


def _nearest_possible(
    bounds: _Bounds, rows: Int[Tensor, " b"], known: Float[Tensor, "b k"]
) -> tuple[Float[Tensor, "b k"], Int[Tensor, "b k"]]:
    """By differences, of all rows that can be as near as the k-th of those known: no proof is needed."""
    left, add = bounds.left(rows)
    limit = (bounds.scaled(known[:, -1]) - add)[:, None]
    possible = torch.cat([bounds.block(left, n, rows) <= limit for n in bounds.numbers], dim=1)
    i, j = possible.nonzero(as_tuple=True)
    if len(i) > possible.numel() // DENSE:  # many ties: all distances are faster than gathering most of them
        every = torch.arange(len(bounds.y), device=rows.device).expand(len(rows), -1)
        squares = _squared_differences(bounds.x[rows], bounds.y, every)[i, j]
    else:
        squares = squared_distances_of_pairs(bounds.x, bounds.y, rows[i], j)
    order = squares.argsort(stable=True)
    order = order[i[order].argsort(stable=True)]  # by row, then distance, then index
    counts = torch.bincount(i, minlength=len(rows))
    ranks = torch.arange(known.shape[1], device=rows.device)
    chosen = order[(counts.cumsum(0) - counts)[:, None] + ranks]
    return squares[chosen], j[chosen]
