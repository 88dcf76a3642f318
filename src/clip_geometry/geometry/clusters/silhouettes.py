"""Silhouettes of several labellings of the same rows, from one pass over the distances.

To choose a number of clusters one wants the silhouette of every candidate. Almost all of its cost are the distances,
which do not depend on the labels: each block of them is multiplied with the indicators of all classes of all
labellings at once.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry._core.arguments import Integer, block_number
from clip_geometry.geometry._core.distances import distances, single_is_exact
from clip_geometry.geometry._core.kinds import arrays_in_kind
from clip_geometry.geometry._core.left_out import LeftOut
from clip_geometry.geometry._core.rows import Labels, Rows, as_rows
from clip_geometry.geometry._core.single import near_one
from clip_geometry.geometry.clusters.silhouette import as_classes, from_means
from clip_geometry.registry import InputError, shown

BLOCK = 1024  # rows: 8 MB of float64 distances


@torch.no_grad()
def silhouette_left_out(rows: LeftOut, labels: Labels) -> Iterator[Float[Tensor, ""]]:
    """The mean silhouette, Euclidean, without each block.

    Each pair of rows is measured once for all blocks, and once more for the block of each row.
    """
    codes, k = as_classes(labels, rows.rows)
    order = codes.argsort(stable=True)
    codes, block_of, scaled = codes[order], rows.block_of[order], _scaled(rows.rows[order])
    indicators = torch.nn.functional.one_hot(codes, k).double()
    sums = _summed_distances(scaled, indicators, BLOCK)
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


@arrays_in_kind
@torch.no_grad()
def silhouettes(x: Rows, labellings: Sequence[Labels], *, block_size: Integer = BLOCK) -> Float[Tensor, " m"]:
    """The mean silhouette of each labelling, Euclidean: as `silhouette` gives one by one, m times as fast.

    x: (n, d), n ≥ 3; labellings: m ≥ 1 sequences of n labels, each of at least two values and at most n − 1. In
    [−1, 1], float64, without gradient; float32 rows as in `silhouette`. Memory: a copy of x, and twice n numbers for
    each class of all labellings. O(n² (d + number of all classes)). Raises InputError for labellings that have no
    silhouette. Source: Rousseeuw 1987.
    """
    x, block_size = as_rows(x, least=3), block_number(block_size)
    if not isinstance(labellings, list | tuple):
        raise InputError(f"labellings = {shown(labellings)}; expected a list of labellings, each of {len(x)} labels")
    found = [as_classes(labels, x) for labels in labellings]
    if not found:
        raise InputError("there are no labellings; expected at least one label for every row")
    finest, _ = max(found, key=lambda each: each[1])
    order = finest.argsort(stable=True)  # near rows come together, and products about a near point do not cancel
    indicators = torch.cat([torch.nn.functional.one_hot(codes[order], k).double() for codes, k in found], dim=1)
    sums = _summed_distances(_scaled(x[order]), indicators, block_size)
    parts = sums.split([k for _, k in found], dim=1)
    means = [_mean_silhouette(codes[order], k, part) for (codes, k), part in zip(found, parts, strict=True)]
    return torch.stack(means)


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


def _summed_distances(
    rows: Float[Tensor, "n d"], indicators: Float[Tensor, "n c"], block_size: int
) -> Float[Tensor, "n c"]:
    """Sum of the distances of each row to the rows of each class; every pair of rows is taken once."""
    sums = torch.zeros_like(indicators)
    spans = [slice(start, min(start + block_size, len(rows))) for start in range(0, len(rows), block_size)]
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
