"""How far the modalities lie apart."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.arguments import one_of
from clip_geometry.geometry._core.kinds import in_kind
from clip_geometry.geometry._core.left_out import LeftOut
from clip_geometry.geometry._core.rows import (
    Matrix,
    Rows,
    as_aligned_matrices,
    as_two_matrices,
    blocks,
    mean_row,
    total,
)
from clip_geometry.geometry._core.streamed import StreamedRows, cat
from clip_geometry.geometry.clusters.silhouette import Metric, from_means, silhouette, silhouette_left_out
from clip_geometry.geometry.cosine import (
    distances_from_sums,
    mean_cosine_distance,
    unit_differences,
)
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.registry import InputError

if TYPE_CHECKING:
    GapMetric: TypeAlias = Literal["euclidean", "cosine"]
else:  # an unknown one is our sentence, not a type checker's
    GapMetric = Any

CENTERED = 1e-7  # length of a mean relative to the rows that only centering leaves, in float32 as in float64
ROUNDING = 1e-29  # squared distance of unit rows that are equal but for a few last digits


@in_kind
def modality_gap(image: Rows, text: Rows, *, metric: GapMetric = "euclidean") -> Float[Tensor, ""]:
    """Distance between the two means, ‖mean(image) − mean(text)‖, rows as given.

    In [0, 2] on unit rows, which Liang et al. 2022 take; larger is wider apart. With metric="cosine" it is
    1 − cos(mean(image), mean(text)), in [0, 2], which leaves out how long the means are.

    Args:
        image: Rows, (n, d), n ≥ 2.
        text: Rows, (m, d), m ≥ 2.
        metric: "euclidean", or "cosine" for 1 − cos.

    Returns:
        The distance, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The dimensions differ; or a mean is zero, as after centering, and the metric is "cosine".

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.modality_gap(image, text + 1), 3)
        2.942
        >>> round(cg.modality_gap(image, text + 1, metric="cosine"), 3)
        1.312
    """
    metric = one_of(metric, "metric", ("euclidean", "cosine"))
    image, text = as_two_matrices(image, text, ("image", "text"))
    if metric == "cosine":
        return (_direction(image, "image") - _direction(text, "text")).square().sum() / 2  # exact near 0, too
    return (mean_row(image) - mean_row(text)).norm()


def _direction(x: Float[Matrix, "n d"], name: str) -> Float[Tensor, " d"]:
    """The mean at unit length."""
    mean = mean_row(x)
    length, square = mean.norm(), total(block.square().sum() for block in blocks(x)) / len(x)
    if length <= CENTERED * square.sqrt():
        raise InputError(f"the mean of {name} is zero, as after centering, and has no direction; measure before it")
    return mean / length


@in_kind
def modality_silhouette(image: Rows, text: Rows, *, metric: Metric = "euclidean") -> Float[Tensor, ""]:
    """Silhouette of all rows, with the modality as the label.

    In [−1, 1]: 0 where the modalities are mixed, towards 1 where each is a cluster of its own.

    Args:
        image: Rows, (n, d), n ≥ 2.
        text: Rows, (m, d), m ≥ 2.
        metric: "euclidean", "sqeuclidean" or "cosine", as in `silhouette_samples`.

    Returns:
        The silhouette, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The dimensions differ.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.modality_silhouette(image, text + 1), 3)
        0.186
    """
    image, text = as_two_matrices(image, text, ("image", "text"))
    labels = torch.cat([torch.zeros(len(image)), torch.ones(len(text))])
    if isinstance(image, StreamedRows) and isinstance(text, StreamedRows):
        return silhouette(cat([image, text]), labels, metric=metric)
    return silhouette(torch.cat([image[:], text[:]]), labels, metric=metric)


def _left_out(image: LeftOut, text: LeftOut) -> Iterator[Tensor]:
    """modality_silhouette without each block."""
    both = LeftOut(torch.cat([image.rows, text.rows]), torch.cat([image.block_of, text.block_of]), image.blocks)
    return silhouette_left_out(both, torch.cat([torch.zeros(len(image)), torch.ones(len(text))]))


def _cosine_from_sums(image: LeftOut, text: LeftOut) -> Float[Tensor, " b"]:
    """modality_silhouette[cosine] of each subset: squared distances to the means, as in `mean_squared_distances`."""
    total = torch.zeros_like(image.counts)
    for own, other in ((image, text), (text, image)):
        means = own.unit_means, other.unit_means + (other.unit_mean - own.unit_mean)
        spreads = own.unit_spreads / own.counts, other.unit_spreads / other.counts

        def silhouettes(rows: Tensor, own: LeftOut = own, means: Any = means, spreads: Any = spreads) -> Tensor:
            squares = rows.square().sum(1, keepdim=True)
            within, between = (
                torch.addmm(squares + mean.square().sum(1), rows, mean.T, alpha=-2).clamp_(min=0) + spread
                for mean, spread in zip(means, spreads, strict=True)
            )
            within *= own.counts / (own.counts - 1)
            return from_means(within, between, alone=torch.zeros_like(within, dtype=torch.bool))

        total += own.sums_over_unit_rows(silhouettes)
    return total / (image.counts + text.counts)


def _relative_from_sums(image: LeftOut, text: LeftOut) -> Float[Tensor, " b"]:
    between = image.differences(text) / (2 * image.counts)
    within = (distances_from_sums(image) + distances_from_sums(text)) / 2
    if (between + within <= ROUNDING).any():
        raise InputError("all rows of image and text point the same way; their relative gap is 0/0")
    return between / (between + within)


@in_kind
def relative_modality_gap(image: Rows, text: Rows) -> Float[Tensor, ""]:
    """Distance of matching pairs relative to the distances within the modalities (Schrodi et al. 2025).

    m/(m + (i + t)/2) with D = 1 − (cos + 1)/2, m the mean of D over matching pairs, i and t its means over different
    rows within image and within text. In [0, 1]: 0 where pairs coincide, 1/2 where they are as far apart as random rows
    of one modality. O(nd).

    Args:
        image: Rows, (n, d), n ≥ 2.
        text: Rows, (n, d), aligned with image.

    Returns:
        The relative gap, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, the numbers of rows differ, or all directions are equal (0/0).

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.relative_modality_gap(image, image + text), 3)
        0.226
    """
    image, text = as_aligned_matrices(image, text, ("image", "text"))
    between = unit_differences(image, text) / (2 * len(image))  # twice D, as both others; the factor cancels
    within = (mean_cosine_distance(image, name="image") + mean_cosine_distance(text, name="text")) / 2
    if between + within <= ROUNDING:
        raise InputError("all rows of image and text point the same way; their relative gap is 0/0")
    return between / (between + within)


_GAP = Measure(
    name="modality_gap",
    streams=True,
    aggregated=True,
    function=modality_gap,
    from_sums=lambda image, text: (image.means - text.means).norm(dim=1),
)
add_measure(_GAP, variant(_GAP, "cosine", streams=True, aggregated=False, options={"metric": "cosine"}))
_SILHOUETTE = Measure(name="modality_silhouette", function=modality_silhouette, left_out=_left_out)
add_measure(
    _SILHOUETTE,
    variant(_SILHOUETTE, "sqeuclidean", streams=True, options={"metric": "sqeuclidean"}, left_out=None),
    variant(
        _SILHOUETTE, "cosine", streams=True, options={"metric": "cosine"}, left_out=None, from_sums=_cosine_from_sums
    ),
)
add_measure(
    Measure(name="relative_modality_gap", streams=True, function=relative_modality_gap, from_sums=_relative_from_sums)
)
