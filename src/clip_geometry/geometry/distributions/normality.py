"""Sliced normality: do the rows' projections look Gaussian in every direction (SIGReg, Balestriero & LeCun 2025)?"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.arguments import Integer, seed_number, whole_number
from clip_geometry.geometry._core.kinds import in_kind
from clip_geometry.geometry._core.rows import Rows, as_rows, mean_row, require_spread
from clip_geometry.geometry.measure import Measure, add_measure

LAST, POINTS = 5.0, 17  # of the frequencies −5 … 5, at which characteristic functions are compared


@in_kind
def sliced_normality(x: Rows, *, directions: Integer = 128, seed: Integer = 0) -> Float[Tensor, ""]:
    """Epps-Pulley statistic of normality, averaged over random directions, of centered rows of unit mean variance.

    n ∫ |φ(t) − e^{−t²/2}|² e^{−t²/2} dt per direction, φ the empirical characteristic function of the rows' projections
    on it, by the trapezoidal rule at 17 frequencies from −5 to 5: SIGReg, Algorithm 1 of Balestriero & LeCun 2025, with
    half as many directions by default, and of other rows. These are centered and divided by one number, their root mean
    square coordinate: unequal variances count as much as another shape. At least 0; about 1.06 (√2π − √(2π/3)), less
    what centering takes, for isotropic Gaussian rows of any n, and in proportion to n for others. O(n · directions ·
    (d + 17)).

    Args:
        x: Rows, (n, d), n ≥ 2.
        directions: Number of random directions.
        seed: Seed of the directions.

    Returns:
        The statistic, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: All rows are equal.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(500, 8))
        >>> round(cg.sliced_normality(x), 2), round(cg.sliced_normality(x * [3, 1, 1, 1, 1, 1, 1, 1]), 2)
        (0.61, 14.42)
    """
    directions, seed = whole_number(directions, "directions"), seed_number(seed)
    x = as_rows(x)
    require_spread(x)
    rows = x.double() / x.abs().amax()
    rows = rows - mean_row(rows)
    rows = rows / rows.square().mean().sqrt()
    return epps_pulley(rows @ random_directions(rows, directions, seed)).mean()


def random_directions(rows: Float[Tensor, "n d"], count: int, seed: int) -> Float[Tensor, "d count"]:
    """Uniform unit columns, the same on every device."""
    drawn = torch.randn(rows.shape[1], count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (drawn / drawn.norm(dim=0)).to(rows)


def epps_pulley(values: Float[Tensor, "n k"]) -> Float[Tensor, " k"]:
    """n ∫ |φ(t) − e^{−t²/2}|² e^{−t²/2} dt of each column against the standard normal distribution."""
    step = 2 * LAST / (POINTS - 1)
    statistic = values.new_zeros(values.shape[1])
    for k in range(POINTS // 2 + 1):  # t and −t give the same
        t = k * step
        normal = math.exp(-(t**2) / 2)
        difference = ((t * values).cos().mean(0) - normal).square() + (t * values).sin().mean(0).square()
        times = 1 if k in (0, POINTS // 2) else 2  # t = 0 is there once, both ends have half the weight
        statistic = statistic + times * step * normal * difference
    return len(values) * statistic


add_measure(Measure(name="sliced_normality", function=sliced_normality))
