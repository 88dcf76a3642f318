"""How far each row lies from its own class and from the nearest other one, for the three metrics of the silhouette."""

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clip_geometry.geometry.distances.by_class import Products, mean_distances
from clip_geometry.geometry.distances.pairwise import distances, near_one, single_is_exact, squared_distances
from clip_geometry.geometry.statistics.statistic import Dealt, Statistic
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
    mean_row,
    unit_blocks,
    unit_rows,
)
from clip_geometry.rows.streamed import StreamedRows, cat

SIZE = 512  # rows a block: 2 MB of float64 at d = 512 stay in the cache from one step to the next
MEASURED = 1024  # rows: 8 MB of float64 distances
AT_ONCE = 2**20  # squared distances to means: 8 MB
Of = Callable[["MeanDistances"], Tensor]  # a value for each row


class MeanDistances(NamedTuple):
    """Mean distance of each row to the other rows of its class, to the rows of the nearest other class, and whether it
    is alone in its class."""

    own: Float[Tensor, "*n"]
    nearest: Float[Tensor, "*n"]
    alone: Bool[Tensor, "*n"]


class ClassDistances(Statistic):
    """Mean distances of labeled rows to their own class and to the nearest other one.

    Squared Euclidean and cosine distances have class means in closed form, O(ndK); Euclidean ones are summed in blocks,
    each pair of rows once, never an n × n matrix.
    """

    includes_all = True  # but for Euclidean distances, whose measures are quadratic

    def __init__(self, x: Rows, labels: Labels):
        self.rows = as_matrix(x)
        self.codes, self.k = as_classes(labels, self.rows)

    def each(self, metric: str, *, products: Products | None = None) -> MeanDistances:
        """For each row, in one unit of length. metric: "euclidean", "sqeuclidean", "cosine" or "precomputed"."""
        if metric == "precomputed":
            return _of_given_distances(as_rows(self.rows), self.codes, self.k)
        if metric == "euclidean":
            own, nearest = mean_distances(as_rows(self.rows), self.codes, self.k, products=products)
        else:
            own, nearest = mean_squared_distances(self.rows, self.codes, self.k, unit=metric == "cosine")
        return MeanDistances(own, nearest, torch.bincount(self.codes)[self.codes] == 1)

    def mean(self, of: Of, metric: str, *, products: Products | None = None) -> Float[Tensor, ""]:
        """Mean over the rows of what a function makes of their mean distances.

        of: a function of a module, elementwise: without each block it is called once for all blocks, (n, blocks).
        """
        return of(self.each(metric, products=products)).mean()

    @classmethod
    def without_each(cls, rows: Dealt, labels: Any, /) -> Iterator["ClassDistances"]:
        codes, k = as_classes(labels, rows.rows)
        shared = _SharedDistances(rows, codes, k)
        return (
            ClassDistances.known(each=partial(shared.each, block), mean=partial(shared.mean, block))
            for block in range(rows.blocks)
        )


class ModalityDistances(ClassDistances):
    """The same of two sets, which are the classes."""

    same_as = ClassDistances

    def __init__(self, image: Rows, text: Rows):
        image, text = as_two_sets(image, text, ("image", "text"), streams=True)
        super().__init__(joined_rows(image, text), _modalities(image, text))

    @classmethod
    def without_each(cls, image: Dealt, text: Any, /) -> Iterator[ClassDistances]:
        # read one after the other, not copied
        rows = joined_rows(image.in_blocks, text.in_blocks)
        both = Dealt(rows, torch.cat([image.block_of, text.block_of]), image.blocks)
        return super().without_each(both, _modalities(image, text))


def joined_rows(image: Matrix, text: Matrix) -> Matrix:
    """The rows of both sets, one after the other."""
    if isinstance(image, StreamedRows) and isinstance(text, StreamedRows):
        return cat([image, text])
    return torch.cat([image[:], text[:]])


def _modalities(image: Any, text: Any) -> Int[Tensor, " n"]:
    return torch.cat([torch.zeros(len(image)), torch.ones(len(text))]).long()


def as_classes(labels: Labels, x: Float[Matrix, "n d"]) -> tuple[Int[Tensor, " n"], int]:
    """as_codes where x is; an InputError where each row has a label of its own."""
    codes, k = as_codes(labels, len(x))
    if k == len(x):
        raise InputError(f"each of the {k} rows has a label of its own; expected a class of two rows")
    return codes.to(x.device), k


def _of_given_distances(distances: Float[Tensor, "n m"], codes: Int[Tensor, " n"], k: int) -> MeanDistances:
    zero = 100 * torch.finfo(distances.dtype).eps  # as in scikit-learn
    square = distances.shape[0] == distances.shape[1]
    if not square or (distances < -zero).any() or (distances.diagonal() > zero).any():
        raise InputError(
            f"x has shape {tuple(distances.shape)}; expected the distances of all rows for metric 'precomputed', "
            "(n, n), none negative and the diagonal zero"
        )
    sums = distances.new_zeros((len(codes), k), dtype=torch.float64).index_add(1, codes, distances.double())
    return distances_of_sums(sums, codes, torch.bincount(codes))


def distances_of_sums(sums: Float[Tensor, "n k"], codes: Int[Tensor, " n"], sizes: Int[Tensor, " k"]) -> MeanDistances:
    """From the sums of the distances of each row to the rows of each class, all of which have rows."""
    mine, others = codes[:, None], (sizes[codes] - 1).double()
    own = sums.gather(1, mine)[:, 0] / others.clamp(min=1)
    return MeanDistances(own, (sums / sizes).scatter(1, mine, torch.inf).amin(1), others == 0)


class _SharedDistances:
    """The mean distances without each block, from work that all blocks share."""

    def __init__(self, rows: Dealt, codes: Int[Tensor, " n"], k: int):
        self.rows, self.codes, self.k = rows, codes, k
        # the block and the class of each row as one number; rows that are never left out are a block more
        self.cells = rows.groups * k + codes
        cells = torch.bincount(self.cells, minlength=(rows.blocks + 1) * k).double()
        self.sizes = rows.kept_groups.to(cells.device) @ cells.view(-1, k)  # of each class, without each block
        self._means: dict[tuple[Of, bool], Tensor] = {}

    def each(self, block: int, metric: str, *, products: Products | None = None) -> MeanDistances:
        rest = ClassDistances(self.rows.without(block), self.codes[self.rows.kept(block)])
        return rest.each(metric, products=products)

    def mean(self, block: int, of: Of, metric: str, **_: Any) -> Float[Tensor, ""]:
        sizes = self.sizes[block]
        if not 2 <= int((sizes > 0).sum()) < int(sizes.sum()):
            raise InputError(
                f"{int(sizes.sum())} rows without a block have {int((sizes > 0).sum())} labels; a silhouette needs "
                "classes"
            )
        if metric == "euclidean":
            return of(self.euclidean(block)).mean()
        return self.means_without_each(of, unit=metric == "cosine")[block]

    # --- Euclidean: each pair of rows is measured once for all blocks, and once more for the block of each row

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows by class, in the precision of the products and near 1, which changes no ratio; codes and blocks."""
        order = self.codes.argsort(stable=True)
        rows = self.rows.rows[order]
        single = rows.dtype != torch.float64 and single_is_exact(rows.device)
        rows = rows.to(torch.float32 if single else torch.float64)
        return rows * near_one(float(rows.abs().amax())), self.codes[order], self.rows.block_of[order]

    @cached_property
    def _sums(self) -> Float[Tensor, "n k"]:
        """Of the distances of each row to the rows of each class."""
        rows, codes, _ = self._sorted
        indicators = F.one_hot(codes, self.k).double()
        sums = torch.zeros_like(indicators)
        spans = [slice(start, min(start + MEASURED, len(rows))) for start in range(0, len(rows), MEASURED)]
        centres = [rows[span].mean(0) for span in spans]
        for i, left in enumerate(spans):
            for j, right in enumerate(spans[: i + 1]):
                block = rows[left]
                other = block if i == j else rows[right]
                apart = distances(block, other, centre=(centres[i] + centres[j]) / 2).double()
                sums[left] += apart @ indicators[right]
                if left != right:
                    sums[right] += apart.T @ indicators[left]
        return sums

    @torch.no_grad()
    def euclidean(self, block: int) -> MeanDistances:
        rows, codes, block_of = self._sorted
        kept = block_of != block
        gone, sums = rows[~kept], self._sums[kept]
        if len(gone):
            center, indicators = gone.mean(0), F.one_hot(codes[~kept], self.k).double()
            parts = (distances(part, gone, centre=center).double() for part in rows[kept].split(MEASURED))
            sums = sums - torch.cat([part @ indicators for part in parts])
        present, own, sizes = codes[kept].unique(return_inverse=True, return_counts=True)
        return distances_of_sums(sums[:, present], own, sizes)

    # --- squared Euclidean and cosine: from the means of the classes, as in `mean_squared_distances`

    @torch.no_grad()
    def means_without_each(self, of: Of, *, unit: bool) -> Float[Tensor, " b"]:
        """Without each block, in two passes over the rows."""
        if (of, unit) not in self._means:
            rows = unit_rows(self.rows.in_blocks) if unit else self.rows.in_blocks
            base = mean_row(rows)  # about which sums of near rows keep their digits
            shape = (self.rows.blocks + 1) * self.k
            sums, spreads = base.new_zeros(shape, len(base)), base.new_zeros(shape)
            for block, cells in zip(rows.split(BLOCK), self.cells.split(BLOCK), strict=True):
                centered = block.double() - base
                sums.index_add_(0, cells, centered)
                spreads.index_add_(0, cells, centered.square().sum(1))
            means, spreads = (
                torch.einsum("bg,gk...->bk...", self.rows.kept_groups, each.unflatten(0, (-1, self.k)))
                for each in (sums, spreads)
            )
            means = means / self.sizes[:, :, None].clamp(min=1)
            lengths = means.square().sum(2)
            variances = spreads / self.sizes.clamp(min=1) - lengths
            found = base.new_zeros(self.rows.blocks)
            size = min(BLOCK, max(1, AT_ONCE // (self.rows.blocks * self.k)))
            along = zip(rows.split(size), self.codes.split(size), self.rows.groups.split(size), strict=True)
            for block, codes, groups in along:
                centered = block.double() - base
                squares = centered.square().sum(1)[:, None, None] + lengths + variances
                products = centered @ means.flatten(0, 1).T
                apart = squares - 2 * products.view(squares.shape)  # (rows, blocks, classes)
                mine = codes[:, None, None].expand(-1, self.rows.blocks, 1)
                sizes = self.sizes.T[codes]
                own = apart.gather(2, mine)[:, :, 0].clamp(min=0) * sizes / (sizes - 1).clamp(min=1)
                nearest = apart.masked_fill_(self.sizes == 0, torch.inf).scatter_(2, mine, torch.inf).amin(2)
                values = of(MeanDistances(own, nearest.clamp_(min=0), sizes == 1))
                gone = F.one_hot(groups, self.rows.blocks + 1)[:, :-1].bool()
                found += values.masked_fill(gone, 0).sum(0)
            self._means[of, unit] = found / self.rows.counts
        return self._means[of, unit]


def mean_squared_distances(
    x: Float[Matrix, "n d"], codes: Int[Tensor, " n"], k: int, *, unit: bool = False
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Mean squared distance of each row to the others of its class (0 for the only row) and to the nearest other class.

    Over a class of n rows with mean μ and variance V = mean ‖x_j − μ‖² the mean of ‖x − x_j‖² is ‖x − μ‖² + V, and
    n/(n − 1) times that over the others of its own. unit: of the rows' directions, where it is twice the mean of
    1 − cos; a zero row is an InputError. codes: 0..k − 1, each at least once, k ≥ 2. Float64; beside x the memory is
    that of the means and of a few blocks.
    """
    lengths = codes.new_ones((len(x), 1))
    if unit:
        lengths = in_one_piece((_lengths(part) for part in x.split(SIZE)), len(x))
        if (lengths == 0).any():
            for _ in unit_blocks(x):  # says which row
                pass

    def blocks() -> Iterator[tuple[Tensor, Tensor]]:
        for part, length, classes in zip(x.split(SIZE), lengths.split(SIZE), codes.split(SIZE), strict=True):
            yield part.double() / length, classes

    counts = torch.bincount(codes, minlength=k).double()
    # about a row of each class, so that equal rows are exactly their mean: 0/0 stays 0/0
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
    # unit rows have the range that float32 products want
    single = unit and x.dtype != torch.float64 and not x.requires_grad and single_is_exact(x.device)
    nearest = (
        (squared_distances(block, means, centre=origin, single=single) + variances)
        .scatter(1, classes[:, None], torch.inf)
        .amin(1)
        for block, classes in blocks()
    )
    counts = counts[codes]
    return (own + variances[codes]) * counts / (counts - 1).clamp(min=1), in_one_piece(nearest, len(x))


def _lengths(x: Float[Tensor, "b d"]) -> Float[Tensor, "b 1"]:
    if x.dtype != torch.float64:
        return torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=torch.float64)
    largest = x.detach().abs().amax(1, keepdim=True)  # its square may leave the range
    return largest * (x / torch.where(largest > 0, largest, 1)).norm(dim=1, keepdim=True)
