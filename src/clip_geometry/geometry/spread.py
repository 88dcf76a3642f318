"""How the coordinates and the singular directions share the spread."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.arguments import Flag, flag
from clip_geometry.geometry._core.kinds import arrays_in_kind, in_kind
from clip_geometry.geometry._core.left_out import LeftOut
from clip_geometry.geometry._core.moments import Moments, RowsOrMoments, as_moments
from clip_geometry.geometry._core.rows import Rows, as_matrix, blocks, mean_row, require_spread
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.geometry._core.triangle import triangle
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.registry import InputError


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
    if isinstance(x, StreamedRows):
        return torch.linalg.svdvals(triangle(x, center=center))
    rows = x.double() - mean_row(x) if center else x.double()
    return torch.linalg.svdvals(rows)


@in_kind
def effective_rank(x: RowsOrMoments, *, center: Flag = True) -> Float[Tensor, ""]:
    """Effective rank: exp of the entropy of the normalized singular values (Roy & Vetterli 2007).

    exp(−Σ p log p), p = σ/Σσ, σ the singular values of the centered rows. Without centering it is RankMe (Garrido et
    al. 2023). In [1, min(n − 1, d)], uncentered [1, min(n, d)]; higher uses more directions. From `Moments`, whose
    eigenvalues are squares, σ below 1e-8 of the largest are rounding, and only the n − 1 largest (n uncentered) are
    taken.

    Args:
        x: Rows, (n, d), or `Moments`; n ≥ 2.
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
    if isinstance(x, Moments):
        products, most = as_moments(x).M2, x.n - 1
        if not center:
            products, most = products + x.n * torch.outer(x.mean, x.mean), x.n
        values = torch.linalg.eigvalsh(products).flip(0)[:most].clamp(min=0).sqrt()
    else:
        x = as_matrix(x)
        if center:
            require_spread(x)
        values = singular_values(x, center=center)
    if values[0] == 0:
        raise InputError("all rows of x are zero; their effective rank is undefined")
    return _effective_rank(values)


def _effective_rank(values: Float[Tensor, " k"]) -> Float[Tensor, ""]:
    return torch.special.entr(values / values.sum()).sum().exp()


def _left_out(rows: LeftOut, *, center: bool = True) -> Iterator[Tensor]:
    """effective_rank without each block."""
    for block in range(rows.blocks):
        yield _effective_rank(rows.squared_singular_values(block, center=center).sqrt())


add_measure(
    Measure(
        name="coordinate_spread",
        streams=True,
        from_moments=True,
        title="Coordinate spread",
        brief="how unequal the spreads of the coordinates are",
        group="spread",
        function=coordinate_spread,
        takes="rows",
        summary="How unequally the coordinates vary: standard deviation over mean of their standard deviations.",
        reading="0 means that all coordinates contribute alike, large values that a few rogue dimensions dominate.",
        caveat="It depends on the basis: a rotation, which changes no distance, changes it and can hide rogue ones.",
        least_d=2,
        formula="std_j(s) / mean_j(s), s_j = std_i(w_ij)",
        range=(0, float("inf")),
        direction="lower is more even",
        at_gaussian=0,
        invariances=("translation", "scale"),
        reference="Tyshchuk et al. 2023, doi:10.3390/info14070392",
    )
)
_RANK = Measure(
    name="effective_rank",
    depends_on_n=True,
    streams=True,
    title="Effective rank",
    brief="number of directions in use, by singular values",
    group="isotropy",
    function=effective_rank,
    left_out=_left_out,
    takes="rows",
    summary="How many directions the rows use, by the entropy of the singular values of the centered rows.",
    reading="At d all directions carry the same variance, at 1 one carries all. Weak directions count more than in the "
    "participation ratio, which squares the variances.",
    caveat="Never above n − 1; a long tail of noise raises it although it carries hardly any variance.",
    formula="exp(−Σ p log p), p = σ/Σσ, σ the singular values of the centered rows",
    range=(1, "d"),
    direction="higher is more isotropic",
    at_gaussian="d",
    unit="dimensions",
    invariances=("rotation", "translation", "scale"),
    reference="Roy & Vetterli 2007, EUSIPCO, The effective rank",
)
add_measure(
    _RANK,
    variant(
        _RANK,
        "uncentred",
        title="Effective rank, uncentred",
        summary="How many directions the rows use, by the entropy of the singular values of the rows as they are.",
        reading="At d all directions carry as much, at 1 one carries all; known as RankMe, where it predicts how well "
        "a representation serves other tasks.",
        caveat="A common offset is one large singular value and lowers it, so a cone and a line are not told apart. "
        "Never above n, and it rises with n: compare equal n only.",
        formula="exp(−Σ p log p), p = σ/Σσ, σ the singular values of the rows",
        invariances=("rotation", "scale"),
        options={"center": False},
        reference="Garrido et al. 2023, arXiv:2210.02885",
    ),
)
