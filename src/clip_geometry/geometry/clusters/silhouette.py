"""Silhouette (Rousseeuw 1987): do the rows lie closer to their own class than to the nearest other one?

Squared Euclidean and cosine distances have class means in closed form, O(ndK); Euclidean ones are summed in blocks,
each pair of rows once, never an n × n matrix.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clip_geometry.geometry._core.arguments import one_of
from clip_geometry.geometry._core.class_distances import Products, mean_distances
from clip_geometry.geometry._core.class_squares import mean_squared_distances
from clip_geometry.geometry._core.distances import distances, single_is_exact
from clip_geometry.geometry._core.kinds import arrays_in_kind, in_kind
from clip_geometry.geometry._core.left_out import LeftOut
from clip_geometry.geometry._core.rows import (
    Labels,
    Matrix,
    Rows,
    as_codes,
    as_matrix,
    as_rows,
    mean_row,
    unit_rows,
)
from clip_geometry.geometry._core.single import near_one
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.registry import InputError

BLOCK = 1024  # rows: 8 MB of float64 distances

if TYPE_CHECKING:
    Metric: TypeAlias = Literal["euclidean", "sqeuclidean", "cosine", "precomputed"]
else:  # an unknown one is our sentence, not a type checker's
    Metric = Any


@in_kind
def silhouette(
    x: Rows, labels: Labels, *, metric: Metric = "euclidean", products: Products | None = None
) -> Float[Tensor, ""]:
    """Mean silhouette of the rows.

    The mean of `silhouette_samples`, which has the formula. In [−1, 1]; higher means tighter, better separated classes.
    Interchangeable with scikit-learn's silhouette_score, but for its sample_size, the silhouette of a random subset:
    `sampled_silhouette` takes a size and a seed, and estimates the silhouette of all rows.

    Args:
        x: Rows, (n, d), n ≥ 3.
        labels: One label per row, (n,), of at least two and at most n − 1 values.
        metric: "euclidean", "sqeuclidean", "cosine" or "precomputed", as in `silhouette_samples`.
        products: How large float32 sets are multiplied on a GPU, as in `silhouette_samples`.

    Returns:
        The mean, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The labels do not fit, or the metric is cosine and a row is zero.

    Example:
        >>> import clip_geometry as cg
        >>> round(cg.silhouette([[0.0], [1.0], [5.0], [6.0]], ["a", "a", "b", "b"]), 3)
        0.798
    """
    return silhouette_samples(as_matrix(x), labels, metric=metric, products=products).mean()


@arrays_in_kind
def silhouette_samples(
    x: Rows, labels: Labels, *, metric: Metric = "euclidean", products: Products | None = None
) -> Float[Tensor, " n"]:
    """Silhouette of each row: (b − a)/max(a, b).

    a is the mean distance to the other rows of its class, b the smallest mean distance to the rows of another class. 0
    for the only row of a class and where a = b = 0, as in scikit-learn. Memory is a copy of x and a few blocks; with a
    gradient, n² distances for "euclidean". Float32 rows are twice as fast as float64 ones, with an error of 1e-6.

    Args:
        x: Rows, (n, d), n ≥ 3; for "precomputed" the distances of all rows, (n, n).
        labels: One label per row, (n,), of at least two and at most n − 1 values.
        metric: "euclidean", "sqeuclidean", "cosine" (1 − cos) or "precomputed".
        products: How large float32 sets are multiplied on a GPU for "euclidean" (see `fused_mean_distances`), by
            default as exactly as in float32.

    Returns:
        The silhouettes, (n,), float64, each in [−1, 1].

    Raises:
        InputError: The labels do not fit, the metric is cosine and a row is zero, or x are no distances.

    Example:
        >>> import clip_geometry as cg
        >>> cg.silhouette_samples([[0.0], [1.0], [4.0]], ["a", "a", "b"]).tolist()
        [0.75, 0.6666666666666666, 0.0]
    """
    metric = one_of(metric, "metric", ("euclidean", "sqeuclidean", "cosine", "precomputed"))
    if products is not None and metric != "euclidean":
        raise InputError(f"products {products!r} were asked for with metric {metric!r}; only 'euclidean' has a choice")
    if metric in ("euclidean", "precomputed"):
        x = as_rows(x)
        codes, k = as_classes(labels, x)
        if metric == "euclidean":
            own, nearest = mean_distances(x, codes, k, products=products)
        else:
            own, nearest = _mean_given_distances(x, codes, k)
    else:
        x = as_matrix(x)
        codes, k = as_classes(labels, x)
        own, nearest = mean_squared_distances(x, codes, k, unit=metric == "cosine")
    return from_means(own, nearest, alone=torch.bincount(codes)[codes] == 1)


def as_classes(labels: Labels, x: Float[Matrix, "n d"]) -> tuple[Int[Tensor, " n"], int]:
    """as_codes where x is; an InputError where each row has a label of its own."""
    codes, k = as_codes(labels, len(x))
    if k == len(x):
        raise InputError(f"each of the {k} rows has a label of its own; expected a class of two rows")
    return codes.to(x.device), k


def _mean_given_distances(
    distances: Float[Tensor, "n m"], codes: Int[Tensor, " n"], k: int
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """As `mean_distances`, of distances that are given."""
    zero = 100 * torch.finfo(distances.dtype).eps  # as in scikit-learn
    square = distances.shape[0] == distances.shape[1]
    if not square or (distances < -zero).any() or (distances.diagonal() > zero).any():
        raise InputError(
            f"x has shape {tuple(distances.shape)}; expected the distances of all rows for metric 'precomputed', "
            "(n, n), none negative and the diagonal zero"
        )
    sums = distances.new_zeros((len(codes), k), dtype=torch.float64).index_add(1, codes, distances.double())
    sizes = torch.bincount(codes, minlength=k)
    mine = codes[:, None]
    own = sums.gather(1, mine)[:, 0] / (sizes[codes] - 1).clamp(min=1)
    return own, (sums / sizes).scatter(1, mine, torch.inf).amin(1)


def from_means(
    own: Float[Tensor, "*n"], nearest: Float[Tensor, "*n"], *, alone: Bool[Tensor, "*n"]
) -> Float[Tensor, "*n"]:
    """(b − a)/max(a, b); 0 for the only row of a class, and where both are 0."""
    larger = torch.maximum(own, nearest)
    defined = ~alone & (larger > 0)
    return torch.where(defined, (nearest - own) / torch.where(defined, larger, 1), 0)


@torch.no_grad()
def silhouette_left_out(rows: LeftOut, labels: Labels) -> Iterator[Float[Tensor, ""]]:
    """The mean silhouette, Euclidean, without each block.

    Each pair of rows is measured once for all blocks, and once more for the block of each row.
    """
    codes, k = as_classes(labels, rows.rows)
    order = codes.argsort(stable=True)
    codes, block_of, scaled = codes[order], rows.block_of[order], _scaled(rows.rows[order])
    indicators = torch.nn.functional.one_hot(codes, k).double()
    sums = _summed_distances(scaled, indicators)
    for block in range(rows.blocks):
        kept = block_of != block
        gone = scaled[~kept]
        less = torch.zeros_like(sums[kept])
        if len(gone):
            center = gone.mean(0)
            parts = (distances(part, gone, centre=center).double() for part in scaled[kept].split(BLOCK))
            less = torch.cat([part @ indicators[~kept] for part in parts])
        present, own = codes[kept].unique(return_inverse=True)
        if not 2 <= len(present) < len(own):
            raise InputError(f"{len(own)} rows without a block have {len(present)} labels; a silhouette needs classes")
        yield _mean_silhouette(own, len(present), (sums[kept] - less)[:, present])


def _mean_silhouette(codes: Int[Tensor, " n"], k: int, sums: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """From the sum of the distances of each row to the rows of each class."""
    mine = codes[:, None]
    sizes = torch.bincount(codes, minlength=k).double()
    others = sizes[codes] - 1
    own = sums.gather(1, mine)[:, 0] / others.clamp(min=1)
    nearest = (sums / sizes).scatter(1, mine, torch.inf).amin(1)
    return from_means(own, nearest, alone=others == 0).mean()


def _scaled(rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """In the precision of the products, entries brought near 1 by a power of two, which changes no silhouette."""
    single = rows.dtype != torch.float64 and single_is_exact(rows.device)
    rows = rows.to(torch.float32 if single else torch.float64)
    return rows * near_one(float(rows.abs().amax()))


def _summed_distances(rows: Float[Tensor, "n d"], indicators: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """Sum of the distances of each row to the rows of each class; every pair of rows is taken once."""
    sums = torch.zeros_like(indicators)
    spans = [slice(start, min(start + BLOCK, len(rows))) for start in range(0, len(rows), BLOCK)]
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


def _cosine_from_sums(rows: LeftOut, labels: Labels) -> Iterator[Tensor]:
    """silhouette[cosine] of each subset: squared distances to the means of the classes, as `mean_squared_distances`."""
    codes, k = as_classes(labels, rows.rows)
    cells = (rows.block_of + 1) * k + codes
    shape = (rows.blocks + 1, k, -1)

    def by_cell(values: Tensor) -> Tensor:
        return values.new_zeros((shape[0] * k, values.shape[1])).index_add_(0, cells, values).view(shape)

    centered = unit_rows(as_rows(rows.rows))
    centered.sub_(mean_row(centered))  # so that sums of near rows keep their digits
    squares = centered.square().sum(1, keepdim=True)
    sums, spreads, counts = by_cell(centered), by_cell(squares), by_cell(torch.ones_like(squares))
    for block in range(rows.blocks):
        others = torch.arange(rows.blocks + 1) != block + 1
        n = counts[others].sum(0)
        present, kept = n[:, 0] > 0, rows.kept(block)
        if not 2 <= int(present.sum()) < int(kept.sum()):
            raise InputError(f"{int(kept.sum())} rows without a block have too few labels; a silhouette needs classes")
        means = sums[others].sum(0) / n
        lengths = means.square().sum(1)
        variances = (spreads[others].sum(0) / n)[:, 0] - lengths
        apart = torch.addmm(lengths + variances, centered[kept], means.T, alpha=-2) + squares[kept]
        mine = codes[kept][:, None]
        sizes = n[mine[:, 0], 0]
        own = apart.gather(1, mine)[:, 0] * sizes / (sizes - 1).clamp(min=1)
        nearest = apart.index_fill(1, (~present).nonzero()[:, 0], torch.inf).scatter(1, mine, torch.inf).amin(1)
        yield from_means(own.clamp(min=0), nearest, alone=sizes == 1).mean()


_SILHOUETTE = Measure(name="silhouette", function=silhouette, left_out=silhouette_left_out)
add_measure(
    _SILHOUETTE,
    variant(_SILHOUETTE, "sqeuclidean", streams=True, options={"metric": "sqeuclidean"}, left_out=None),
    variant(
        _SILHOUETTE, "cosine", streams=True, options={"metric": "cosine"}, left_out=None, from_sums=_cosine_from_sums
    ),
)
