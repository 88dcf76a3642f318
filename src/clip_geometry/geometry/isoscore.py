"""How many directions the variance uses: participation ratio and IsoScore."""

from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.rows import Rows, as_rows, covariance, require_spread
from clip_geometry.registry import InputError


def participation_ratio(x: Rows) -> Float[Tensor, ""]:
    """Effective number of dimensions that the variance uses.

    PR = tr(C)² / ‖C‖_F² = (Σλ)² / Σλ², C the covariance, λ its eigenvalues; no eigen-decomposition is needed.
    x: (n, d), n ≥ 2. In [1, min(d, n − 1)]; higher is more isotropic. Raises InputError where all rows are equal.
    """
    x = as_rows(x)
    require_spread(x)
    c = covariance(x)
    c = c / c.trace()  # small rows: the squares of variances would leave the range
    return (1 / c.square().sum()).clamp(min=1)


def isoscore(x: Rows) -> Float[Tensor, ""]:
    """IsoScore (Rudman et al. 2022): the participation ratio, rescaled to [0, 1].

    (PR − 1)/(d − 1) with PR = tr(C)² / ‖C‖_F²: equal to the published algorithm (PCA, normalised diagonal,
    isotropy defect) in exact arithmetic. x: (n, d), n ≥ 2, d ≥ 2. 1 where the covariance is a multiple of the
    identity, 0 where all variance lies on a line. Biased low for small n: about n/(n + d) on an isotropic Gaussian.
    Raises InputError where all rows are equal or d = 1.
    """
    x = as_rows(x)
    d = x.shape[1]
    if d < 2:
        raise InputError("x has one column; isoscore compares variances across at least two")
    return (participation_ratio(x) - 1) / (d - 1)


add_measure(
    Measure(
        name="participation_ratio",
        title="Participation ratio",
        group="isotropy",
        function=participation_ratio,
        takes="rows",
        summary="The effective number of dimensions that the variance of the rows uses.",
        reading="At d all directions carry the same variance, at 1 a single direction carries all of it.",
        trap="Never above n − 1, and of n isotropic rows only about nd/(n + d): compare with the null value.",
        formula="tr(C)² / ‖C‖_F², C the covariance",
        range=(1, "d"),
        direction="higher is more isotropic",
        at_gaussian="d",
        unit="dimensions",
        invariances=("rotation", "translation", "scale"),
        reference="Rudman et al. 2022, arXiv:2108.07344 (as IsoScore's core)",
    )
)
add_measure(
    Measure(
        name="isoscore",
        title="IsoScore",
        group="isotropy",
        function=isoscore,
        takes="rows",
        summary="The share of dimensions that the variance uses, from 0 (a line) to 1 (a sphere).",
        reading="1 means that all directions carry the same variance, 0 that one carries all of it.",
        trap="Blind to the mean, so a narrow cone can still score high; and biased low where n is not far above d, "
        "where isotropic noise gives about n/(n + d): compare with the null value or take [unbiased].",
        least_d=2,
        formula="(PR − 1)/(d − 1), PR the participation ratio",
        range=(0, 1),
        direction="higher is more isotropic",
        at_gaussian=1,
        invariances=("rotation", "translation", "scale"),
        reference="Rudman et al. 2022, arXiv:2108.07344",
    )
)
