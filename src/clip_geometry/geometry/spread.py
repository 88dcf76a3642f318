"""How the coordinates and the singular directions share the spread."""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import arrays_in_kind, in_kind
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.geometry.statistics.moments import Moments, RowsOrMoments, as_moments
from clip_geometry.geometry.statistics.spectrum import Spectrum
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Flag, flag
from clip_geometry.rows.matrix import Rows, as_matrix, blocks, mean_row, require_spread
from clip_geometry.rows.streamed import StreamedRows


@arrays_in_kind
def coordinate_std(x: RowsOrMoments) -> Float[Tensor, " d"]:
    """Standard deviation of each coordinate over the rows (population, ddof 0).

    Args:
        x: Rows, (n, d), or `Moments`; n ≥ 2.

    Returns:
        The standard deviations, (d,), float64.

    Raises:
        InputError: The rows are not usable: fewer than two, NaN or infinite.

    Example:
        >>> import clip_geometry as cg
        >>> cg.coordinate_std([[0.0, 1.0], [2.0, 1.0]]).tolist()
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
def coordinate_spread(x: RowsOrMoments) -> Float[Tensor, ""]:
    """Relative spread of the coordinates' standard deviations.

    std_j(s)/mean_j(s), s = `coordinate_std`. In [0, √(d − 1)]: 0 where all coordinates vary equally; large values point
    to rogue dimensions. Depends on the basis. Source: Tyshchuk et al. 2023.

    Args:
        x: Rows, (n, d), or `Moments`; n ≥ 2, d ≥ 2.

    Returns:
        The relative spread, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: All rows are equal, or d = 1.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> round(cg.coordinate_spread(x), 3)
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
        >>> cg.singular_values([[3.0, 0.0], [0.0, 4.0]]).tolist()
        [4.0, 3.0]
    """
    center = flag(center, "center")
    x = as_matrix(x, least=2 if center else 1)
    return Spectrum(x).singular_values(center=center)


@in_kind
def effective_rank(x: RowsOrMoments | Spectrum, *, center: Flag = True) -> Float[Tensor, ""]:
    """Effective rank: exp of the entropy of the normalized singular values (Roy & Vetterli 2007).

    exp(−Σ p log p), p = σ/Σσ, σ the singular values of the centered rows. Without centering it is RankMe (Garrido et
    al. 2023). In [1, min(n − 1, d)], uncentered [1, min(n, d)]; higher uses more directions. From `Moments`, whose
    eigenvalues are squares, σ below 1e-8 of the largest are rounding, and only the n − 1 largest (n uncentered) are
    taken.

    Args:
        x: Rows, (n, d), `Moments` or `Spectrum`; n ≥ 2.
        center: Subtract the mean of the rows first.

    Returns:
        The effective rank, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: All rows are equal (uncentered: zero; of `Moments` all rows that are equal).

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> round(cg.effective_rank(x), 3)
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


add_measure(Measure(name="coordinate_spread", function=coordinate_spread, statistic=Moments, streams=True))
_RANK = Measure(name="effective_rank", function=effective_rank, statistic=Spectrum, streams=True)
add_measure(_RANK, variant(_RANK, "uncentred", options={"center": False}))
