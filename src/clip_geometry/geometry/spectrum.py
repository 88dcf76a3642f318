"""How the principal directions, or the coordinates, share the variance."""

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

ROUNDING = 1e-12  # of the largest singular value: smaller ones are made of last digits


@arrays_in_kind
def coordinate_std(x: Rows | Moments) -> Float[Tensor, " d"]:
    """Standard deviation of each coordinate over the rows (population, ddof 0).

    Args:
        x: Rows, (n, d), n ≥ 2; or a precomputed `Moments`.

    Returns:
        The standard deviations, (d,), float64.

    Raises:
        InputError: The rows are not usable: fewer than two, NaN or infinite.

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
    """Relative spread of the coordinates' standard deviations.

    std_j(s)/mean_j(s), s = `coordinate_std`. In [0, √(d − 1)]: 0 where all coordinates vary equally; large values point
    to rogue dimensions. Depends on the basis. Source: Tyshchuk et al. 2023.

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
    """Singular values of the rows, in descending order.

    σ²/n are the second moments along the principal directions.

    Args:
        x: Rows, (n, d), n ≥ 1 (2 with center).
        center: Subtract the mean of the rows first.

    Returns:
        The singular values, (min(n, d),), float64.

    Raises:
        InputError: The rows are not usable: too few, NaN or infinite.

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
    """Effective rank: exp of the entropy of the normalized singular values (Roy & Vetterli 2007).

    exp(−Σ p log p), p = σ/Σσ, σ the singular values of the centered rows. Without centering it is RankMe (Garrido et
    al. 2023). In [1, min(n − 1, d)], uncentered [1, min(n, d)]; higher uses more directions. From `Moments`, whose
    eigenvalues are squares, σ below 1e-8 of the largest are rounding, and only the n − 1 largest (n uncentered) are
    taken.

    Args:
        x: Rows, (n, d), `Moments` or `Spectrum`; n ≥ 2.
        center: Subtract the mean of the rows first.

    Returns:
        The effective rank as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: All rows are equal (uncentered: zero; of `Moments` all rows that are equal).

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
        raise InputError("all rows of x are zero; their effective rank is undefined")
    return torch.special.entr(values / values.sum()).sum().exp()


@in_kind
def alpha_req(x: Rows | Spectrum, *, first: Integer = 1, last: Integer | None = None) -> Float[Tensor, ""]:
    """α-ReQ: exponent α of the power law λ_j ~ j^{−α} of the covariance's eigenvalues (Agrawal et al. 2022).

    Minus the slope of log λ_j on log j over the ranks j = `first` … `last`, each weighted by 1/j, so that equal
    stretches of log j count alike, as the authors fit it. 0 where all directions carry as much; values near 1 were
    found to go with good transfer, larger ones mean that few directions carry nearly all. At least 0.

    Args:
        x: Rows, (n, d), n ≥ 3, d ≥ 2; or a precomputed `Spectrum`.
        first: First rank. The authors' fits take ranks 12 to 100.
        last: Last rank; None for all. Eigenvalues that are zero up to rounding are left out.

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
def nesum(x: Rows | Moments | Spectrum) -> Float[Tensor, ""]:
    """NESum: the eigenvalues of the covariance in units of the largest, summed (He & Ozay 2022).

    Σ_j λ_j/λ_1, also known as the stable rank of the centered rows. In [1, min(n − 1, d)]; higher is more isotropic.

    Args:
        x: Rows, (n, d), `Moments` or `Spectrum`; n ≥ 2.

    Returns:
        The sum as a float, or as a 0-d float64 tensor for tensor input.

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
    """Total variation distance of the normalized spectra of two sets: ½ Σ_k |λ_k/Σλ − κ_k/Σκ|.

    λ and κ are the eigenvalues of the covariances, in descending order. In [0, 1]: 0 where the k-th direction of both
    sets carries the same share of the variance, for all k. O((n + m)d²).

    Args:
        image: Rows, (n, d), n ≥ 2.
        text: Rows, (m, e), m ≥ 2, of any dimension: missing eigenvalues are 0.

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
    x, y = (torch.nn.functional.pad(each / each.sum(), (0, size - len(each))) for each in (x, y))
    return (x - y).abs().sum() / 2


add_measure(Measure(name="coordinate_spread", function=coordinate_spread, statistic=Moments, streams=True))
_RANK = Measure(name="effective_rank", function=effective_rank, statistic=Spectrum, streams=True)
add_measure(_RANK, variant(_RANK, "uncentred", options={"center": False}))
add_measure(Measure(name="alpha_req", function=alpha_req, statistic=Spectrum, streams=True))
add_measure(Measure(name="nesum", function=nesum, statistic=Spectrum, streams=True))
add_measure(Measure(name="spectral_discrepancy", streams=True, function=spectral_discrepancy))
