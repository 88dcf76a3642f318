"""Likelihood of rows under a Gaussian: which images or texts are typical, and which are outliers (Whitened CLIP)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.arguments import Integer, whole_number
from clip_geometry.geometry._core.kinds import arrays_in_kind
from clip_geometry.geometry._core.rows import Rows, as_rows, as_two_sets, mean_row, require_spread
from clip_geometry.registry import InputError

ROUNDING = 1e-10  # of the largest singular value: smaller ones are made of last digits


@arrays_in_kind
def whitened_log_likelihood(x: Rows, fitted_on: Rows | None = None, *, k: Integer | None = None) -> Float[Tensor, " n"]:
    """Log-likelihood of each row under a Gaussian of the mean and covariance of a set (W-CLIP, Betser et al. 2025).

    −½(k log 2π + ‖v‖²) with v the row whitened: less the mean, along k principal directions, each of variance 1
    (ddof 1) in the set. As in the paper and its code it is the density of v, not of the row, from which it differs by
    the same number for all rows; they whiten rows as encoders give them, not unit rows. On the set itself ‖v‖² is
    k(n − 1)/n on average, whatever the rows: that mean says nothing, so that it is no measure of a set; rows compare
    with each other, and other rows with the set. Rows outside of it vary less along its leading directions, and more
    along its last ones, the more so the fewer rows it has. O((n + m)d²).

    Args:
        x: Rows, (n, d).
        fitted_on: Rows that the mean and the covariance are taken from, (m, d), m ≥ 2; None for x itself.
        k: Number of principal directions, at most the rank of the set; None for all d.

    Returns:
        The log-likelihoods, (n,), float64.

    Raises:
        InputError: The set has fewer directions than k, as m ≤ d rows have fewer than d.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> known, new = rng.normal(size=(500, 4)), rng.normal(size=(3, 4)) * [[1], [1], [5]]
        >>> cg.whitened_log_likelihood(new, known).round(1).tolist()
        [-5.5, -6.0, -71.8]
    """
    if fitted_on is None:
        rows = known = as_rows(x)
    else:
        rows, known = as_two_sets(x, as_rows(fitted_on, name="fitted_on"), ("x", "fitted_on"), least=1)
    require_spread(known, name="fitted_on")
    d = known.shape[1]
    k = d if k is None else whole_number(k, "k", most=d, of=", of principal directions")
    mean = mean_row(known)
    _, values, axes = torch.linalg.svd(known.double() - mean, full_matrices=False)
    rank = min(int((values > ROUNDING * values[0]).sum()), len(known) - 1)
    if rank < k:
        raise InputError(f"the {len(known)} rows of fitted_on vary in {rank} directions; expected k ≤ {rank}, not {k}")
    whitened = (rows.double() - mean) @ (axes[:k].T * ((len(known) - 1) ** 0.5 / values[:k]))
    return -(k * math.log(2 * math.pi) + whitened.square().sum(1)) / 2
