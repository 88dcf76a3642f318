"""How far the modalities lie apart: by their means, by their pairs, as distributions."""

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
CENTERED = 1e-7  # length of a mean relative to the rows that only centering leaves, in float32 as in float64
DIRECTIONS = 512
BLOCK = 1024  # rows: 8 MB of float64 distances
ROUNDING = 1e-28  # of the mean square of rows or entries: sets that are this near are equal but for last digits


@in_kind
def modality_gap(
    image: Rows | Means, text: Rows | None = None, *, metric: GapMetric = "euclidean"
) -> Float[Tensor, ""]:
    """Distance between the two means, ‖mean(image) − mean(text)‖, rows as given.

    In [0, 2] on unit rows, which Liang et al. 2022 take; larger is wider apart. With metric="cosine" it is
    1 − cos(mean(image), mean(text)), in [0, 2], which leaves out how long the means are.

    Args:
        image: Rows, (n, d), n ≥ 2; or a precomputed `Means` in place of both arguments.
        text: Rows, (m, d), m ≥ 2.
        metric: "euclidean", or "cosine" for 1 − cos.

    Returns:
        The distance as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: The dimensions differ; or a mean is zero, as after centering, and the metric is "cosine".

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
            raise InputError(f"the mean of {name} is zero, as after centering, and has no direction; measure before it")
        directions.append(mean / length)
    return (directions[0] - directions[1]).square().sum() / 2  # exact near 0, too


@in_kind
def relative_modality_gap(image: Rows | UnitPairs, text: Rows | None = None) -> Float[Tensor, ""]:
    """Distance of matching pairs relative to the distances within the modalities (Schrodi et al. 2025).

    m/(m + (i + t)/2) with D = 1 − (cos + 1)/2, m the mean of D over matching pairs, i and t its means over different
    rows within image and within text. In [0, 1]: 0 where pairs coincide, 1/2 where they are as far apart as random rows
    of one modality. O(nd).

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
    between = pairs.apart / (2 * pairs.n)  # twice D, as both others; the factor cancels
    within = (pairs.image.mean_distance + pairs.text.mean_distance) / 2
    if between + within <= ROUNDING:
        raise InputError("all rows of image and text point the same way; their relative gap is 0/0")
    return between / (between + within)


@in_kind
def energy_distance(image: Rows, text: Rows, *, center: Flag = False) -> Float[Tensor, ""]:
    """Energy distance of two sets: 2 mean‖x − y‖ − mean‖x − x'‖ − mean‖y − y'‖, rows as given.

    The means run over all pairs of rows, a row and itself included, so that it is the distance of the two empirical
    distributions: at least 0, and 0 only where they are equal. With center=True each set is taken about its own mean,
    which leaves what no shift can mend. O(nmd), in blocks. Source: Székely & Rizzo 2013.

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
    if not center:  # about one point near both, where products do not cancel
        x_mean = y_mean = (x_mean + y_mean) / 2
    x, y = about(image, x_mean), about(text, y_mean)
    between = total(distances(a, b).sum() for a in x.split(BLOCK) for b in y.split(BLOCK)) / (len(x) * len(y))
    return (2 * between - _mean_within(x) - _mean_within(y)).clamp(min=0)


def _mean_within(x: Float[Matrix, "n d"]) -> Float[Tensor, ""]:
    """Over all n² pairs, each of different rows measured once."""

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
    """Sliced 2-Wasserstein distance: √ mean W₂² of the two sets projected on random directions, rows as given.

    W₂² of projections is the mean squared difference of their quantiles, and splits exactly into the squared difference
    of the means and W₂² about the means. The means' part is taken over all directions, ‖mean(image) − mean(text)‖²/d,
    the rest over orthonormal random ones. At least 0. O((n + m)d · directions). Source: Bonneel et al. 2015.

    Args:
        image: Rows, (n, d), n ≥ 2; or a precomputed `Projections` in place of both arguments.
        text: Rows, (m, d), m ≥ 2.
        center: Subtract the mean of each set from it first: the rest alone.
        directions: Number of directions; d at a time are orthonormal.
        seed: Seed of the directions.

    Returns:
        The distance as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: The dimensions differ, or there are no directions.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.geometry.sliced_wasserstein(image, text + 1), 3)
        1.056
        >>> round(cg.geometry.sliced_wasserstein(image, text + 1, center=True), 3)
        0.18
    """
    directions, seed = whole_number(directions, "directions", most=DRAWS), seed_number(seed)
    shift, rest, _ = Projections.of(image, text).transport(directions, seed)
    return rest.sqrt() if flag(center, "center") else (shift + rest).sqrt()


@in_kind
def gap_shift_share(
    image: Rows | Projections, text: Rows | None = None, *, directions: Integer = DIRECTIONS, seed: Integer = 0
) -> Float[Tensor, ""]:
    """Share of the gap that is a shift of the means: ‖mean(image) − mean(text)‖²/d over `sliced_wasserstein`².

    In [0, 1]: 1 where one set is the other, shifted; 0 where the means agree. One minus it is the distributional
    remainder, which centering leaves. The split is that of Liu et al. 2026 into centroid and distribution gap, after
    the abstract; the distance behind it is ours.

    Args:
        image: Rows, (n, d), n ≥ 2; or a precomputed `Projections` in place of both arguments.
        text: Rows, (m, d), m ≥ 2.
        directions: Number of directions; d at a time are orthonormal.
        seed: Seed of the directions.

    Returns:
        The share as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: The dimensions differ, there are no directions, or the two sets are equal (0/0).

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> tuple(round(cg.geometry.gap_shift_share(image, other), 3) for other in (text + 1, 3 * text))
        (0.971, 0.018)
    """
    directions, seed = whole_number(directions, "directions", most=DRAWS), seed_number(seed)
    shift, rest, square = Projections.of(image, text).transport(directions, seed)
    if shift + rest <= ROUNDING * square:
        raise InputError("image and text are the same set of rows; there is no gap to divide (0/0)")
    return shift / (shift + rest)


_GAP = Measure(name="modality_gap", function=modality_gap, statistic=Means, streams=True, aggregated=True)
add_measure(_GAP, variant(_GAP, "cosine", aggregated=False, options={"metric": "cosine"}))
add_measure(Measure(name="relative_modality_gap", function=relative_modality_gap, statistic=UnitPairs, streams=True))
_ENERGY = Measure(name="energy_distance", function=energy_distance, streams=True)
add_measure(_ENERGY, variant(_ENERGY, "centered", options={"center": True}))
_SLICED = Measure(name="sliced_wasserstein", function=sliced_wasserstein, statistic=Projections)
add_measure(_SLICED, variant(_SLICED, "centered", options={"center": True}))
add_measure(Measure(name="gap_shift_share", function=gap_shift_share, statistic=Projections))
