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
    title="Modality gap",
    brief="distance between the mean image and the mean text",
    group="modality gap",
    function=modality_gap,
    from_sums=lambda image, text: (image.means - text.means).norm(dim=1),
    takes="two sets",
    summary="The distance between the mean image and the mean text.",
    reading="On unit rows at most 2; CLIP ViT-B/16 has 0.85 on 500 COCO pairs. In one index of 250 of them, "
    "the ten rows nearest to an image are images, and nine in ten still are after centering.",
    caveat="It scales with the rows and is blind to the spread around the means: the same distance may separate "
    "two modalities fully or not at all. Noise of n rows gives about √(2/n), not 0.",
    formula="‖mean(image) − mean(text)‖",
    range=(0, float("inf")),
    direction="lower is closer",
    at_gaussian=0,
    invariances=("rotation", "translation", "swap"),
    reference="Liang et al. 2022, arXiv:2203.02053",
)
add_measure(
    _GAP,
    variant(
        _GAP,
        "cosine",
        streams=True,
        aggregated=False,
        by_default=False,
        title="Modality gap, cosine",
        brief="angle between the mean image and the mean text, as 1 − cos",
        summary="1 − cos of the mean image and the mean text.",
        reading="0 means that the means have one direction, 1 that they are orthogonal; of unit rows it is the gap "
        "relative to how long the means are.",
        caveat="It is blind to the spread around the means and to how long they are. After centering the means have no "
        "direction, and noise gives 1 ± 1/√d whatever n, not 0.",
        formula="1 − cos(mean(image), mean(text))",
        options={"metric": "cosine"},
        range=(0, 2),
        at_gaussian=None,  # 1 ± 1/√d: two means of noise have directions of their own, whatever n
        invariances=("rotation", "scale", "swap"),
        reference="mteb's modality_gap.py, github.com/embeddings-benchmark/mteb/issues/5359",
    ),
)
_SILHOUETTE = Measure(
    name="modality_silhouette",
    title="Silhouette of the modalities",
    brief="how separate the clusters of the modalities are",
    group="modality gap",
    function=modality_silhouette,
    left_out=_left_out,
    takes="two sets",
    summary="The silhouette of all rows with the modality as their label.",
    reading="0 means that images and texts are mixed, values towards 1 that each modality is a cluster of its own.",
    caveat="In high dimensions all distances are alike, so that fully separable modalities can score as low as .2.",
    quadratic=True,
    formula="silhouette of [image; text], label = modality, Euclidean",
    range=(-1, 1),
    direction="lower is more mixed",
    at_gaussian=0,
    invariances=("rotation", "translation", "scale", "swap"),
    reference="Rousseeuw 1987, doi:10.1016/0377-0427(87)90125-7; modality as label",
)
add_measure(
    _SILHOUETTE,
    variant(
        _SILHOUETTE,
        "sqeuclidean",
        streams=True,
        title="Silhouette of the modalities, squared distances",
        formula="silhouette of [image; text], label = modality, squared Euclidean",
        options={"metric": "sqeuclidean"},
        left_out=None,
        quadratic=False,
    ),
    variant(
        _SILHOUETTE,
        "cosine",
        streams=True,
        title="Silhouette of the modalities, cosine",
        formula="silhouette of [image; text], label = modality, 1 − cos",
        options={"metric": "cosine"},
        left_out=None,
        from_sums=_cosine_from_sums,
        quadratic=False,
        invariances=("rotation", "scale", "row scale", "swap"),
    ),
)
add_measure(
    Measure(
        name="relative_modality_gap",
        streams=True,
        title="Relative modality gap",
        brief="distance of pairs beside distances within modalities",
        group="modality gap",
        function=relative_modality_gap,
        from_sums=_relative_from_sums,
        takes="distinct pairs",
        summary="The distance of matching pairs as a share of it and the distances within the modalities.",
        reading="0 means that pairs coincide, 0.5 that a pair is as far apart as two random rows of one modality, "
        "more that the gap exceeds the modality's own spread.",
        caveat="It cannot tell a gap from bad pairing: without any gap, shuffled pairs give 0.5.",
        formula="m/(m + (i + t)/2), D = (1 − cos)/2, m over pairs, i and t within",
        range=(0, 1),
        direction="lower is closer",
        at_gaussian=0.5,
        invariances=("rotation", "scale", "row scale", "swap"),
        reference="Schrodi et al. 2025, arXiv:2404.07983",
    )
)
