"""The shape of the eigenspectrum: how fast the variances along the principal directions fall."""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.statistics.moments import RowsOrMoments
from clip_geometry.geometry.statistics.spectrum import Spectrum
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Integer, whole_number
from clip_geometry.rows.matrix import Rows, as_matrix

ROUNDING = 1e-12  # of the largest singular value: smaller ones are made of last digits


@in_kind
def alpha_req(x: Rows | Spectrum, *, first: Integer = 1, last: Integer | None = None) -> Float[Tensor, ""]:
    """α-ReQ: exponent α of the power law λ_j ~ j^{−α} of the covariance's eigenvalues (Agrawal et al. 2022).

    Minus the slope of log λ_j on log j over the ranks j = `first` … `last`, each weighted by 1/j, so that equal
    stretches of log j count alike, as the authors fit it. 0 where all directions carry as much; values near 1 were
    found to go with good transfer, larger ones mean that few directions carry nearly all. At least 0.

    Args:
        x: Rows, (n, d), or `Spectrum`; n ≥ 3, d ≥ 2.
        first: First rank. The authors' fits take ranks 12 to 100.
        last: Last rank; None for all. Eigenvalues that are zero up to rounding are left out.

    Returns:
        α, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: All rows are equal, or fewer than two eigenvalues are left.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(2000, 8)) / np.arange(1, 9)  # variances 1/j²
        >>> round(cg.alpha_req(x), 2)
        1.98
    """
    first = whole_number(first, "first")
    last = None if last is None else whole_number(last, "last", least=first + 1)
    spectrum = x if isinstance(x, Spectrum) else Spectrum(as_matrix(x, least=3, least_d=2))
    spectrum.require_spread()
    return _slope(spectrum.singular_values(center=True)[: spectrum.n - 1], first, last)


def _slope(values: Float[Tensor, " k"], first: int = 1, last: int | None = None) -> Float[Tensor, ""]:
    """From the singular values, descending."""
    count = int((values > ROUNDING * values[0]).sum())
    logs = 2 * values[first - 1 : min(count, last or count)].log()
    if len(logs) < 2:
        raise InputError(f"{count} eigenvalues are not zero; alpha_req needs two from rank {first} on")
    ranks = torch.arange(first, first + len(logs), dtype=torch.float64, device=logs.device)
    weights, ranks = 1 / ranks, ranks.log()
    ranks = ranks - (weights * ranks).sum() / weights.sum()
    return -(weights * ranks * logs).sum() / (weights * ranks.square()).sum()


@in_kind
def nesum(x: RowsOrMoments | Spectrum) -> Float[Tensor, ""]:
    """NESum: the eigenvalues of the covariance in units of the largest, summed (He & Ozay 2022).

    Σ_j λ_j/λ_1, also known as the stable rank of the centered rows. In [1, min(n − 1, d)]; higher is more isotropic.

    Args:
        x: Rows, (n, d), `Moments` or `Spectrum`; n ≥ 2.

    Returns:
        The sum, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: All rows are equal.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> round(cg.nesum(x), 2)
        5.14
    """
    values = Spectrum.of(x).variances
    return values.sum() / values[-1]


add_measure(Measure(name="alpha_req", function=alpha_req, statistic=Spectrum, streams=True))
add_measure(Measure(name="nesum", function=nesum, statistic=Spectrum, streams=True))
