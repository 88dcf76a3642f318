"""Local inverse Simpson's index (LISI): the effective number of labels around a row."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import arrays_in_kind, in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.statistics.class_distances import joined_rows
from clip_geometry.geometry.statistics.neighbors import Neighbors
from clip_geometry.rows.arguments import Integer
from clip_geometry.rows.matrix import Labels, Rows, as_codes, as_two_sets

K = 90  # neighbors; the perplexity is a third of them, as in the reference implementations
LARGEST = 800.0  # exponents beyond are clamped; exp(−LARGEST) is 0 in float64


@arrays_in_kind
@torch.no_grad()
def lisi(x: Rows | Neighbors, labels: Labels, *, k: Integer = K) -> Float[Tensor, " n"]:
    """Return for each row the effective number of different labels among its nearest neighbors.

    The local inverse Simpson's index (LISI) is 1/Σ_c p_c², where p_c is the total weight of label c among the k nearest
    other rows, by Euclidean distance. It lies in [1, number of labels]: 1 if all neighbors have one label. A neighbor
    at distance r has the weight exp(−β r), with β chosen for each row so that the perplexity of the weights is k/3. If
    k/3 or more rows are equally near and nearest, they share the weight equally. Source: Korsunsky et al. 2019.

    Args:
        x: Rows, (n, d), n ≥ k + 1; or a precomputed `Neighbors`.
        labels: One label per row, (n,), with at least two different values.
        k: Number of neighbors, ≥ 3.

    Returns:
        The indices, (n,), float64, without gradient.

    Raises:
        InputError: There are too few rows, or the labels do not match the rows.

    Example:
        >>> import clip_geometry as cg
        >>> cg.geometry.lisi([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]], list("aabbab"), k=5).round(2).tolist()
        [1.49, 2.0, 1.0, 1.49, 1.0, 1.49]
    """
    neighbors = Neighbors.of(x)
    k = neighbors.checked(k, least_k=3)
    codes, count = as_codes(labels, neighbors.n)
    distances, indices = neighbors.nearest(k)
    shares = distances.new_zeros((neighbors.n, count))
    shares.scatter_add_(1, codes.to(distances.device)[indices], _weights(distances, k / 3))
    return 1 / shares.square().sum(1)


def _weights(distances: Float[Tensor, "n k"], perplexity: float) -> Float[Tensor, "n k"]:
    """Return exp(−β r)/Σ exp(−β r) for each row of ascending distances, with β found by bisection to full precision."""
    gaps = distances - distances[:, :1]
    # makes the weights independent of the unit of length
    gaps = gaps / gaps[:, -1:].clamp(min=torch.finfo(gaps.dtype).tiny)
    tied = (gaps == 0).sum(1, keepdim=True) >= perplexity  # no β is large enough: the ties alone have this perplexity

    def exceeds(beta: Tensor) -> Tensor:
        """Return whether the perplexity at β is above the wanted one."""
        exponents = (beta * gaps).clamp(max=LARGEST)
        weights = (-exponents).exp()
        size = weights.sum(1, keepdim=True)
        return size.log() + (exponents * weights).sum(1, keepdim=True) / size > math.log(perplexity)

    high = torch.ones_like(tied, dtype=gaps.dtype)  # at β = 1 all k rows still weigh nearly the same
    while (too_small := exceeds(high) & ~tied).any():
        high = torch.where(too_small, 2 * high, high)
    low = high / 2
    for _ in range(torch.finfo(gaps.dtype).bits - 11):
        middle = (low + high) / 2
        too_small = exceeds(middle)
        low, high = torch.where(too_small, middle, low), torch.where(too_small, high, middle)
    weights = torch.where(tied, (gaps == 0).to(gaps.dtype), (-(high * gaps).clamp(max=LARGEST)).exp())
    return weights / weights.sum(1, keepdim=True)


@in_kind
def ilisi(image: Rows, text: Rows, *, k: Integer = K) -> Float[Tensor, ""]:
    """Return how well neighborhoods mix the modalities: the iLISI score of single-cell analysis (Luecken et al. 2022).

    The score is the median of `lisi` over all rows of both sets, with the modality as the label, minus 1. It lies in
    [0, 1]: 0 if the neighborhoods of most rows contain one modality, 1 if they contain both in equal parts.

    Args:
        image: Rows, (n, d), n ≥ 2.
        text: Rows, (m, d), m ≥ 2, n + m ≥ k + 1.
        k: Number of neighbors, ≥ 3.

    Returns:
        The score as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: The dimensions differ, there are too few rows, or all rows are equal.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.geometry.ilisi(image, text), 2), round(cg.geometry.ilisi(image, text + 1), 2)
        (0.92, 0.25)
    """
    image, text = as_two_sets(image, text, ("image", "text"), streams=True)
    neighbors = Neighbors(joined_rows(image, text), name="the union of image and text")
    modality = torch.arange(neighbors.n) >= len(image)
    return _median(neighbors, modality.long(), k) - 1


@in_kind
def clisi(x: Rows, labels: Labels, *, k: Integer = K) -> Float[Tensor, ""]:
    """Return how well neighborhoods separate the labels: the cLISI score of single-cell analysis (Luecken et al. 2022).

    The score is (K − median of `lisi`)/(K − 1), where K is the number of labels. It lies in [0, 1]: 1 if the
    neighborhoods of most rows contain a single label, 0 if they contain all labels in equal parts. To find out whether
    the classes are still separated after a repair that mixes the modalities, pass the rows and labels of both
    modalities together.

    Args:
        x: Rows, (n, d), n ≥ k + 1.
        labels: One label per row, (n,), with at least two different values.
        k: Number of neighbors, ≥ 3.

    Returns:
        The score as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: There are too few rows, all rows are equal, or the labels do not match the rows.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x, labels = np.random.default_rng(0).normal(size=(200, 8)), np.arange(200) % 4
        >>> round(cg.geometry.clisi(x, labels), 2), round(cg.geometry.clisi(x + 2 * np.eye(8)[labels], labels), 2)
        (0.21, 0.63)
    """
    neighbors = Neighbors.of(x)
    _, count = as_codes(labels, neighbors.n)
    return (count - _median(neighbors, labels, k)) / (count - 1)


def _median(neighbors: Neighbors, labels: Labels, k: Integer) -> Float[Tensor, ""]:
    neighbors.checked(k, least_k=3)
    neighbors.require_spread()
    return torch.quantile(torch.as_tensor(lisi(neighbors, labels, k=k)), 0.5)


add_measure(Measure(name="ilisi", function=ilisi, streams=True))
add_measure(Measure(name="clisi", function=clisi, streams=True))
