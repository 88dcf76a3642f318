"""Participation ratio and IsoScore: how many directions the variance uses.

All measures here are functions of the moments. No matrix is decomposed, so the gradients are finite where eigenvalues
repeat.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.geometry.statistics.moments import Moments, as_moments, scatter
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Flag, Number, flag, real_number
from clip_geometry.rows.matrix import Rows, as_rows

SMALLEST_FOURTH = 1e-290  # smaller sums of fourth powers lose precision
ROUNDING = 1e-8  # relative to n²; a smaller unbiased estimate of ‖C‖² is rounding noise of its terms


@in_kind
def participation_ratio(x: Rows | Moments) -> Float[Tensor, ""]:
    """Return the participation ratio, the effective number of dimensions over which the variance is spread.

    PR = tr(C)²/‖C‖_F² = (Σλ)²/Σλ², where C is the covariance of the rows and λ are its eigenvalues. It lies in [1,
    min(d, n − 1)]; higher is more isotropic. The eigenvalues need not be computed.

    Args:
        x: Rows, (n, d), n ≥ 2; or a precomputed `Moments`.

    Returns:
        The ratio as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: All rows are equal.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> round(cg.geometry.participation_ratio(x), 3)
        7.259
    """
    return _ratio(scatter(x))


@in_kind
def isoscore(x: Rows | Moments, *, unbiased: Flag = False) -> Float[Tensor, ""]:
    """Return the IsoScore: how evenly the variance is spread over all directions, in [0, 1] (Rudman et al. 2022).

    It is 1 if all directions have the same variance, and 0 if all variance lies on a line. IsoScore = (PR − 1)/(d − 1),
    where PR = tr(C)²/‖C‖_F² is the participation ratio of the covariance C. This equals the published algorithm in
    exact arithmetic. The score is biased low for small n: on an isotropic Gaussian it is about n/(n + d).

    With unbiased=True, PR = a/b, where a and b are estimates of tr(C)² and ‖C‖_F² that have no bias for any
    distribution (U-statistics, Himeno & Yamada 2014):

        b = f[(n − 1)(n − 2)‖C‖_F² + tr(C)² − n q],    a = f[2‖C‖_F² + (n² − 3n + 1) tr(C)² − n q],

    with q = Σ‖w_i − μ‖⁴/(n − 1) for rows w_i with mean μ, and f = (n − 1)/(n(n − 2)(n − 3)). The ratio is nearly
    unbiased and may leave [0, 1]. It is too high for few rows, and for small d if n is close to d (by 0.02 for 16
    isotropic rows with d = 16).

    Args:
        x: Rows, (n, d), n ≥ 2 (n ≥ 4 with `unbiased`), d ≥ 2; or a precomputed `Moments`.
        unbiased: Whether to correct the bias of small samples.

    Returns:
        The score as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: All rows are equal, d = 1, or the estimate b is not positive.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> round(cg.geometry.isoscore(x), 3)
        0.894
        >>> round(cg.geometry.isoscore(x, unbiased=True), 3)
        0.983
    """
    if flag(unbiased, "unbiased"):
        moments = as_moments(x, least=4, least_d=2)
        n = moments.n
        trace = moments.covariance.trace()
        if not SMALLEST_FOURTH <= moments.Q < float("inf"):
            raise InputError("the fourth powers of the rows about their mean leave float64; rescale the rows")
        s = moments.covariance / trace  # tr(S) = 1, and the factor f cancels too
        q = moments.Q / trace**2 / (n - 1)
        square = s.square().sum()
        a = 2 * square + (n * n - 3 * n + 1) - n * q
        b = (n - 1) * (n - 2) * square + 1 - n * q
        if not b > ROUNDING * n * n:
            raise InputError(
                f"the unbiased estimate of ‖C‖² from {n} rows is not positive beyond rounding, because there are too "
                "few rows or one row outweighs all others; give more rows or use the plain isoscore"
            )
        return (a / b - 1) / (moments.d - 1)
    m2 = scatter(x, least_d=2)
    return (_ratio(m2) - 1) / (len(m2) - 1)


@in_kind
def isoscore_star(x: Rows | Moments, covariance: Rows, *, zeta: Number) -> Float[Tensor, ""]:
    """Return IsoScore*, an IsoScore for small batches whose covariance is combined with that of a larger sample.

    It is the IsoScore of the covariance (1 − ζ) C + ζ C_0, where C is the covariance of x and C_0 that of the larger
    sample. The score lies in [0, 1], where 1 is isotropic, and is differentiable in x and C_0. Source: Rudman &
    Eickhoff 2024.

    Args:
        x: Rows, (n, d), n ≥ 2, d ≥ 2; or a precomputed `Moments`.
        covariance: C_0, (d, d), the covariance of a larger sample.
        zeta: Weight ζ of C_0, in [0, 1]: 0 gives `isoscore`, 1 the score of C_0 alone.

    Returns:
        The score as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: C_0 has another shape or is not symmetric, ζ lies outside [0, 1], or the shrunken covariance is
            zero.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> round(cg.geometry.isoscore_star(x[:10], np.cov(x.T), zeta=0.5), 3)
        0.758
    """
    zeta = real_number(zeta, "zeta", lambda share: 0 <= share <= 1, "a share from 0 (rows only) to 1 (covariance only)")
    moments = as_moments(x, least_d=2)
    covariance = as_rows(covariance, name="covariance", least=1)
    if covariance.shape != (moments.d, moments.d):
        shape = tuple(covariance.shape)
        raise InputError(f"the covariance has shape {shape}; expected ({moments.d}, {moments.d}), as the rows have")
    if not torch.allclose(covariance, covariance.T, rtol=1e-5, atol=1e-6 * float(covariance.detach().abs().amax())):
        raise InputError("the covariance is not symmetric; expected the covariance of a larger sample")
    shrunken = (1 - zeta) * moments.covariance + zeta * covariance.to(moments.M2)
    if not shrunken.trace() > 0:
        raise InputError(
            "the trace of the shrunken covariance is not positive, so its isotropy is undefined; expected a "
            "covariance matrix"
        )
    return (_ratio(shrunken) - 1) / (moments.d - 1)


def _ratio(scatter: Float[Tensor, "d d"]) -> Float[Tensor, ""]:
    """Return tr(S)²/‖S‖², which is the same for every multiple of S and at least 1 for every covariance."""
    scaled = scatter / scatter.trace()  # for small rows the squared variances would leave the range
    return (1 / scaled.square().sum()).clamp(min=1)


add_measure(Measure(name="participation_ratio", function=participation_ratio, statistic=Moments, streams=True))
_ISOSCORE = Measure(name="isoscore", function=isoscore, statistic=Moments, streams=True)
add_measure(_ISOSCORE, variant(_ISOSCORE, "unbiased", options={"unbiased": True}))
