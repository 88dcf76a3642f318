"""Distributions of the cosines of matching and of random pairs (Tyshchuk et al. 2023, figures 9-11), all n² of them."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.evaluators.base import add_evaluator
from clip_geometry.geometry.cosine import random_cosine
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure
from clip_geometry.rows.arguments import whole_number
from clip_geometry.rows.matrix import Rows, as_aligned, mean_row, unit_rows

EPS = torch.finfo(torch.float64).eps
BINS = 1_000_000  # 8 MB of counts
QUANTILES = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}


@in_kind
@torch.no_grad()
def cosine_distributions(image: Rows, text: Rows, *, bins: int = 2000, block_size: int = 1024) -> dict[str, float]:
    """Summarize the cosines of matching pairs, ⟨u_i, v_i⟩, and of random pairs, ⟨u_i, v_j⟩ for all i ≠ j.

    Means, standard deviations (ddof 0) and the quantiles of matching pairs are exact; quantiles are linear between two
    values, as in NumPy. Quantiles of random pairs come from counts in equal bins between bounds of their cosines and
    are off by less than one width: 0.001 by default, less in a narrow cone. Cosines are compared as 1 − ‖u − v‖²/2,
    which keeps their order in a narrow cone; those that rounding alone may have separated count as equal.
    O(n²(d + log n)) time, in blocks.
    Source: Tyshchuk et al. 2023, figures 9-11.

    Args:
        image: (n, d) rows of distinct items, n ≥ 2.
        text: (n, d) rows, aligned with the images.
        bins: Of the random pairs.
        block_size: Rows and columns of cosines computed at a time.

    Returns:
        For each of matching and random: .mean, .std, .q05, .q25, .q50, .q75, .q95; and auc = P(matching > random) +
        P(equal)/2 for one pair of each kind, from the ranks of all pairs (Mann-Whitney): 1 if all matching pairs exceed
        all random ones, 0.5 if both are alike.

    Raises:
        InputError: For zero rows, sets of unequal length and bins < 1.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import cosine_distributions
        >>> rng = np.random.default_rng(0)
        >>> image = rng.normal(size=(6, 4))
        >>> found = cosine_distributions(image, image + 0.3 * rng.normal(size=(6, 4)))
        >>> {name: round(found[name], 2) for name in ("matching.mean", "random.mean", "auc")}
        {'matching.mean': 0.92, 'random.mean': 0.03, 'auc': 0.98}
    """
    bins, block_size = whole_number(bins, "bins", most=BINS), whole_number(block_size, "block_size")
    image, text = as_aligned(image, text, ("image", "text"))
    u, v = unit_rows(image, name="image"), unit_rows(text, name="text")
    matching, mean = (u * v).sum(1), random_cosine(image, text)
    # all cosines are in an interval about as narrow as the cone: with a, b the rows minus their means ū, v̄,
    # ⟨u_i, v_j⟩ = ⟨ū, v̄⟩ + ⟨a_i, v̄⟩ + ⟨ū, b_j⟩ + ⟨a_i, b_j⟩
    u_mean, v_mean = mean_row(u), mean_row(v)
    a, b = u - u_mean, v - v_mean
    product = a.norm(dim=1).amax() * b.norm(dim=1).amax()
    ends = torch.stack((a @ v_mean).aminmax()) + torch.stack((b @ u_mean).aminmax()) + u_mean @ v_mean
    least, most = float((ends[0] - product).clamp(-1, 1)), float((ends[1] + product).clamp(-1, 1))
    edges = torch.linspace(least, most, bins + 1, dtype=torch.float64, device=u.device)
    # ‖u_i − v_i‖², and by how much rounding may separate two equal ones, including that of the unit rows
    own, centre = (u - v).square().sum(1), (mean_row(u) + mean_row(v)) / 2
    reach = float((u - centre).norm(dim=1).amax() + (v - centre).norm(dim=1).amax()) + 8 * EPS
    tie = EPS * reach * (8 + (u.shape[1] + 8) * reach)
    ranks = torch.cat([own - tie, own + tie]).sort().values  # a random pair beyond both is a win, beyond one a tie
    halves, counts = 0, torch.zeros(bins, dtype=torch.float64, device=u.device)
    for squares in _random_distances(u, v, block_size):
        halves += int(torch.searchsorted(ranks, squares).sum())
        counts += _counts(1 - squares / 2, edges)
    found = {"matching.mean": float(matching.mean()), "matching.std": float(matching.std(correction=0))}
    found |= {f"matching.{name}": float(matching.quantile(q)) for name, q in QUANTILES.items()}
    found |= {"random.mean": float(mean), "random.std": _spread(u, v, mean)}
    found |= {f"random.{name}": _quantile(counts, edges, q) for name, q in QUANTILES.items()}
    return found | {"auc": halves / (2 * len(u) * int(counts.sum()))}


def _random_distances(
    u: Float[Tensor, "n d"], v: Float[Tensor, "n d"], block_size: int
) -> Iterator[Float[Tensor, " p"]]:
    """Yield ‖u_i − v_j‖² with i ≠ j in blocks; products about the common mean keep the digits that differ."""
    centre = (mean_row(u) + mean_row(v)) / 2
    for i, a in enumerate((u - centre).split(block_size)):
        for j, b in enumerate((v - centre).split(block_size)):
            squares = (a.square().sum(1)[:, None] + b.square().sum(1)).addmm_(a, b.T, alpha=-2)
            apart = ~torch.eye(len(a), dtype=torch.bool, device=a.device) if i == j else ...
            yield squares[apart].flatten()


def _counts(cosines: Float[Tensor, " p"], edges: Float[Tensor, " b1"]) -> Float[Tensor, " b"]:
    bins, least, most = len(edges) - 1, edges[0], edges[-1]
    numbers = ((cosines - least) * (bins / (most - least).clamp(min=EPS))).floor_().clamp_(0, bins - 1).long()
    return torch.bincount(numbers, minlength=bins).double()


def _spread(u: Float[Tensor, "n d"], v: Float[Tensor, "n d"], mean: Tensor) -> float:
    """Return the standard deviation of ⟨u_i, v_j⟩ over i ≠ j, in O(nd²).

    With ū, v̄ the means and a, b the centered rows, ⟨u_i, v_j⟩ = m + ⟨a_i, v̄⟩ + ⟨ū, b_j⟩ + ⟨a_i, b_j⟩ with m = ⟨ū, v̄⟩;
    the sum over all i, j of its squared distance from m has no cross terms, and the diagonal is subtracted.
    """
    n = len(u)
    u_mean, v_mean = u.mean(0), v.mean(0)
    a, b = u - u_mean, v - v_mean
    squares = n * ((a @ v_mean).square().sum() + (b @ u_mean).square().sum())
    squares = squares + ((a.T @ a) * (b.T @ b)).sum()  # Σ_ij ⟨a_i, b_j⟩²
    centre = u_mean @ v_mean
    others = squares - ((u * v).sum(1) - centre).square().sum()
    variance = others / (n * (n - 1)) - (mean - centre).square()
    return float(variance.clamp(min=0).sqrt())


def _quantile(counts: Float[Tensor, " b"], edges: Float[Tensor, " b1"], q: float) -> float:
    """Return a quantile of counts: linear between the two nearest values, as NumPy's, each taken within its bin."""
    below = counts.cumsum(0)
    place = q * (float(below[-1]) - 1)
    orders = torch.tensor([math.floor(place), math.ceil(place)], dtype=torch.float64, device=counts.device)
    numbers = torch.searchsorted(below, orders, right=True)
    inside = (orders + 0.5 - below[numbers] + counts[numbers]) / counts[numbers]
    low, high = (edges[numbers] + inside * (edges[numbers + 1] - edges[numbers])).tolist()
    return low + (place - math.floor(place)) * (high - low)


add_evaluator(Measure("cosine_distributions", cosine_distributions))
