"""Second moments of activations of jointly Gaussian values, whatever their means."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from clip_geometry.geometry.random_network import _quadrature

TERMS = 40  # powers of the correlation; what they leave out is one further power
Function = Callable[[Tensor], Tensor]

cached_quadrature = cache(_quadrature)


def activated(second: Tensor, mean: Tensor, near: Tensor, function: Function) -> tuple[Tensor, Tensor, Tensor]:
    """E φ(z_i) φ(z_j), E φ(z_i), and E φ(z_i) φ(z_i') of near positions, by Mehler's formula.

    second: (r, r), E z_i z_j. mean: (r,), E z_i. near: (r, lags), E z_i z_i' where z_i' has the moments of z_i.
    Σ_k c_k(i) c_k(j) ρ_ij^k with c_k(i) = E φ(m_i + s_i z) h_k(z); what TERMS coefficients leave out of E φ² is
    added as one further power, so that the diagonal is exact. ReLU of mean zero is exact (Cho & Saul 2009).
    """
    variance = (second.diagonal() - mean.square()).clamp(min=0)
    scale = variance.sqrt()
    safe = scale.clamp(min=1e-18)
    rho = ((second - torch.outer(mean, mean)) / torch.outer(safe, safe)).clamp(-1, 1)
    rho.fill_diagonal_(1.0)
    rho_near = ((near - mean.square()[:, None]) / safe.square()[:, None]).clamp(-1, 1)
    if function is torch.relu and not bool(mean.any()):
        product = torch.outer(scale, scale) * _arc_cosine(rho)
        return product, scale / (2 * torch.pi) ** 0.5, variance[:, None] * _arc_cosine(rho_near)
    z, hermite, weights = (each.to(second) for each in cached_quadrature())
    values = function(mean[:, None] + scale[:, None] * z)
    coefficients = values @ hermite[:, :TERMS]
    left = (values.square() @ weights - coefficients.square().sum(1)).clamp(min=0).sqrt()
    coefficients = torch.cat([coefficients, left[:, None]], 1)
    size = coefficients.square().sum(0)
    used = len(size) - int((size.flip(0) > 1e-10 * size.sum()).to(torch.uint8).argmax())
    product, product_near = torch.zeros_like(rho), torch.zeros_like(rho_near)
    for column in reversed(coefficients.T[:used]):  # Horner
        product = product * rho + torch.outer(column, column)
        product_near = product_near * rho_near + column.square()[:, None]
    return product, coefficients[:, 0].clone(), product_near


def root(second: Tensor) -> Tensor:
    """L with L Lᵀ = second, up to rounding."""
    size = float(second.diagonal().mean())
    second = second.double()
    eye = torch.eye(len(second), dtype=second.dtype)
    for jitter in (1e-8, 1e-6, 1e-4, 1e-2):
        found, failed = torch.linalg.cholesky_ex(second + (jitter * size + 1e-30) * eye)
        if not int(failed):
            return found
    values, vectors = torch.linalg.eigh(second)  # approximations before it left moments that no values have
    return vectors * values.clamp(min=0).sqrt()


def _arc_cosine(rho: Tensor) -> Tensor:
    root = (1 - rho.square()).clamp(min=0).sqrt()
    return (root + rho * (torch.pi - torch.arccos(rho))) / (2 * torch.pi)
