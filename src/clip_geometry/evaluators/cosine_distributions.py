"""Cosines of matching and of random pairs (Tyshchuk et al. 2023, figures 9-11): all n² of them, as counts."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.evaluators.base import add_evaluator
from clip_geometry.evaluators.checks import whole_number
from clip_geometry.geometry.cosine import random_cosine
from clip_geometry.geometry.measure import Measure
from clip_geometry.geometry.rows import Rows, as_aligned, unit_rows

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class CosineHistograms(NamedTuple):
    """Counts of n matching and n(n − 1) random pairs in equal bins over [−1, 1]; [low, high), the last one closed."""

    edges: Float[Tensor, " b1"]
    matching: Float[Tensor, " b"]
    random: Float[Tensor, " b"]


@torch.no_grad()
def cosine_distributions(image: Rows, text: Rows, *, bins: int = 2000) -> dict[str, float]:
    """matching: the cosines ⟨u_i, v_i⟩; random: all ⟨u_i, v_j⟩ with i ≠ j. For each .mean, .std, .q05 … .q95; and auc.

    Means and standard deviations (ddof 0) and the quantiles of the matching pairs are exact; the random pairs are
    counted in `bins` equal bins over [−1, 1], so that their quantiles (linear within a bin) are off by less than one
    width, .001 by default. auc = P(matching > random) + P(equal)/2 for one pair of each kind, those in one bin being
    equal: 1 where all matching pairs exceed all random ones, .5 where both are alike.

    image, text: (n, d) aligned rows of distinct items, n ≥ 2. O(n²d) time, in blocks. Raises InputError for zero
    rows, unequal sets and bins < 1. Source: Tyshchuk et al. 2023, figures 9-11.
    """
    counted = cosine_histograms(image, text, bins=bins)
    image, text = as_aligned(image, text, ("image", "text"))
    u, v = unit_rows(image, name="image"), unit_rows(text, name="text")
    matching = (u * v).sum(1)
    mean = random_cosine(image, text)
    found = {"matching.mean": float(matching.mean()), "matching.std": float(matching.std(correction=0))}
    found |= {f"matching.{_name(q)}": float(matching.quantile(q)) for q in QUANTILES}
    found |= {"random.mean": float(mean), "random.std": _spread(u, v, mean)}
    found |= {f"random.{_name(q)}": _quantile(counted, q) for q in QUANTILES}
    return found | {"auc": _auc(counted)}


@torch.no_grad()
def cosine_histograms(image: Rows, text: Rows, *, bins: int = 2000, block_size: int = 1024) -> CosineHistograms:
    """The counts behind cosine_distributions, for a figure: exact, float64. Arguments and errors are the same."""
    bins, block_size = whole_number(bins, "bins"), whole_number(block_size, "block_size")
    image, text = as_aligned(image, text, ("image", "text"))
    u, v = unit_rows(image, name="image"), unit_rows(text, name="text")
    edges = torch.linspace(-1, 1, bins + 1, dtype=torch.float64, device=u.device)
    matching = _counts((u * v).sum(1), edges)
    random = torch.zeros_like(matching)
    for i, a in enumerate(u.split(block_size)):
        for j, b in enumerate(v.split(block_size)):
            cosines = a @ b.T
            apart = ~torch.eye(len(a), dtype=torch.bool, device=a.device) if i == j else ...
            random += _counts(cosines[apart].flatten(), edges)
    return CosineHistograms(edges, matching, random)


def _counts(cosines: Float[Tensor, " p"], edges: Float[Tensor, " b1"]) -> Float[Tensor, " b"]:
    bins = len(edges) - 1
    numbers = ((cosines + 1) * (bins / 2)).floor_().clamp_(0, bins - 1).long()
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


def _quantile(counted: CosineHistograms, q: float) -> float:
    """Linear within the bin."""
    total = counted.random.cumsum(0)
    wanted = q * float(total[-1])
    number = int(torch.searchsorted(total, torch.tensor(wanted, dtype=total.dtype, device=total.device)))
    inside = (wanted - float(total[number] - counted.random[number])) / float(counted.random[number])
    return float(counted.edges[number] + inside * (counted.edges[number + 1] - counted.edges[number]))


def _auc(counted: CosineHistograms) -> float:
    below = counted.random.cumsum(0) - counted.random / 2
    return float((counted.matching * below).sum() / (counted.matching.sum() * counted.random.sum()))


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
