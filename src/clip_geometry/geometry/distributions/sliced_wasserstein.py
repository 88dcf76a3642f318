"""The gap as optimal transport sees it: a shift of the means, and what is left once both means are taken off."""

from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.geometry.statistics.projections import Projections
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import DRAWS, Flag, Integer, flag, seed_number, whole_number
from clip_geometry.rows.matrix import Rows

DIRECTIONS = 512
ROUNDING = 1e-28  # of the mean square of all entries: sets that are this near are equal but for last digits


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
        image: Rows, (n, d), n ≥ 2; or `Projections` alone.
        text: Rows, (m, d), m ≥ 2.
        center: Subtract the mean of each set from it first: the rest alone.
        directions: Number of directions; d at a time are orthonormal.
        seed: Seed of the directions.

    Returns:
        The distance, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The dimensions differ, or there are no directions.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.sliced_wasserstein(image, text + 1), 3)
        1.056
        >>> round(cg.sliced_wasserstein(image, text + 1, center=True), 3)
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
        image: Rows, (n, d), n ≥ 2; or `Projections` alone.
        text: Rows, (m, d), m ≥ 2.
        directions: Number of directions; d at a time are orthonormal.
        seed: Seed of the directions.

    Returns:
        The share, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The dimensions differ, there are no directions, or the two sets are equal (0/0).

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.gap_shift_share(image, text + 1), 3), round(cg.gap_shift_share(image, 3 * text), 3)
        (0.971, 0.018)
    """
    directions, seed = whole_number(directions, "directions", most=DRAWS), seed_number(seed)
    shift, rest, square = Projections.of(image, text).transport(directions, seed)
    if shift + rest <= ROUNDING * square:
        raise InputError("image and text are the same set of rows; there is no gap to divide (0/0)")
    return shift / (shift + rest)


_SLICED = Measure(name="sliced_wasserstein", function=sliced_wasserstein, statistic=Projections)
add_measure(_SLICED, variant(_SLICED, "centered", options={"center": True}))
add_measure(Measure(name="gap_shift_share", function=gap_shift_share, statistic=Projections))
