"""How the variance is distributed over the principal directions, or over the coordinates."""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import arrays_in_kind, in_kind
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.geometry.statistics.moments import Moments, as_moments
from clip_geometry.geometry.statistics.spectrum import Spectrum
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Flag, Integer, flag, whole_number
from clip_geometry.rows.matrix import Rows, as_matrix, as_two_sets, blocks, mean_row, require_spread
from clip_geometry.rows.streamed import StreamedRows

ROUNDING = 1e-12  # relative to the largest singular value; smaller ones are rounding error


@arrays_in_kind
def coordinate_std(x: Rows | Moments) -> Float[Tensor, " d"]:
    """Return the standard deviation of each coordinate over the rows (population, ddof 0).

    Args:
        x: Rows, (n, d), n ≥ 2; or a precomputed `Moments`.

    Returns:
        The standard deviations, (d,), float64.

    Raises:
        InputError: There are fewer than two rows, or an entry is NaN or infinite.

    Example:
        >>> import clip_geometry as cg
        >>> cg.geometry.coordinate_std([[0.0, 1.0], [2.0, 1.0]]).tolist()
        [1.0, 0.0]
    """
    if isinstance(x, Moments | StreamedRows):
        moments = as_moments(x)
        return (moments.M2.diagonal() / moments.n).sqrt()
    x = as_matrix(x)
    mean = mean_row(x)
    squares = torch.stack([(block - mean).square().sum(0) for block in blocks(x)]).sum(0)
    return (squares / len(x)).sqrt()


@in_kind
def coordinate_spread(x: Rows | Moments) -> Float[Tensor, ""]:
    """Return how unequally the coordinates vary: the standard deviation of `coordinate_std`, divided by its mean.

    The value lies in [0, √(d − 1)]. It is 0 if all coordinates have the same standard deviation; a large value means
    that a few coordinates vary much more than the others (rogue dimensions). It changes if the rows are rotated.
    Source: Tyshchuk et al. 2023.

    Args:
        x: Rows, (n, d), n ≥ 2, d ≥ 2; or a precomputed `Moments`.

    Returns:
        The relative spread as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: All rows are equal, or d = 1.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> round(cg.geometry.coordinate_spread(x), 3)
        0.101
    """
    if isinstance(x, Moments):
        x = as_moments(x, least_d=2)
    else:
        x = as_matrix(x, least_d=2)
        require_spread(x)
    std = coordinate_std(x)
    return std.std(correction=0) / std.mean()


@arrays_in_kind
def singular_values(x: Rows, *, center: Flag = False) -> Float[Tensor, " k"]:
    """Return the singular values σ of the matrix of rows, in descending order.

    σ²/n is the variance along each principal direction, about the mean with `center` and about the origin without.

    Args:
        x: Rows, (n, d), n ≥ 1 (n ≥ 2 with `center`).
        center: Subtract the mean of the rows first.

    Returns:
        The singular values, (min(n, d),), float64.

    Raises:
        InputError: There are too few rows, or an entry is NaN or infinite.

    Example:
        >>> import clip_geometry as cg
        >>> cg.geometry.singular_values([[3.0, 0.0], [0.0, 4.0]]).tolist()
        [4.0, 3.0]
    """
    center = flag(center, "center")
    x = as_matrix(x, least=2 if center else 1)
    return Spectrum(x).singular_values(center=center)


@in_kind
def effective_rank(x: Rows | Moments | Spectrum, *, center: Flag = True) -> Float[Tensor, ""]:
    """Return the effective rank, the number of directions that the rows use (Roy & Vetterli 2007).

    It is the exponential of the entropy of the normalized singular values: exp(−Σ p log p) with p = σ/Σσ, where σ are
    the singular values of the centered rows. Without centering it is RankMe (Garrido et al. 2023). It lies in [1, min(n
    − 1, d)], or in [1, min(n, d)] without centering; higher means that more directions are used.

    From `Moments`, σ is computed as the square root of an eigenvalue, so values below 1e-8 of the largest are rounding
    error. Only the n − 1 largest are used then, or n without centering.

    Args:
        x: Rows, (n, d), or a precomputed `Moments` or `Spectrum`; n ≥ 2.
        center: Subtract the mean of the rows first.

    Returns:
        The effective rank as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: All rows are equal. Without centering, only rows that are all zero are rejected, or for `Moments`,
            rows that are all equal.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> round(cg.geometry.effective_rank(x), 3)
        7.896
    """
    center = flag(center, "center")
    spectrum = Spectrum.of(x)
    if center:
        spectrum.require_spread()
    values = spectrum.singular_values(center=center)
    if values[0] == 0:
        raise InputError("all rows of x are zero, so their effective rank is undefined; give rows that are not zero")
    return torch.special.entr(values / values.sum()).sum().exp()


@in_kind
def alpha_req(x: Rows | Spectrum, *, first: Integer = 1, last: Integer | None = None) -> Float[Tensor, ""]:
    """Return α-ReQ, the exponent with which the covariance eigenvalues decay (Agrawal et al. 2022).

    The eigenvalues are modeled as λ_j ~ j^{−α} for the ranks j = `first` … `last`. α is minus the slope of a weighted
    least-squares line through log λ_j over log j. Rank j has the weight 1/j, so that equal intervals of log j count
    equally, as in the authors' fit.

    α is at least 0. At 0, all directions have the same variance; the larger α, the fewer directions have nearly all of
    the variance. The authors find that representations with α near 1 transfer well.

    Args:
        x: Rows, (n, d), n ≥ 3, d ≥ 2; or a precomputed `Spectrum`.
        first: First rank of the fit, ≥ 1. The authors use the ranks 12 to 100.
        last: Last rank of the fit, > `first`; None uses all ranks. Eigenvalues that are zero up to rounding are
            ignored.

    Returns:
        α as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: All rows are equal, or fewer than two eigenvalues are left.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(2000, 8)) / np.arange(1, 9)  # variances 1/j²
        >>> round(cg.geometry.alpha_req(x), 2)
        1.98
    """
    first = whole_number(first, "first")
    last = None if last is None else whole_number(last, "last", least=first + 1)
    spectrum = x if isinstance(x, Spectrum) else Spectrum(as_matrix(x, least=3, least_d=2))
    spectrum.require_spread()
    return _slope(spectrum.singular_values(center=True)[: spectrum.n - 1], first, last)


def _slope(values: Float[Tensor, " k"], first: int = 1, last: int | None = None) -> Float[Tensor, ""]:
    """Return α-ReQ from the singular values, in descending order."""
    count = int((values > ROUNDING * values[0]).sum())
    logs = 2 * values[first - 1 : min(count, last or count)].log()
    if len(logs) < 2:
        raise InputError(f"{count} eigenvalues are not zero; expected at least two of them from rank {first} on")
    ranks = torch.arange(first, first + len(logs), dtype=torch.float64, device=logs.device)
    weights = 1 / ranks
    x = ranks.log()
    x = x - (weights * x).sum() / weights.sum()
    return -(weights * x * logs).sum() / (weights * x.square()).sum()


@in_kind
def nesum(x: Rows | Moments | Spectrum) -> Float[Tensor, ""]:
    """Return NESum, the sum of the covariance eigenvalues divided by the largest one (He & Ozay 2022).

    It is also known as the stable rank of the centered rows. It lies in [1, min(n − 1, d)]; higher is more isotropic.

    Args:
        x: Rows, (n, d), or a precomputed `Moments` or `Spectrum`; n ≥ 2.

    Returns:
        The quotient as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: All rows are equal.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> round(cg.geometry.nesum(x), 2)
        5.14
    """
    spectrum = Spectrum.of(x)
    spectrum.require_spread()
    variances = spectrum.singular_values(center=True).square()
    return variances.sum() / variances[0]


@in_kind
def spectral_discrepancy(image: Rows, text: Rows) -> Float[Tensor, ""]:
    """Return how differently two sets distribute their variance over their principal directions.

    The value is the total variation distance ½ Σ_k |λ_k/Σλ − κ_k/Σκ| of the normalized spectra, where λ and κ are the
    covariance eigenvalues of image and text in descending order. It lies in [0, 1]; 0 means that the k-th principal
    direction has the same share of the variance in both sets, for every k. The cost is O((n + m)d²).

    Args:
        image: Rows, (n, d), n ≥ 2.
        text: Rows, (m, e), m ≥ 2; e may differ from d. Missing eigenvalues count as 0.

    Returns:
        The distance as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: All rows of a set are equal.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> tuple(round(cg.geometry.spectral_discrepancy(image, other), 3) for other in (text, text[:, :4]))
        (0.049, 0.365)
    """
    image, text = as_two_sets(image, text, ("image", "text"), one_space=False, streams=True)
    require_spread(image, name="image")
    require_spread(text, name="text")
    x, y = (singular_values(rows, center=True).square() for rows in (image, text))
    size = max(len(x), len(y))
    x = torch.nn.functional.pad(x / x.sum(), (0, size - len(x)))
    y = torch.nn.functional.pad(y / y.sum(), (0, size - len(y)))
    return (x - y).abs().sum() / 2


add_measure(Measure(name="coordinate_spread", function=coordinate_spread, statistic=Moments, streams=True))
_RANK = Measure(name="effective_rank", function=effective_rank, statistic=Spectrum, streams=True)
add_measure(_RANK, variant(_RANK, "uncentred", options={"center": False}))
add_measure(Measure(name="alpha_req", function=alpha_req, statistic=Spectrum, streams=True))
add_measure(Measure(name="nesum", function=nesum, statistic=Spectrum, streams=True))
add_measure(Measure(name="spectral_discrepancy", streams=True, function=spectral_discrepancy))
