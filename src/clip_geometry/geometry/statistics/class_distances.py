"""Distances of each row to its own class and to the nearest other class, for the three metrics of the silhouette."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from clip_geometry.geometry.distances.by_class import mean_distances, sums_by_class
from clip_geometry.geometry.distances.pairwise import single_is_exact, squared_distances
from clip_geometry.geometry.statistics.class_sums import class_sums
from clip_geometry.geometry.statistics.statistic import BlockedRows, Statistic
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import (
    BLOCK,
    Labels,
    Matrix,
    Rows,
    as_codes,
    as_matrix,
    as_rows,
    as_two_sets,
    in_one_piece,
    total,
    unit_blocks,
    unit_rows,
)
from clip_geometry.rows.streamed import StreamedRows, cat

SIZE = 512  # rows per block: 2 MB of float64 at d = 512 stay in the cache from one step to the next
AT_ONCE = 2**20  # squared distances to means per block: 8 MB
RowFunction = Callable[["MeanDistances"], Tensor]  # returns one value per row


class MeanDistances(NamedTuple):
    """Mean distances of each row to the other rows of its class, and to the nearest other class.

    `alone` marks rows that are alone in their class.
    """

    own: Float[Tensor, "*n"]
    nearest: Float[Tensor, "*n"]
    alone: Bool[Tensor, "*n"]


class ClassDistances(Statistic):
    """Mean distances of labeled rows to their own class and to the nearest other class.

    Squared Euclidean and cosine distances use a closed form with the class means, O(ndK). Euclidean distances are
    summed in blocks that use each pair of rows once; no n × n matrix is held in memory.
    """

    includes_all = True  # except for Euclidean distances, whose measures are quadratic

    def __init__(self, x: Rows, labels: Labels):
        self.rows = as_matrix(x)
        self.codes, self.k = as_classes(labels, self.rows)

    def each(self, metric: str) -> MeanDistances:
        """Return the mean distances of each row, all in the same unit of length.

        `metric` is "euclidean", "sqeuclidean", "cosine" or "precomputed".
        """
        if metric == "precomputed":
            return _from_precomputed(as_rows(self.rows), self.codes, self.k)
        if metric == "euclidean":
            own, nearest = mean_distances(as_rows(self.rows), self.codes, self.k)
        else:
            own, nearest = mean_squared_distances(self.rows, self.codes, self.k, unit=metric == "cosine")
        return MeanDistances(own, nearest, torch.bincount(self.codes)[self.codes] == 1)

    def mean(self, function: RowFunction, metric: str) -> Float[Tensor, ""]:
        """Return the mean over the rows of a function of their mean distances.

        `function` is module-level and elementwise. Without each block it is called once for all blocks, with (n,
        blocks).
        """
        return function(self.each(metric)).mean()

    @classmethod
    def without_each(cls, rows: BlockedRows, labels: Any, /) -> Iterator["ClassDistances"]:
        codes, k = as_classes(labels, rows.rows)
        shared = _SharedDistances(rows, codes, k)
        return (ClassDistances.known(mean=partial(shared.mean, block)) for block in range(rows.blocks))


class ModalityDistances(ClassDistances):
    """`ClassDistances` of two sets, which are the classes."""

    same_as = ClassDistances

    def __init__(self, image: Rows, text: Rows):
        image, text = as_two_sets(image, text, ("image", "text"), streams=True)
        super().__init__(joined_rows(image, text), _modalities(image, text))

    @classmethod
    def without_each(cls, image: BlockedRows, text: Any, /) -> Iterator[ClassDistances]:
        # the sets are read one after the other, not copied
        rows = joined_rows(image.in_blocks, text.in_blocks)
        both = BlockedRows(rows, torch.cat([image.block_of, text.block_of]), image.blocks)
        return super().without_each(both, _modalities(image, text))


def joined_rows(image: Matrix, text: Matrix) -> Matrix:
    """Return the rows of both sets, one set after the other."""
    if isinstance(image, StreamedRows) and isinstance(text, StreamedRows):
        return cat([image, text])
    return torch.cat([image[:], text[:]])


def _modalities(image: Any, text: Any) -> Int[Tensor, " n"]:
    return torch.cat([torch.zeros(len(image)), torch.ones(len(text))]).long()


def as_classes(labels: Labels, x: Float[Matrix, "n d"]) -> tuple[Int[Tensor, " n"], int]:
    """Return `as_codes` on the device of x. Raises InputError if each row has its own label."""
    codes, k = as_codes(labels, len(x))
    if k == len(x):
        raise InputError(f"each of the {k} rows has a label of its own; expected a class with at least two rows")
    return codes.to(x.device), k


def _from_precomputed(distances: Float[Tensor, "n m"], codes: Int[Tensor, " n"], k: int) -> MeanDistances:
    """Return the mean distances of each row to each class, (n, k), from a matrix of distances."""
    zero = 100 * torch.finfo(distances.dtype).eps  # as in scikit-learn
    square = distances.shape[0] == distances.shape[1]
    if not square or (distances < -zero).any() or (distances.diagonal() > zero).any():
        raise InputError(
            f"x has shape {tuple(distances.shape)}; for metric 'precomputed', expected the distances between all rows, "
            "(n, n), with none negative and a diagonal of zeros"
        )
    sums = distances.new_zeros((len(codes), k), dtype=torch.float64).index_add(1, codes, distances.double())
    sizes = torch.bincount(codes)
    return distances_of_means(sums / sizes, codes, sizes)


def distances_of_means(
    means: Float[Tensor, "n *b k"], codes: Int[Tensor, " n"], sizes: Shaped[Tensor, "*b k"]
) -> MeanDistances:
    """Return the `MeanDistances` from the mean distances of each row to all rows of each class, including itself.

    Classes may be empty.
    """
    own_codes = codes.view(-1, *[1] * (means.ndim - 1)).expand(*means.shape[:-1], 1)
    counts = sizes.movedim(-1, 0)[codes].double()
    own = means.gather(-1, own_codes)[..., 0] * counts / (counts - 1).clamp(min=1)
    nearest = means.masked_fill(sizes == 0, torch.inf).scatter(-1, own_codes, torch.inf).amin(-1)
    return MeanDistances(own, nearest, counts == 1)


class _SharedDistances:
    """Mean distances without each block, computed from work that all blocks share."""

    def __init__(self, rows: BlockedRows, codes: Int[Tensor, " n"], k: int):
        self.rows, self.codes, self.k = rows, codes, k
        # the block and the class of each row as one number; rows that are never left out form an additional block
        self.cells = rows.groups * k + codes
        counts = torch.bincount(self.cells, minlength=(rows.blocks + 1) * k).double()
        self.sizes = rows.kept_groups.to(counts.device) @ counts.view(-1, k)  # rows of each class, without each block
        self.batch_size = min(BLOCK, max(1, AT_ONCE // (rows.blocks * k)))  # rows at a time
        self._means: dict[tuple[RowFunction, str], Tensor] = {}

    @torch.no_grad()
    def mean(self, block: int, function: RowFunction, metric: str) -> Float[Tensor, ""]:
        sizes = self.sizes[block]
        n, labels = int(sizes.sum()), int((sizes > 0).sum())
        if not 2 <= labels < n:
            raise InputError(
                f"without a block, {n} rows have {labels} labels; expected at least two classes, one with several rows"
            )
        if (function, metric) not in self._means:
            batches = self._distances() if metric == "euclidean" else self._squares(unit=metric == "cosine")
            sums = (self._sum(function, rows, means) for rows, means in batches)
            self._means[function, metric] = total(sums) / self.rows.counts
        return self._means[function, metric][block]

    def _sum(
        self, function: RowFunction, rows: Int[Tensor, " m"], means: Float[Tensor, "m b k"]
    ) -> Float[Tensor, " b"]:
        """Return sums over rows of a function of their mean distances, (b,); sum i leaves out the rows of block i.

        Rows of the last group, number b, are in no block, so every sum has them.
        """
        values = function(distances_of_means(means, self.codes[rows], self.sizes))
        left_out = F.one_hot(self.rows.groups[rows], self.rows.blocks + 1)[:, :-1].bool()
        return values.masked_fill(left_out, 0).sum(0)

    def _distances(self) -> Iterator[tuple[Int[Tensor, " m"], Float[Tensor, "m b k"]]]:
        """Yield some rows and their mean distances to the rows of each class, without each block."""
        order = self.codes.argsort(stable=True)  # sorted by class, so that rows of a block are near each other
        shape = len(self.rows.kept_groups.T), self.k
        positions = torch.arange(len(order), device=order.device)
        for rows, sums in sums_by_class(self.rows.rows[order], positions, self.cells[order], math.prod(shape)):
            batches = zip(rows.split(self.batch_size), sums.split(self.batch_size, dim=1), strict=True)
            for batch, batch_sums in batches:
                kept = torch.einsum("bg,gkm->mbk", self.rows.kept_groups, batch_sums.unflatten(0, shape))
                yield order[batch], kept / self.sizes.clamp(min=1)

    def _squares(self, *, unit: bool) -> Iterator[tuple[Int[Tensor, " m"], Float[Tensor, "m b k"]]]:
        """Yield the same as `_distances` for squared distances, computed from the class means."""
        rows = unit_rows(self.rows.in_blocks) if unit else self.rows.in_blocks
        of_cells = class_sums(rows, self.cells, (self.rows.blocks + 1) * self.k)
        spreads = of_cells.scatters + of_cells.counts * of_cells.offsets.square().sum(1)  # about the mean of all rows

        def without_each_block(values: Tensor) -> Tensor:
            return torch.einsum("bg,gk...->bk...", self.rows.kept_groups, values.unflatten(0, (-1, self.k)))

        means = without_each_block(of_cells.sums) / self.sizes[:, :, None].clamp(min=1)
        spreads = without_each_block(spreads) / self.sizes.clamp(min=1)
        positions = torch.arange(len(rows)).split(self.batch_size)
        for block, batch in zip(rows.split(self.batch_size), positions, strict=True):
            centered = block.double() - of_cells.mean
            products = (centered @ means.flatten(0, 1).T).view(-1, *spreads.shape)
            squares = centered.square().sum(1)[:, None, None] + spreads - 2 * products
            yield batch.to(block.device), squares.clamp_(min=0)


def mean_squared_distances(
    x: Float[Matrix, "n d"], codes: Int[Tensor, " n"], k: int, *, unit: bool = False
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Return the mean squared distance of each row to the rest of its class, and to the nearest other class.

    For a class of n rows with mean μ and variance V = mean ‖x_j − μ‖², the mean of ‖x − x_j‖² is ‖x − μ‖² + V; for the
    row's own class, the mean over the other rows is n/(n − 1) times that, and 0 for the only row of a class. `unit`
    uses the directions of the rows, for which the result is twice the mean of 1 − cos; it raises InputError for a zero
    row. `codes` are 0..k − 1, each of which occurs, with k ≥ 2. The result is float64. Besides x, only the means and a
    few blocks are held in memory.
    """
    lengths = codes.new_ones((len(x), 1))
    if unit:
        lengths = in_one_piece((_lengths(part) for part in x.split(SIZE)), len(x))
        if (lengths == 0).any():
            for _ in unit_blocks(x):  # raises an error that names the row
                pass

    def blocks() -> Iterator[tuple[Tensor, Tensor]]:
        for part, length, classes in zip(x.split(SIZE), lengths.split(SIZE), codes.split(SIZE), strict=True):
            yield part.double() / length, classes

    counts = torch.bincount(codes, minlength=k).double()
    # relative to one row of each class, so that equal rows exactly equal their mean and 0/0 stays 0/0
    first = torch.full_like(counts, len(codes), dtype=torch.long)
    first = first.scatter_reduce(0, codes, torch.arange(len(codes), device=codes.device), "amin")
    bases = x[first].double() / lengths[first]
    sums = torch.zeros_like(bases)
    for block, classes in blocks():
        sums = sums.index_add(0, classes, block - bases[classes])
    means = bases + sums / counts[:, None]
    own = in_one_piece(((block - means[classes]).square().sum(1) for block, classes in blocks()), len(x))
    variances = own.new_zeros(k).index_add(0, codes, own) / counts
    origin = means.detach().mean(0)
    # unit rows have the range that float32 products need
    use_float32 = unit and x.dtype != torch.float64 and not x.requires_grad and single_is_exact(x.device)
    nearest = (
        (squared_distances(block, means, centre=origin, single=use_float32) + variances)
        .scatter(1, classes[:, None], torch.inf)
        .amin(1)
        for block, classes in blocks()
    )
    counts = counts[codes]
    return (own + variances[codes]) * counts / (counts - 1).clamp(min=1), in_one_piece(nearest, len(x))


def _lengths(x: Float[Tensor, "b d"]) -> Float[Tensor, "b 1"]:
    """Return the length of each row in float64, without overflow of its square."""
    if x.dtype != torch.float64:
        return torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=torch.float64)
    largest = x.detach().abs().amax(1, keepdim=True)  # its square may leave the float64 range
    return largest * (x / torch.where(largest > 0, largest, 1)).norm(dim=1, keepdim=True)
