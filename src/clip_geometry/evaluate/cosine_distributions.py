"""Distributions of the cosines of matching and random pairs, over all n² pairs (Tyshchuk et al. 2023, figures 9-11)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.evaluate.base import add_evaluator
from clip_geometry.geometry.distances.pairwise import squared_distances
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure
from clip_geometry.rows.arguments import whole_number
from clip_geometry.rows.matrix import Rows, as_aligned, mean_row, unit_rows

BLOCK = 1024  # rows and columns of cosines at a time
EPS = torch.finfo(torch.float64).eps
BINS = 1_000_000  # 8 MB of counts
QUANTILES = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}


@in_kind
@torch.no_grad()
def cosine_distributions(image: Rows, text: Rows, *, bins: int = 2000) -> dict[str, float]:
    """Summarize the distributions of the cosines of matching pairs and of random pairs.

    Matching pairs are (image i, text i); random pairs are (image i, text j) for all i ≠ j. Means, standard deviations
    (ddof 0) and the quantiles of matching pairs are exact, with linear interpolation as in NumPy. Quantiles of random
    pairs are computed from a histogram, with an error below the width of one bin, which is 0.001 by default and less if
    all cosines are close together. Cosines that differ only by rounding count as equal. The cost is O(n²(d + log n)),
    in blocks. Source: Tyshchuk et al. 2023, figures 9-11.

    Args:
        image: (n, d) rows of distinct items, n ≥ 2.
        text: (n, d) rows, aligned with the images.
        bins: Number of bins of the histogram of random pairs, at least 1.

    Returns:
        A dictionary of floats: matching.mean, .std, .q05, .q25, .q50, .q75 and .q95, the same for random, and auc. auc
        is the probability that a matching pair has a higher cosine than a random pair (ties count half): 1 if all
        matching pairs have higher cosines than all random pairs, 0.5 if both have the same distribution.

    Raises:
        InputError: A row is zero, the sets differ in length, or bins < 1.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.evaluate import cosine_distributions
        >>> rng = np.random.default_rng(0)
        >>> image = rng.normal(size=(6, 4))
        >>> result = cosine_distributions(image, image + 0.3 * rng.normal(size=(6, 4)))
        >>> {name: round(result[name], 2) for name in ("matching.mean", "random.mean", "auc")}
        {'matching.mean': 0.92, 'random.mean': 0.03, 'auc': 0.98}
    """
    bins = whole_number(bins, "bins", most=BINS)
    image, text = as_aligned(image, text, ("image", "text"))
    u, v = unit_rows(image, name="image"), unit_rows(text, name="text")
    matching = (u * v).sum(1)
    # all cosines lie in an interval about as narrow as the cone: with a, b the rows minus their means ū, v̄,
    # ⟨u_i, v_j⟩ = ⟨ū, v̄⟩ + ⟨a_i, v̄⟩ + ⟨ū, b_j⟩ + ⟨a_i, b_j⟩
    u_mean, v_mean = mean_row(u), mean_row(v)
    a, b = u - u_mean, v - v_mean
    product = a.norm(dim=1).amax() * b.norm(dim=1).amax()
    ends = torch.stack((a @ v_mean).aminmax()) + torch.stack((b @ u_mean).aminmax()) + u_mean @ v_mean
    lowest, highest = float((ends[0] - product).clamp(-1, 1)), float((ends[1] + product).clamp(-1, 1))
    edges = torch.linspace(lowest, highest, bins + 1, dtype=torch.float64, device=u.device)
    # ‖u_i − v_i‖², and how far rounding, including that of the unit rows, may separate two equal ones
    pair_squares = (u - v).square().sum(1)
    centre = (u_mean + v_mean) / 2
    radius = float((u - centre).norm(dim=1).amax() + (v - centre).norm(dim=1).amax()) + 8 * EPS
    tie = EPS * radius * (8 + (u.shape[1] + 8) * radius)
    # a random pair beyond both bounds is a win, and beyond one of them a tie, which counts half a win
    bounds = torch.cat([pair_squares - tie, pair_squares + tie]).sort().values
    half_wins = 0
    counts = torch.zeros(bins, dtype=torch.float64, device=u.device)
    mean_square = 2 - 2 * (u_mean @ v_mean)  # of all pairs; relative to it, the spread keeps its precision
    first, second = mean_square.new_zeros(()), mean_square.new_zeros(())  # moments of the cosines about their mean
    for i, x in enumerate(u.split(BLOCK)):
        for j, y in enumerate(v.split(BLOCK)):
            unpaired = ~torch.eye(len(x), dtype=torch.bool, device=x.device) if i == j else ...
            squares = squared_distances(x, y, centre=centre)[unpaired].flatten()
            half_wins += int(torch.searchsorted(bounds, squares).sum())
            counts += _counts(1 - squares / 2, edges)
            first += (squares - mean_square).sum() / 2
            second += (squares - mean_square).square().sum() / 4
    first, second = first / counts.sum(), second / counts.sum()
    mean = u_mean @ v_mean - first
    deviation = (second - first.square()).clamp(min=0).sqrt()
    numbers = {"matching.mean": float(matching.mean()), "matching.std": float(matching.std(correction=0))}
    numbers |= {f"matching.{name}": float(matching.quantile(q)) for name, q in QUANTILES.items()}
    numbers |= {"random.mean": float(mean), "random.std": float(deviation)}
    numbers |= {f"random.{name}": _quantile(counts, edges, q) for name, q in QUANTILES.items()}
    return numbers | {"auc": half_wins / (2 * len(u) * int(counts.sum()))}


def _counts(cosines: Float[Tensor, " p"], edges: Float[Tensor, " b1"]) -> Float[Tensor, " b"]:
    """Count the cosines in bins of equal width."""
    bins = len(edges) - 1
    per_unit = bins / (edges[-1] - edges[0]).clamp(min=EPS)
    numbers = ((cosines - edges[0]) * per_unit).floor_().clamp_(0, bins - 1).long()
    return torch.bincount(numbers, minlength=bins).double()


def _quantile(counts: Float[Tensor, " b"], edges: Float[Tensor, " b1"], q: float) -> float:
    """Return a quantile of binned values, interpolated as in NumPy between two values located within their bins."""
    below = counts.cumsum(0)
    place = q * (float(below[-1]) - 1)
    orders = torch.tensor([math.floor(place), math.ceil(place)], dtype=torch.float64, device=counts.device)
    numbers = torch.searchsorted(below, orders, right=True)
    inside = (orders + 0.5 - below[numbers] + counts[numbers]) / counts[numbers]
    low, high = (edges[numbers] + inside * (edges[numbers + 1] - edges[numbers])).tolist()
    return low + (place - math.floor(place)) * (high - low)


add_evaluator(Measure("cosine_distributions", cosine_distributions))
