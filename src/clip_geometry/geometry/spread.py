"""How the coordinates and the singular directions share the spread."""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.rows import Rows, as_rows, blocks, mean_row, require_spread
from clip_geometry.registry import InputError


def coordinate_std(x: Rows) -> Float[Tensor, " d"]:
    """Standard deviation of each coordinate over the rows (population, ddof 0). x: (n, d), n ≥ 2 → (d,)."""
    x = as_rows(x)
    mean = mean_row(x)
    squares = torch.stack([(block - mean).square().sum(0) for block in blocks(x)]).sum(0)
    return (squares / len(x)).sqrt()


def coordinate_spread(x: Rows) -> Float[Tensor, ""]:
    """Relative spread of the coordinates' standard deviations: std_j / mean_j of coordinate_std.

    x: (n, d), n ≥ 2, d ≥ 2. In [0, √(d − 1)], 0 where all coordinates contribute equally; large values point to
    rogue dimensions. Depends on the basis. Raises InputError where all rows are equal or d = 1.
    """
    x = as_rows(x)
    if x.shape[1] < 2:
        raise InputError("x has one column; coordinate_spread compares at least two")
    require_spread(x)
    std = coordinate_std(x)
    return std.std(correction=0) / std.mean()


def singular_values(x: Rows, *, center: bool = False) -> Float[Tensor, " k"]:
    """Singular values of the rows, descending, k = min(n, d); of the centred rows with center=True.

    x: (n, d), n ≥ 1 (2 with center). σ²/n are the second moments along the principal directions.
    """
    x = as_rows(x, least=2 if center else 1)
    rows = x.double() - mean_row(x) if center else x.double()
    return torch.linalg.svdvals(rows)


add_measure(
    Measure(
        name="coordinate_spread",
        title="Coordinate spread",
        group="spread",
        function=coordinate_spread,
        takes="rows",
        summary="How unequally the coordinates vary: standard deviation over mean of their standard deviations.",
        reading="0 means that all coordinates contribute alike, large values that a few rogue dimensions dominate.",
        trap="It depends on the basis: a rotation, which changes no distance, changes it and can hide every rogue one.",
        least_d=2,
        formula="std_j(s) / mean_j(s), s_j = std_i(w_ij)",
        range=(0, float("inf")),
        direction="lower is more even",
        at_gaussian=0,
        invariances=("translation", "scale"),
        reference="Tyshchuk et al. 2023, doi:10.3390/info14070392",
    )
)
