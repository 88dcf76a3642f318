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
    """Return the distance between the means of the modalities, ‖mean(image) − mean(text)‖, with rows as given.

    On unit rows, which Liang et al. 2022 use, the distance lies in [0, 2]; larger means wider apart. With
    metric="cosine" it is 1 − cos(mean(image), mean(text)), also in [0, 2], which ignores the lengths of the means.

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
    """Return the distance of matching pairs relative to distances within the modalities (Schrodi et al. 2025).

    The gap is m/(m + (i + t)/2) with D = 1 − (cos + 1)/2. m is the mean of D over matching pairs; i and t are its means
    over pairs of different rows within image and within text. The value lies in [0, 1]. It is 0 if the pairs coincide,
    and 1/2 if they are as far apart as random rows of one modality. The cost is O(nd).

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
    """Return the energy distance of two sets: 2 mean‖x − y‖ − mean‖x − x'‖ − mean‖y − y'‖, with rows as given.

    The means run over all pairs of rows, including each row with itself, so the value is the distance of the two
    empirical distributions: at least 0, and 0 only if they are equal. With center=True, the mean of each set is
    subtracted from it first, which leaves the part of the distance that no shift can remove. The cost is O(nmd), in
    blocks. Source: Székely & Rizzo 2013.

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
    """Return the sliced 2-Wasserstein distance of two sets of rows, as given.

    The distance is √ mean W₂² of the two sets projected on random directions. W₂² of projections is the mean squared
    difference of their quantiles. It splits exactly into the squared difference of the means and W₂² of the centered
    projections. The first part is averaged over all directions in closed form, ‖mean(image) − mean(text)‖²/d; the
    second is averaged over random orthonormal directions. The distance is at least 0. The cost is O((n + m)d ·
    directions). Source: Bonneel et al. 2015.

    Args:
        image: Rows, (n, d), n ≥ 2; or a precomputed `Projections` in place of both arguments.
        text: Rows, (m, d), m ≥ 2.
        center: Subtract the mean of each set from it first, which leaves the second part only.
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
    """Return the share of the gap that is a shift of the means.

    The share is ‖mean(image) − mean(text)‖²/d divided by `sliced_wasserstein`². It lies in [0, 1]: 1 if one set is a
    shifted copy of the other, 0 if the means agree. One minus the share is the distributional remainder, which
    centering leaves. The split into centroid gap and distribution gap follows the abstract of Liu et al. 2026; the
    choice of distance is ours.

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
