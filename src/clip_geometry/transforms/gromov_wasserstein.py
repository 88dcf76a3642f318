"""The map between two unaligned sets, possibly of two dimensions, by the shape of each: gromov_wasserstein."""

from typing import Literal

import numpy as np
import torch

from clip_geometry.geometry._core.arguments import one_of, positive_number, whole_number
from clip_geometry.registry import InputError
from clip_geometry.transforms.base import Rows, register
from clip_geometry.transforms.paired import rotation
from clip_geometry.transforms.sets import CenteredTransform, in_memory
from clip_geometry.transforms.sinkhorn import potentials, squared_distances, warn

INNER = 1000  # iterations of Sinkhorn in each step, at most


@register
class GromovWasserstein(CenteredTransform):
    """The affine map that fits the transport plan under which distances within the source are those within the target.

    The plan P with uniform margins minimizes Σ (D_ik − E_jl)² P_ij P_kl + ε Σ P log P for the distances D within the
    source and E within the target, each divided by its root mean square; projected gradient from the independent plan
    (Peyré, Cuturi & Solomon 2016, the solver "PGD" of POT). The map is then fitted on the couplings, as if x_i and y_j
    were a pair of weight P_ij: a rotation with scale, or least squares. As only distances within each set count, the
    sets may have different dimensions, and turning either one turns the map.

    The problem is not convex: the plan is a local optimum, and a symmetric set has several. Distances between
    embeddings in many dimensions are nearly all alike, so that the plan may say little; look at recall before using it.

    Args:
        epsilon: ε; the smaller, the sharper the plan, and the more iterations.
        form: Of the map: "rotation" is the Procrustes solution, orthonormal (rows or columns, for two dimensions) times
            the ratio of the sets' root mean square lengths; "linear" is least squares of the barycentric projections.
        iterations: Steps at most; fewer, if the plan changes by less than 1e-9.

    Attributes:
        W_: (d, e). Directions that the rows leave free are mapped to zero, with a RankWarning.
        source_mean_, target_mean_: (d,), (e,).

    Example:
        >>> import numpy as np
        >>> from clip_geometry import GromovWasserstein
        >>> source = np.random.default_rng(0).exponential(size=(40, 2)) * [1, 4]
        >>> target = source[::-1] @ np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]) + 5  # turned, shifted, other order
        >>> mapped = GromovWasserstein(0.01).fit(source, target).transform(source)
        >>> bool(np.abs(mapped - target[::-1]).max() < 0.05)
        True
    """

    name = "gromov_wasserstein"
    summary = "the affine map of one modality onto another that keeps distances best; of unaligned rows, any dimensions"
    formula = "(w − μ_s) W + μ_t, W fitted on P = argmin Σ (D_ik − E_jl)² P_ij P_kl + ε Σ P log P"
    one_space = False

    def __init__(self, epsilon: float = 0.01, form: Literal["rotation", "linear"] = "rotation", iterations: int = 500):
        self.epsilon = epsilon
        self.form = form
        self.iterations = iterations

    def check(self) -> None:
        positive_number(self.epsilon, f"epsilon of {self.name}")
        one_of(self.form, f"form of {self.name}", ("rotation", "linear"))
        whole_number(self.iterations, f"iterations of {self.name}")

    def _learn(self, source: Rows, target: Rows) -> None:
        x, y = in_memory(self, source), in_memory(self, target)
        self.source_mean_, self.target_mean_ = x.mean(0), y.mean(0)
        x, y = x - self.source_mean_, y - self.target_mean_
        for which, rows in (("source", x), ("target", y)):
            if not rows.any():
                raise InputError(
                    f"{self.name} compares distances within each set, but the {which} has {len(rows)} equal rows"
                )
        plan = coupling(x, y, float(self.epsilon), int(self.iterations), self.name)
        matched = len(x) * plan @ y  # the barycentric projection
        if self.form == "linear":
            self.W_, _, rank, _ = np.linalg.lstsq(x, matched)
        else:
            self.W_, rank = rotation(x, matched)
            self.W_ *= np.sqrt(np.square(y).sum(1).mean() / np.square(x).sum(1).mean())
        self._warn_of_rank(int(rank))


def coupling(x: np.ndarray, y: np.ndarray, epsilon: float, iterations: int, name: str = "the plan") -> np.ndarray:
    """Return the entropic Gromov-Wasserstein plan P, (n, m), of centered rows."""
    within = []
    for rows in (x, y):
        squares = np.maximum(squared_distances(rows, rows), 0)
        np.fill_diagonal(squares, 0)
        within.append(torch.from_numpy(np.sqrt(squares / squares.mean())))
    (d, e), n, m = within, len(x), len(y)
    plan, f, change = torch.full((n, m), 1 / (n * m), dtype=torch.float64), None, np.inf
    # half the gradient of Σ (D_ik − E_jl)² P_ij P_kl is D² p + (E² q)ᵀ − 2 D P E
    constant = d.square().mean(1)[:, None] + e.square().mean(1)
    for _ in range(iterations):
        costs = 2 * (constant - 2 * d @ plan @ e) / epsilon
        f, g, _ = potentials(costs, INNER, f)
        before, plan = plan, torch.exp(f[:, None] + g - costs)
        if (change := float((plan - before).norm())) < 1e-9:
            break
    else:
        warn(
            f"{name}: after {iterations} iterations the plan still changes by {change:.1g}; give more iterations or a "
            "larger epsilon"
        )
    return plan.numpy()
