"""Gromov-Wasserstein discrepancy: whether two sets have the same distances within them, however they are matched."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry import Measure, add_measure
from clip_geometry.geometry._core.arguments import Integer, seed_number, whole_number
from clip_geometry.geometry._core.distances import distances
from clip_geometry.geometry._core.kinds import in_kind
from clip_geometry.geometry._core.rows import Rows, as_two_sets, mean_row
from clip_geometry.registry import InputError

ROWS = 500
ROUNDS = 1000  # far more than it takes
NEAR = 1e-12  # relative: less is no improvement


@in_kind
def gromov_wasserstein(image: Rows, text: Rows, *, of: Integer = ROWS, seed: Integer = 0) -> Float[Tensor, ""]:
    """Gromov-Wasserstein discrepancy of the distances within two sets, as a share of their mean squares.

    Σ_ij (C_ij − D_π(i)π(j))²/(Σ C² + Σ D²) over all pairs of rows, C and D the Euclidean distances within each set,
    π the matching found. In [0, 1): 0 where some matching of the rows leaves all distances as they are; pairs are not
    used. The least sum is a quadratic assignment, which no method finds for sure: as in POT, conditional gradients from
    the independent coupling, which end in a local minimum, so that it is an upper bound. Of more than `of` rows, or
    sets of different sizes, as many are drawn of each. O(of³). Source: Mémoli 2011.

    Args:
        image: Rows, (n, d), n ≥ 2.
        text: Rows, (m, e), m ≥ 2, of any dimension.
        of: Most rows of each set, ≥ 2.
        seed: Seed of the draw.

    Returns:
        The share, a float (for tensors a 0-d float64 tensor, differentiable at the matching found).

    Raises:
        InputError: All rows of both sets are equal (0/0).

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.gromov_wasserstein(image, 1 - image[::-1]), 3), round(cg.gromov_wasserstein(image, text), 3)
        (0.0, 0.031)
    """
    image, text = as_two_sets(image, text, ("image", "text"), one_space=False)
    x, y = _drawn(image, text, whole_number(of, "of", least=2, of=", of rows"), seed_number(seed))
    within = []
    for rows in (x.double(), y.double()):
        rows = rows - mean_row(rows)
        within.append(distances(rows, rows))
    largest = torch.stack([each.detach().amax() for each in within]).amax()
    if largest == 0:
        raise InputError("all rows of image and all rows of text are equal; there are no distances to compare (0/0)")
    c, d = (each / largest for each in within)
    order = _matching(c.detach(), d.detach())
    return (c - d[order][:, order]).square().sum() / (c.square().sum() + d.square().sum())


def _drawn(image: Tensor, text: Tensor, most: int, seed: int) -> tuple[Tensor, Tensor]:
    """As many rows of each, at random without replacement where there are more."""
    count = min(len(image), len(text), most)

    def some(rows: Tensor) -> Tensor:
        if len(rows) == count:
            return rows
        return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:count].to(rows.device)]

    return some(image), some(text)


def _matching(c: Float[Tensor, "n n"], d: Float[Tensor, "n n"]) -> Tensor:
    """The row of d for each row of c at which conditional gradients stop.

    Euclidean distances are conditionally negative definite, so that the objective is concave over the couplings of
    uniform weights and every step goes the whole way, to a permutation.
    """
    from scipy.optimize import linear_sum_assignment

    product = torch.outer(c.sum(1), d.sum(1)) / len(c)  # c T d, T the independent coupling
    best = float("-inf")
    order = torch.arange(len(c), device=c.device)
    for _ in range(ROUNDS):
        found = torch.as_tensor(linear_sum_assignment(product.cpu().numpy(), maximize=True)[1]).to(c.device)
        agreement = float((c * d[found][:, found]).sum())
        if agreement <= best + NEAR * abs(best):
            break
        order, best = found, agreement
        product = c @ d[order]
    return order


def _sampled(image: Any, text: Any, **_: Any) -> str | None:
    count = min(len(image), len(text), ROWS)
    if max(len(image), len(text)) == count:
        return None
    return f"{count} rows of each set, drawn with seed 0"


add_measure(
    Measure(
        name="gromov_wasserstein",
        depends_on_n=True,
        title="Gromov-Wasserstein discrepancy",
        brief="whether the modalities have the same distances within",
        group="modality gap",
        function=gromov_wasserstein,
        takes="two sets",
        summary="How far the distances among the images are from those among the texts, under the best matching found.",
        reading="0 means that the modalities are one shape, turned and shifted; it asks nothing of the gap and nothing "
        "of the pairs.",
        caveat="An upper bound: the matching is a local minimum. In high dimensions all distances are alike, so that "
        "it is small for unrelated sets too, and smallest for noise: compare pairs of sets of equal n and d with each "
        "other. Of more than 500 rows a sample is taken.",
        formula="min_π Σ_ij (C_ij − D_π(i)π(j))²/(Σ C² + Σ D²), C and D the Euclidean distances within each set",
        range=(0, 1),
        direction="lower is more alike",
        at_gaussian=0,
        invariances=("rotation", "translation", "scale", "swap"),
        one_space=False,
        quadratic=True,
        smooth=False,
        by_default=False,
        remark=_sampled,
        reference="Mémoli 2011, doi:10.1007/s10208-011-9093-5; Peyré et al. 2016, ICML; POT",
    )
)
