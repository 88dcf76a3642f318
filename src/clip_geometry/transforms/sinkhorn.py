"""The entropic optimal transport map between two unaligned sets: sinkhorn."""

import warnings

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.arguments import positive_number, whole_number
from clip_geometry.geometry._core.rows import BLOCK
from clip_geometry.transforms.base import Rows, register
from clip_geometry.transforms.sets import OntoTransform, in_memory

TOLERANCE = 1e-9  # of the margins of a plan


@register
class Sinkhorn(OntoTransform):
    """The entropic map: move each row to the mean of the target rows, weighted by the optimal entropic transport plan.

    The plan P minimizes ⟨P, C⟩ + ε Σ P log P with uniform margins and C_ij = ‖x_i − y_j‖² (Cuturi 2013); with its
    potential g, any row is mapped to Σ_j y_j p_j, p_j ∝ exp((g_j − ‖w − y_j‖²)/ε) (Pooladian & Niles-Weed 2021,
    arXiv:2109.12004), which for rows of the source is the barycentric projection of P. Not affine; images lie in the
    convex hull of the target rows. It pairs rows by the distribution alone, so that a row need not come near to its own
    partner: see what it costs in recall.

    ε is relative, so that the map turns, shifts and scales with the sets: a shift of either one does not change P.
    ε → ∞ maps every row to the target's mean, ε → 0 to the optimal matching, which needs more iterations. Equal sets
    are not mapped to themselves but shrunk towards their mean, less for smaller ε.

    Args:
        epsilon: ε over the mean of C less the squared distance of the means.
        iterations: At most; if the margins of P are then off by more than 1e-9 in L1, scikit-learn's
            ConvergenceWarning says so.

    Attributes:
        target_: (m, e) the target rows.
        potential_: (m,) g/ε for rows about the means.
        epsilon_: ε.
        source_mean_, target_mean_: (d,).

    Example:
        >>> import numpy as np
        >>> from clip_geometry import Sinkhorn
        >>> rng = np.random.default_rng(0)
        >>> source, target = rng.normal(size=(60, 2)), 3 * rng.normal(size=(80, 2)) + 5  # not aligned
        >>> mapped = Sinkhorn(0.01).fit(source, target).transform(source)
        >>> np.abs(mapped.mean(0) - target.mean(0)).max() < 1e-6
        np.True_
    """

    name = "sinkhorn"
    summary = "moves one modality into the other by entropic optimal transport of unaligned rows; not affine"
    formula = "Σ_j y_j p_j(w), p_j ∝ exp((g_j − ‖w − y_j‖²)/ε)"
    target_: np.ndarray
    potential_: np.ndarray
    epsilon_: float
    source_mean_: np.ndarray
    target_mean_: np.ndarray

    def __init__(self, epsilon: float = 0.05, iterations: int = 2000):
        self.epsilon = epsilon
        self.iterations = iterations

    def check(self) -> None:
        positive_number(self.epsilon, f"epsilon of {self.name}")
        whole_number(self.iterations, f"iterations of {self.name}")

    def _learn(self, source: Rows, target: Rows) -> None:
        x, y = in_memory(self, source), in_memory(self, target)
        self.source_mean_, self.target_mean_, self.target_ = x.mean(0), y.mean(0), y.copy()
        x, y = x - self.source_mean_, y - self.target_mean_  # a shift changes no plan, and far rows would cancel
        spread = float(np.square(x).sum(1).mean() + np.square(y).sum(1).mean())
        self.epsilon_ = float(self.epsilon) * (spread or 1.0)  # two points: every ε gives the same plan
        costs = torch.from_numpy(squared_distances(x, y))
        _, g, off = potentials(costs / self.epsilon_, int(self.iterations))
        if off > TOLERANCE:
            warn(
                f"{self.name}: after {self.iterations} iterations the margins of the plan are still off by {off:.1g}; "
                "give more iterations or a larger epsilon"
            )
        self.potential_ = g.numpy()

    def _map(self, x: np.ndarray) -> np.ndarray:
        y, mapped = self.target_ - self.target_mean_, []
        for start in range(0, len(x), BLOCK):
            logits = (
                self.potential_ - squared_distances(x[start : start + BLOCK] - self.source_mean_, y) / self.epsilon_
            )
            weights = np.exp(logits - logits.max(1, keepdims=True))
            mapped.append(weights @ y / weights.sum(1, keepdims=True) + self.target_mean_)
        return np.concatenate(mapped)


def potentials(
    costs: Float[Tensor, "n m"], iterations: int, start: Float[Tensor, " n"] | None = None
) -> tuple[Float[Tensor, " n"], Float[Tensor, " m"], float]:
    """Return f and g such that exp(f_i + g_j − c_ij) has uniform margins, by Sinkhorn's iterations in the log domain.

    Args:
        costs: Over ε.
        iterations: At most; it stops when the margins of the rows are right to TOLERANCE. Those of the columns are.
        start: Of f.

    Returns:
        f, g, and by how much the margins are off in L1.
    """
    n, m = costs.shape
    f = costs.new_zeros(n) if start is None else start
    g, off = costs.new_zeros(m), np.inf
    for _ in range(iterations):
        g = -np.log(m) - (f[:, None] - costs).logsumexp(0)
        new = -np.log(n) - (g - costs).logsumexp(1)
        off = float((torch.exp(f - new) - 1).abs().mean())
        if off <= TOLERANCE:
            break
        f = new
    return f, g, off


def warn(message: str) -> None:
    """Warn that iterations ended before they converged."""
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(message, ConvergenceWarning, stacklevel=4)


def squared_distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return ‖x_i − y_j‖², (n, m), of rows about their means, where a product does not cancel much."""
    return np.square(x).sum(1)[:, None] + np.square(y).sum(1) - 2 * x @ y.T
