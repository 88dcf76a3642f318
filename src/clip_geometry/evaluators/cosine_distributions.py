"""Cosines of matching and of random pairs (Tyshchuk et al. 2023, figures 9-11): all n² of them, as counts."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.evaluators.base import add_evaluator
from clip_geometry.geometry._core.arguments import whole_number
from clip_geometry.geometry._core.rows import Rows, as_aligned, mean_row, total, unit_rows
from clip_geometry.geometry.cosine import random_cosine
from clip_geometry.geometry.measure import Measure

EPS = torch.finfo(torch.float64).eps
BINS = 1_000_000  # 8 MB of counts
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class CosineHistograms(NamedTuple):
    """Counts of n matching and n(n − 1) random pairs in equal bins over [−1, 1]; [low, high), the last one closed."""

    edges: Float[Tensor, " b1"]
    matching: Float[Tensor, " b"]
    random: Float[Tensor, " b"]


@torch.no_grad()
def cosine_distributions(image: Rows, text: Rows, *, bins: int = 2000, block_size: int = 1024) -> dict[str, float]:
    """matching: the cosines ⟨u_i, v_i⟩; random: all ⟨u_i, v_j⟩ with i ≠ j. For each .mean, .std, .q05 … .q95; and auc.

    Means and standard deviations (ddof 0) and the quantiles of the matching pairs are exact. The random pairs are
    counted in `bins` equal bins over bounds of their cosines, so that their quantiles (linear within a bin) are off by
    less than one width: 0.001 by default, and less in a narrow cone. auc = P(matching > random) + P(equal)/2 for one
    pair of each kind, from the ranks of all pairs (Mann-Whitney): 1 where all matching pairs exceed all random ones,
    0.5 where both are alike. Cosines are compared as 1 − ‖u − v‖²/2, which keeps their order in a narrow cone; those
    that rounding alone may have parted count as equal.

    image, text: (n, d) aligned rows of distinct items, n ≥ 2. O(n²(d + log n)) time, in blocks. Raises InputError for
    zero rows, unequal sets and bins < 1. Source: Tyshchuk et al. 2023, figures 9-11.
    """
    bins, block_size = whole_number(bins, "bins", most=BINS), whole_number(block_size, "block_size")
    image, text = as_aligned(image, text, ("image", "text"))
    u, v = unit_rows(image, name="image"), unit_rows(text, name="text")
    matching, mean = (u * v).sum(1), random_cosine(image, text)
    edges = torch.linspace(*_bounds(u, v), bins + 1, dtype=torch.float64, device=u.device)
    own, tie = _own_distances(u, v)
    ranks = torch.cat([own - tie, own + tie]).sort().values  # a random pair is beyond both, a win, or one, a tie
    halves, counts = 0, torch.zeros(bins, dtype=torch.float64, device=u.device)
    for squares in _random_distances(u, v, block_size):
        halves += int(torch.searchsorted(ranks, squares).sum())
        counts += _counts(1 - squares / 2, edges)
    found = {"matching.mean": float(matching.mean()), "matching.std": float(matching.std(correction=0))}
    found |= {f"matching.{_name(q)}": float(matching.quantile(q)) for q in QUANTILES}
    found |= {"random.mean": float(mean), "random.std": _spread(u, v, mean)}
    found |= {f"random.{_name(q)}": _quantile(counts, edges, q) for q in QUANTILES}
    return found | {"auc": halves / (2 * len(u) * int(counts.sum()))}


@torch.no_grad()
def cosine_histograms(image: Rows, text: Rows, *, bins: int = 2000, block_size: int = 1024) -> CosineHistograms:
    """Counts of the same cosines over [−1, 1], for a figure: exact, float64. Arguments and errors are the same."""
    bins, block_size = whole_number(bins, "bins", most=BINS), whole_number(block_size, "block_size")
    image, text = as_aligned(image, text, ("image", "text"))
    u, v = unit_rows(image, name="image"), unit_rows(text, name="text")
    edges = torch.linspace(-1, 1, bins + 1, dtype=torch.float64, device=u.device)
    random = total(_counts(1 - squares / 2, edges) for squares in _random_distances(u, v, block_size))
    return CosineHistograms(edges, _counts((u * v).sum(1), edges), random)


def _random_distances(
    u: Float[Tensor, "n d"], v: Float[Tensor, "n d"], block_size: int
) -> Iterator[Float[Tensor, " p"]]:
    """‖u_i − v_j‖² with i ≠ j, block by block: products about the common mean keep the digits that differ."""
    centre = (mean_row(u) + mean_row(v)) / 2
    for i, a in enumerate((u - centre).split(block_size)):
        for j, b in enumerate((v - centre).split(block_size)):
            squares = (a.square().sum(1)[:, None] + b.square().sum(1)).addmm_(a, b.T, alpha=-2)
            apart = ~torch.eye(len(a), dtype=torch.bool, device=a.device) if i == j else ...
            yield squares[apart].flatten()


def _own_distances(u: Float[Tensor, "n d"], v: Float[Tensor, "n d"]) -> tuple[Float[Tensor, " n"], float]:
    """‖u_i − v_i‖², and by how much rounding may part two equal ones, that of the unit rows included."""
    centre = (mean_row(u) + mean_row(v)) / 2
    reach = float((u - centre).norm(dim=1).amax() + (v - centre).norm(dim=1).amax()) + 8 * EPS
    return (u - v).square().sum(1), EPS * reach * (8 + (u.shape[1] + 8) * reach)


def _bounds(u: Float[Tensor, "n d"], v: Float[Tensor, "n d"]) -> tuple[float, float]:
    """An interval in [−1, 1] that holds all cosines, as narrow as the cone is.

    With a, b the rows less their means ū, v̄, ⟨u_i, v_j⟩ = ⟨ū, v̄⟩ + ⟨a_i, v̄⟩ + ⟨ū, b_j⟩ + ⟨a_i, b_j⟩.
    """
    u_mean, v_mean = mean_row(u), mean_row(v)
    a, b = u - u_mean, v - v_mean
    product = a.norm(dim=1).amax() * b.norm(dim=1).amax()
    middle, ends = u_mean @ v_mean, torch.stack((a @ v_mean).aminmax()) + torch.stack((b @ u_mean).aminmax())
    return float((middle + ends[0] - product).clamp(-1, 1)), float((middle + ends[1] + product).clamp(-1, 1))


def _counts(cosines: Float[Tensor, " p"], edges: Float[Tensor, " b1"]) -> Float[Tensor, " b"]:
    bins, least, most = len(edges) - 1, edges[0], edges[-1]
    numbers = ((cosines - least) * (bins / (most - least).clamp(min=EPS))).floor_().clamp_(0, bins - 1).long()
    return torch.bincount(numbers, minlength=bins).double()


def _spread(u: Float[Tensor, "n d"], v: Float[Tensor, "n d"], mean: Tensor) -> float:
    """Standard deviation of ⟨u_i, v_j⟩ over i ≠ j, in O(nd²).

    With ū, v̄ the means and a, b the centred rows, ⟨u_i, v_j⟩ = m + ⟨a_i, v̄⟩ + ⟨ū, b_j⟩ + ⟨a_i, b_j⟩ with m = ⟨ū, v̄⟩;
    the sum over all i, j of its squared distance from m has no cross terms, and the diagonal is taken off.
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
    """Linear within the bin."""
    below = counts.cumsum(0)
    wanted = q * below[-1:]
    number = int(torch.searchsorted(below, wanted))
    inside = float((wanted - below[number] + counts[number]) / counts[number])
    return float(edges[number] + inside * (edges[number + 1] - edges[number]))


def _name(q: float) -> str:
    return f"q{round(100 * q):02d}"


def _numbers() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for pairs in ("matching", "random"):
        own: dict[str, Any] = {"group": "matching", "range": (-1, 1), "direction": f"of {pairs} pairs"}
        found[f"{pairs}.mean"] = own | {"title": f"Cosine of {pairs} pairs, mean"}
        found[f"{pairs}.std"] = own | {"title": f"Cosine of {pairs} pairs, standard deviation", "range": (0, 1)}
        for q in QUANTILES:
            found[f"{pairs}.{_name(q)}"] = own | {"title": f"Cosine of {pairs} pairs, {q:.0%} quantile"}
    found["auc"] = {
        "title": "Matching above random pairs (AUC)",
        "range": (0, 1),
        "direction": "higher separates better",
    }
    return found


add_evaluator(
    Measure(
        name="cosine_distributions",
        title="Cosines of matching and random pairs",
        group="matching",
        function=cosine_distributions,
        takes="distinct pairs",
        summary="How the cosines of matching pairs are spread beside those of random pairs.",
        reading="The AUC is the chance that a matching pair has the higher cosine: 1 separates them, .5 does not.",
        trap="After a map that was fitted on these very pairs, matching pairs are near by construction.",
        formula="quantiles of ⟨u_i, v_i⟩ and of ⟨u_i, v_j⟩, i ≠ j",
        range=(-1, 1),
        direction="",
        at_gaussian=None,
        invariances=("rotation", "scale", "row scale", "swap"),
        quadratic=True,
        reference="Tyshchuk et al. 2023, doi:10.3390/info14070392, figures 9-11",
    ),
    _numbers(),
)
