"""The modality gap: how far apart the modalities are by their means, by their pairs, and as distributions."""

from collections.abc import Iterator
from typing import TypeAlias

from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import distances
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.geometry.statistics.distributions import Projections
from clip_geometry.geometry.statistics.sums import Means, UnitPairs
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import DRAWS, Flag, Integer, Literal, flag, one_of, seed_number, whole_number
from clip_geometry.rows.matrix import Matrix, Rows, about, as_two_sets, mean_row, total

GapMetric: TypeAlias = Literal["euclidean", "cosine"]
CENTERED = 1e-7  # a mean this short relative to the rows can only come from centering, in float32 or in float64
DIRECTIONS = 512
BLOCK = 1024  # rows per block: 8 MB of float64 distances
ROUNDING = 1e-28  # relative to the mean square of rows or entries; sets this close differ only by rounding


@in_kind
def modality_gap(
    image: Rows | Means, text: Rows | None = None, *, metric: GapMetric = "euclidean"
) -> Float[Tensor, ""]:
    """Return the modality gap: the distance between the mean of the images and the mean of the texts.

    Rows are used as given. On unit rows, as in Liang et al. 2022, the distance lies in [0, 2]; larger means wider
    apart. With metric="cosine" it is 1 − cos(mean(image), mean(text)), also in [0, 2], which ignores the lengths of the
    means.

    Args:
        image: Rows, (n, d), n ≥ 2; or a precomputed `Means` in place of both arguments.
        text: Rows, (m, d), m ≥ 2.
        metric: "euclidean", or "cosine" for 1 − cos.

    Returns:
        The distance as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: The dimensions differ, or the metric is "cosine" and a mean is zero, as it is after centering.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.geometry.modality_gap(image, text + 1), 3)
        2.942
        >>> round(cg.geometry.modality_gap(image, text + 1, metric="cosine"), 3)
        1.312
    """
    metric = one_of(metric, "metric", ("euclidean", "cosine"))
    means = Means.of(image, text)
    if metric == "euclidean":
        return (means.image - means.text).norm()
    directions = []
    for name, mean, square in zip(("image", "text"), (means.image, means.text), means.squares, strict=True):
        length = mean.norm()
        if length <= CENTERED * square.sqrt():
            raise InputError(
                f"the mean of {name} is zero, as after centering, and has no direction; measure before centering"
            )
        directions.append(mean / length)
    return (directions[0] - directions[1]).square().sum() / 2  # this form is also exact near 0


@in_kind
def relative_modality_gap(image: Rows | UnitPairs, text: Rows | None = None) -> Float[Tensor, ""]:
    """Return the distance of matching pairs relative to the distances within the modalities (Schrodi et al. 2025).

    The gap is m/(m + (i + t)/2), where m is the mean distance of matching rows, and i and t are the mean distances of
    two different images and of two different texts, with the distance (1 − cos)/2. The value lies in [0, 1]: 0 if
    matching rows coincide, 1/2 if they are as far apart as random rows of one modality. The cost is O(nd).

    Args:
        image: Rows, (n, d), n ≥ 2; or a precomputed `UnitPairs` in place of both arguments.
        text: Rows, (n, d), aligned with image.

    Returns:
        The relative gap as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: A row is zero, the numbers of rows differ, or all directions are equal (0/0).

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.geometry.relative_modality_gap(image, image + text), 3)
        0.226
    """
    pairs = UnitPairs.of(image, text)
    between = pairs.apart / (2 * pairs.n)  # this and both values within are 2D; the factor cancels
    within = (pairs.image.mean_distance + pairs.text.mean_distance) / 2
    if between + within <= ROUNDING:
        raise InputError(
            "all rows of image and text have the same direction, so their relative gap is undefined (0/0); give rows "
            "that differ"
        )
    return between / (between + within)


@in_kind
def energy_distance(image: Rows, text: Rows, *, center: Flag = False) -> Float[Tensor, ""]:
    """Return the energy distance between the distributions of two sets, 2 mean‖x − y‖ − mean‖x − x'‖ − mean‖y − y'‖.

    x and x' run over the rows of `image`, y and y' over those of `text`, as given, including each row with itself. The
    value is at least 0, and 0 only if both sets have the same distribution. With center=True, the mean of each set is
    subtracted first; what remains is the part of the distance that no shift can remove. The cost is O(nmd), in blocks.
    Source: Székely & Rizzo 2013.

    Args:
        image: Rows, (n, d), n ≥ 2.
        text: Rows, (m, d), m ≥ 2.
        center: Subtract the mean of each set from it first.

    Returns:
        The distance as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: The dimensions differ.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> tuple(round(cg.geometry.energy_distance(image, text + 1, center=each), 3) for each in (False, True))
        (1.949, 0.04)
    """
    center = flag(center, "center")
    image, text = as_two_sets(image, text, ("image", "text"), streams=True)
    x_mean, y_mean = mean_row(image), mean_row(text)
    if not center:  # center both sets at one point near both, where products do not cancel
        x_mean = y_mean = (x_mean + y_mean) / 2
    x, y = about(image, x_mean), about(text, y_mean)
    between = total(distances(a, b).sum() for a in x.split(BLOCK) for b in y.split(BLOCK)) / (len(x) * len(y))
    return (2 * between - _mean_within(x) - _mean_within(y)).clamp(min=0)


def _mean_within(x: Float[Matrix, "n d"]) -> Float[Tensor, ""]:
    """Return the mean distance over all n² pairs; each pair of different rows is computed once."""

    def sums() -> Iterator[Tensor]:
        for start, block in zip(range(0, len(x), BLOCK), x.split(BLOCK), strict=True):
            yield distances(block, block).sum()
            for later in range(start + BLOCK, len(x), BLOCK):
                yield 2 * distances(block, x[later : later + BLOCK]).sum()

    return total(sums()) / len(x) ** 2


@in_kind
def sliced_wasserstein(
    image: Rows | Projections,
    text: Rows | None = None,
    *,
    center: Flag = False,
    directions: Integer = DIRECTIONS,
    seed: Integer = 0,
) -> Float[Tensor, ""]:
    """Return the sliced 2-Wasserstein distance between the distributions of two sets of rows.

    Both sets are projected on random directions, and the distance is √ mean W₂² over the directions. W₂², the squared
    2-Wasserstein distance in one dimension, is the mean squared difference of the quantiles of the two projections. It
    is the sum of two parts: the squared difference of the means, whose average over all directions is exactly
    ‖mean(image) − mean(text)‖²/d, and W₂² of the centered projections, which is averaged over random orthonormal
    directions. The distance is at least 0, in units of a coordinate of the rows. The cost is O((n + m)d · directions).
    Source: Bonneel et al. 2015.

    Args:
        image: Rows, (n, d), n ≥ 2; or a precomputed `Projections` in place of both arguments.
        text: Rows, (m, d), m ≥ 2.
        center: Subtract the mean of each set from it first, so that only the second part remains.
        directions: Number of random directions, ≥ 1; each group of d directions is orthonormal.
        seed: Seed of the directions.

    Returns:
        The distance as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: The dimensions differ, or `directions` is less than 1.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.geometry.sliced_wasserstein(image, text + 1), 3)
        1.056
        >>> round(cg.geometry.sliced_wasserstein(image, text + 1, center=True), 3)
        0.18
    """
    directions = whole_number(directions, "directions", most=DRAWS)
    shift, rest, _ = Projections.of(image, text).transport(directions, seed_number(seed))
    return rest.sqrt() if flag(center, "center") else (shift + rest).sqrt()


@in_kind
def gap_shift_share(
    image: Rows | Projections, text: Rows | None = None, *, directions: Integer = DIRECTIONS, seed: Integer = 0
) -> Float[Tensor, ""]:
    """Return the share of the gap between two sets that a shift of one set would remove.

    The share is ‖mean(image) − mean(text)‖²/d divided by `sliced_wasserstein`². It lies in [0, 1]: 1 if one set is a
    shifted copy of the other, 0 if the means agree. One minus the share is what remains of the gap after centering. The
    split into centroid gap and distribution gap follows the abstract of Liu et al. 2026; this package chose the
    distance.

    Args:
        image: Rows, (n, d), n ≥ 2; or a precomputed `Projections` in place of both arguments.
        text: Rows, (m, d), m ≥ 2.
        directions: Number of random directions, ≥ 1; each group of d directions is orthonormal.
        seed: Seed of the directions.

    Returns:
        The share as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: The dimensions differ, `directions` is less than 1, or the two sets are equal (0/0).

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> tuple(round(cg.geometry.gap_shift_share(image, other), 3) for other in (text + 1, 3 * text))
        (0.971, 0.018)
    """
    directions = whole_number(directions, "directions", most=DRAWS)
    shift, rest, square = Projections.of(image, text).transport(directions, seed_number(seed))
    if shift + rest <= ROUNDING * square:
        raise InputError(
            "image and text are the same set of rows, so there is no gap to divide (0/0); give two different sets"
        )
    return shift / (shift + rest)


_GAP = Measure(name="modality_gap", function=modality_gap, statistic=Means, streams=True, aggregated=True)
add_measure(_GAP, variant(_GAP, "cosine", aggregated=False, options={"metric": "cosine"}))
add_measure(Measure(name="relative_modality_gap", function=relative_modality_gap, statistic=UnitPairs, streams=True))
_ENERGY = Measure(name="energy_distance", function=energy_distance, streams=True)
add_measure(_ENERGY, variant(_ENERGY, "centered", options={"center": True}))
_SLICED = Measure(name="sliced_wasserstein", function=sliced_wasserstein, statistic=Projections)
add_measure(_SLICED, variant(_SLICED, "centered", options={"center": True}))
add_measure(Measure(name="gap_shift_share", function=gap_shift_share, statistic=Projections))
