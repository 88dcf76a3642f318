"""The R of a QR decomposition of many rows: it has their singular values and right singular vectors, to all digits."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.rows.matrix import Matrix, blocks, mean_row
from clip_geometry.rows.streamed import StreamedRows


def triangle(x: Float[Matrix, "n d"], *, center: bool = False) -> Float[Tensor, "k d"]:
    """R, upper triangular, k = min(n, d), with RᵀR = xᵀx, block by block in float64; center: of the rows less their
    mean. StreamedRows are read for the first of both only: the mean is one row more."""
    if isinstance(x, StreamedRows):
        if "triangle" not in x.known:
            x.known["triangle"] = _reduced(x, mean_row(x))
        if center:
            return x.known["triangle"]
        mean = math.sqrt(len(x)) * mean_row(x)[None]
        return _of(torch.cat([x.known["triangle"], mean]))[: len(x)]
    return _reduced(x, mean_row(x) if center else 0.0)


def _reduced(x: Float[Matrix, "n d"], mean: Float[Tensor, " d"] | float) -> Float[Tensor, "k d"]:
    r = torch.zeros((0, x.shape[1]), dtype=torch.float64, device=x.device)
    for block in blocks(x):
        r = _of(torch.cat([r, block - mean]))
    return r


def _of(rows: Float[Tensor, "n d"]) -> Float[Tensor, "k d"]:
    return torch.linalg.qr(rows, mode="reduced" if rows.requires_grad else "r").R  # a gradient needs Q
