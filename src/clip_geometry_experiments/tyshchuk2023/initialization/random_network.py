"""Predictions for wide random networks: how the cosines of n inputs change from one operation to the next.

The state is the kernel of n rows x of width d, K_ab = ⟨x_a, x_b⟩/d, an (n, n) matrix in float64. As the width grows,
the kernel after an operation with fresh, independent weights of mean zero becomes a function of the kernel before it,
and the rows themselves are not needed (Neal 1996; Cho & Saul 2009; Poole et al. 2016; Lee et al. 2018). At finite
width, an entry of K scatters about the predicted value by a few 1/√d of its size.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import gammaln
from torch import Tensor

TERMS = 128  # terms of the series in Hermite polynomials
NODES = 256  # quadrature nodes on each side of 0, where activations may have a kink
REACH = 12.0  # integration range in standard deviations; the weight beyond it is 1e-32

Kernel = Float[Tensor, "n n"]


def kernel(rows: Float[Tensor, "n d"]) -> Kernel:
    """Return the kernel K_ab = ⟨x_a, x_b⟩/d. Zero rows are allowed."""
    rows = rows.double()
    return rows @ rows.T / rows.shape[1]


def kernel_average_cosine(K: Kernel) -> float | None:
    """Return the mean cosine over all pairs of different rows, the mean over a ≠ b of K_ab / √(K_aa K_bb).

    It is None if a row is zero.
    """
    variance, n = K.diagonal(), len(K)
    if not bool((variance > 0).all()):
        return None
    return float(((K / _scale(variance)).sum() - n) / (n * (n - 1)))


def linear(K: Kernel, *, fan_in: int, weight: float, bias: float) -> Kernel:
    """Return the kernel after x ↦ W x + b: fan_in · weight · K + bias.

    `weight` and `bias` are the mean squares of the entries of W and b, which are independent of each other and have
    mean zero. A bias adds the same value to all entries of K and so raises all cosines; without a bias they do not
    change.
    """
    return fan_in * weight * K + bias


def activation(K: Kernel, function: Callable[[Tensor], Tensor]) -> Kernel:
    """Return the kernel after x ↦ φ(x), applied to each coordinate.

    It is E φ(u_a) φ(u_b) for Gaussian (u_a, u_b) with mean zero and covariance K. By Mehler's formula this equals
    Σ_k c_k(a) c_k(b) ρ_ab^k with c_k(a) = E φ(√K_aa z) h_k(z), where h_k are the orthonormal Hermite polynomials and ρ
    are the cosines. The coefficients come from Gauss-Legendre quadrature on each side of 0. The part of E φ² that the
    first TERMS coefficients leave out is added as one further power of ρ, so that the diagonal is exact. Off the
    diagonal, the error is at rounding level for polynomials, GELU, QuickGELU and tanh with variances about 1, and below
    1e-4 E φ² where φ has a kink at 0.
    """
    z, hermite, weights = _quadrature()
    values = function((K.diagonal().sqrt()[:, None] * z).to(torch.float64))
    coefficients = values @ hermite
    left = ((values.square() @ weights) - coefficients.square().sum(1)).clamp(min=0).sqrt()
    cosines = _cosines(K)
    power, total = torch.ones_like(K), torch.zeros_like(K)
    for column in (*coefficients.T, left):
        total += torch.outer(column, column) * power
        power *= cosines
    return total


def layer_norm(K: Kernel, mean: Float[Tensor, " n"], *, eps: float) -> Kernel:
    """Return the kernel after each row is centered over its coordinates and divided by its standard deviation.

    The result is (K_ab − m_a m_b)/√((v_a + eps)(v_b + eps)) with v_a = K_aa − m_a². The kernel does not determine the
    means m. After a layer with weights of mean zero, m is of size 1/√d, and zeros can be passed. Where the rows contain
    a positional or class embedding, pass `rows.mean(1)`.
    """
    K = K - torch.outer(mean, mean).to(K)
    return K / _scale(K.diagonal() + eps)


def _scale(variance: Float[Tensor, " n"]) -> Kernel:
    root = variance.sqrt()
    return torch.outer(root, root)


def _cosines(K: Kernel) -> Kernel:
    """Return the cosines, 0 for zero rows: their activations are constant and enter no power of the cosine."""
    scale = _scale(K.diagonal())
    cosines = torch.where(scale > 0, K / scale.clamp(min=torch.finfo(K.dtype).tiny), 0.0).clamp(-1, 1)
    return cosines.fill_diagonal_(1.0)


def _quadrature() -> tuple[Tensor, Tensor, Tensor]:
    """Return the nodes z, (q,), and weights ω, (q,), of a quadrature for the standard normal distribution.

    Between them, the result has the matrix ω_i h_k(z_i), (q, TERMS), which takes the values of a function at the nodes
    to its coefficients in the normalized Hermite polynomials h_k.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = (nodes + 1) * REACH / 2
    z = np.concatenate([-half[::-1], half])
    weights = np.concatenate([weights[::-1], weights]) * REACH / 2
    weights *= np.exp(-np.square(z) / 2) / np.sqrt(2 * np.pi)
    lengths = np.exp(gammaln(np.arange(1, TERMS + 1)) / 2)  # √k! normalizes the k-th polynomial
    hermite = np.polynomial.hermite_e.hermevander(z, TERMS - 1) / lengths
    return torch.from_numpy(z), torch.from_numpy(hermite * weights[:, None]), torch.from_numpy(weights)
