"""The R of a QR decomposition of many rows: it has their singular values and right singular vectors, to all digits."""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.rows import Matrix, blocks


def triangle(x: Float[Matrix, "n d"], mean: Float[Tensor, " d"] | float = 0.0) -> Float[Tensor, "k d"]:
    """R, upper triangular, k = min(n, d), with RᵀR = xᵀx: of the rows less `mean`, block by block in float64."""
    r = torch.zeros((0, x.shape[1]), dtype=torch.float64, device=x.device)
    for block in blocks(x):
        r = torch.linalg.qr(torch.cat([r, block - mean]), mode="r").R
    return r
