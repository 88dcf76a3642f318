"""Concentration of directions about their mean: the κ of a von Mises-Fisher distribution."""

import math

from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.distinct import SAME_DIRECTION
from clip_geometry.geometry._core.kinds import in_kind
from clip_geometry.geometry._core.rows import Rows, as_matrix, blocks, mean_row, total, unit_rows
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.registry import InputError

RECURRED = 1e7  # κ up to which Bessel functions are taken by recurrence; from there on an expansion has all digits


@in_kind
def vmf_concentration(x: Rows) -> Float[Tensor, ""]:
    """Concentration κ of the von Mises-Fisher distribution of the rows' directions, by maximum likelihood.

    The density is ∝ exp(κ⟨u, μ⟩). κ solves I_{d/2}(κ)/I_{d/2−1}(κ) = R with R = ‖mean unit row‖: Banerjee et al.'s
    R(d − R²)/(1 − R²), corrected by Newton's steps (Sra 2012) to the last digits. In [0, ∞): 0 where directions cancel;
    n uniform directions give about d/√n, not 0. Of a narrow cone about (d − 1)/(2(1 − R)). O(nd).

    Args:
        x: Rows, (n, d), n ≥ 2, d ≥ 2, none zero.

    Returns:
        The concentration, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, or all rows have one direction, where κ is infinite.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> round(cg.vmf_concentration(x), 2), round(cg.vmf_concentration(x + 1), 2)
        (0.54, 10.15)
    """
    unit = unit_rows(as_matrix(x, least_d=2))
    d, mean = unit.shape[1], mean_row(unit)
    length = mean.norm()
    if length == 0:
        return d * mean.sum()  # 0, and the slope of κ at 0
    lack = 1 - length  # exact for wide cones; of narrow ones from the rows' distances to the mean direction
    if length > 0.5:
        lack = total((block - mean / length).square().sum() for block in blocks(unit)) / (2 * len(unit))
    if lack <= SAME_DIRECTION**2:
        raise InputError(f"all {len(unit)} rows have one direction, whose concentration is infinite")
    r, q = float(length.detach()), float(lack.detach())
    kappa = r * (d - r**2) / (q * (1 + r))
    for _ in range(100):
        ratio, rest, slope = _bessel_ratio(kappa, d)
        step = (r - ratio if r <= 0.5 else rest - q) / slope
        kappa = max(kappa + step, kappa / 2)
        if abs(step) <= 1e-15 * kappa:
            break
    ratio, rest, slope = _bessel_ratio(kappa, d)
    return kappa + (length - ratio if r <= 0.5 else rest - lack) / slope  # a step for the last digit and the gradient


def _bessel_ratio(kappa: float, d: int) -> tuple[float, float, float]:
    """A = I_{d/2}(κ)/I_{d/2−1}(κ), 1 − A without cancellation, and dA/dκ.

    r_ν = 1/(2(ν + 1)/κ + r_{ν+1}), from an order so high that the bound of Ruiz-Antolín & Segura 2016, off by
    O((ν/κ)³), serves as the start: each step shrinks its error by r².
    """
    order = d / 2 - 1
    steps = 32 + int(6 * math.sqrt(kappa)) if kappa < RECURRED else 0
    a = order + steps + 0.5
    root = math.sqrt(kappa**2 + a * (a + 1))
    ratio, rest = kappa / (a + root), (a + a * (a + 1) / (root + kappa)) / (a + root)
    slope = (a + a * (a + 1) / root) / (a + root) ** 2
    for k in range(steps, 0, -1):
        t = 2 * (order + k) / kappa
        ratio, rest = 1 / (t + ratio), (t - rest) / (t + 1 - rest)
        slope = ratio**2 * (t / kappa - slope)
    return ratio, rest, slope


add_measure(Measure(name="vmf_concentration", streams=True, function=vmf_concentration))
