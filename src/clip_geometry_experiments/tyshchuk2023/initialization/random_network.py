"""Wide random networks: how the cosines of n inputs change from one operation to the next.

The state is the kernel of n rows x of width d, K_ab = ⟨x_a, x_b⟩/d, an (n, n) matrix in float64. As the width grows, K
after an operation with fresh, independent weights of mean zero is a function of K before it, and the rows themselves
are not needed (Neal 1996; Cho & Saul 2009; Poole et al. 2016; Lee et al. 2018). At finite width an entry of K scatters
about that value by a few 1/√d of its size.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import gammaln
from torch import Tensor

TERMS = 128  # of the series in Hermite polynomials
NODES = 256  # of the quadrature on either side of 0, where activations may have a kink
REACH = 12.0  # standard deviations; what lies beyond weighs 1e-32

Kernel = Float[Tensor, "n n"]


def kernel(rows: Float[Tensor, "n d"]) -> Kernel:
    """K_ab = ⟨x_a, x_b⟩/d. Zero rows are allowed."""
    rows = rows.double()
    return rows @ rows.T / rows.shape[1]


def kernel_average_cosine(K: Kernel) -> float | None:
    """Mean cosine of all pairs of different rows: mean over a ≠ b of K_ab / √(K_aa K_bb). None if a row is zero."""
    variance, n = K.diagonal(), len(K)
    if not bool((variance > 0).all()):
        return None
    return float(((K / _scale(variance)).sum() - n) / (n * (n - 1)))


def linear(K: Kernel, *, fan_in: int, weight: float, bias: float) -> Kernel:
    """After x ↦ W x + b: fan_in · weight · K + bias.

    weight, bias: mean squares of the entries of W and b, which are independent of each other and of mean zero. A bias
    adds the same to all entries, and so raises all cosines; without one they stay as they are.
    """
    return fan_in * weight * K + bias


def activation(K: Kernel, function: Callable[[Tensor], Tensor]) -> Kernel:
    """After x ↦ φ(x) coordinate by coordinate: E φ(u_a) φ(u_b), (u_a, u_b) Gaussian of mean zero and covariance K.

    By Mehler's formula Σ_k c_k(a) c_k(b) ρ_ab^k, c_k(a) = E φ(√K_aa z) h_k(z) with the orthonormal Hermite
    polynomials h_k, ρ the cosines. The coefficients come from Gauss-Legendre quadrature on either side of 0; what TERMS
    of them leave out of E φ² is added as one further power of ρ, so that the diagonal is exact. Off it, the error is
    at rounding for polynomials, GELU, QuickGELU and tanh of variances about 1, and below 1e-4 E φ² where φ has a kink
    at 0.
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
    """After each row is centered over its coordinates and divided by its standard deviation.

    (K_ab − m_a m_b)/√((v_a + eps)(v_b + eps)), v_a = K_aa − m_a². The kernel does not contain m: behind a layer with
    weights of mean zero it is of size 1/√d, and zeros are right; where a positional or class embedding lies in the
    rows, it is `rows.mean(1)`.
    """
    K = K - torch.outer(mean, mean).to(K)
    return K / _scale(K.diagonal() + eps)


def _scale(variance: Float[Tensor, " n"]) -> Kernel:
    root = variance.sqrt()
    return torch.outer(root, root)


def _cosines(K: Kernel) -> Kernel:
    """0 for zero rows, whose activations are constant and take part in no power of it."""
    scale = _scale(K.diagonal())
    cosines = torch.where(scale > 0, K / scale.clamp(min=torch.finfo(K.dtype).tiny), 0.0).clamp(-1, 1)
    return cosines.fill_diagonal_(1.0)


def _quadrature() -> tuple[Tensor, Tensor, Tensor]:
    """Nodes z (q,); the matrix (q, TERMS) of ω_i h_k(z_i), by which function values give coefficients; ω (q,)."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = (nodes + 1) * REACH / 2
    z = np.concatenate([-half[::-1], half])
    weights = np.concatenate([weights[::-1], weights]) * REACH / 2
    weights *= np.exp(-np.square(z) / 2) / np.sqrt(2 * np.pi)
    lengths = np.exp(gammaln(np.arange(1, TERMS + 1)) / 2)  # √k! of the k-th polynomial
    hermite = np.polynomial.hermite_e.hermevander(z, TERMS - 1) / lengths
    return torch.from_numpy(z), torch.from_numpy(hermite * weights[:, None]), torch.from_numpy(weights)
