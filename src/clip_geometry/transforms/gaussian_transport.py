"""The optimal transport map between the Gaussians of two unaligned sets: gaussian_transport."""

import warnings

import numpy as np

from clip_geometry.geometry._core.arguments import real_number
from clip_geometry.geometry._core.triangle import triangle
from clip_geometry.transforms.base import RankWarning, Rows, in_torch, mean_of, register
from clip_geometry.transforms.sets import CenteredTransform


@register
class GaussianTransport(CenteredTransform):
    """The affine map that carries the source's mean and covariance to the target's and moves rows least (Bures, Monge).

    x ↦ μ_t + (x − μ_s) A with A = S^(−1/2) (S^(1/2) T S^(1/2))^(1/2) S^(−1/2) for covariances S and T (divided by n);
    A is symmetric and positive semidefinite, and optimal between Gaussians (Knott & Smith 1984; Peyré & Cuturi 2019,
    remark 2.31). Equal sets are left as they are, a shifted set is shifted back, and sets with the same principal axes
    are scaled along these. It knows no pairs: which row belongs to which is not looked at.

    If the source spans fewer than d directions, the others are free: they are left as they are, with a RankWarning.

    Args:
        ridge: Added to both covariances, times the mean of their variances. Covariances of few rows are noise in most
            directions, and a ridge moves A towards the identity.

    Attributes:
        W_: (d, d), A.
        source_mean_, target_mean_: (d,).
        rank_: Of the source's covariance.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import GaussianTransport
        >>> rng = np.random.default_rng(0)
        >>> source, target = rng.normal(size=(60, 2)), rng.normal(size=(80, 2)) * [3, 0.5] + 5  # not aligned
        >>> mapped = GaussianTransport().fit(source, target).transform(source)
        >>> np.allclose(np.cov(mapped.T, ddof=0), np.cov(target.T, ddof=0)), np.allclose(mapped.mean(0), target.mean(0))
        (True, True)
    """

    name = "gaussian_transport"
    summary = "carries mean and covariance of one modality to the other's, moving rows least; of unaligned rows"
    formula = "μ_t + (w − μ_s) A, A = S^(−1/2) (S^(1/2) T S^(1/2))^(1/2) S^(−1/2)"
    rank_: int

    def __init__(self, ridge: float = 0.0):
        self.ridge = ridge

    def check(self) -> None:
        real_number(self.ridge, f"ridge of {self.name}", lambda each: 0 <= each < np.inf, "a number from 0 on")

    def _learn(self, source: Rows, target: Rows) -> None:
        self.source_mean_, self.target_mean_ = mean_of(source), mean_of(target)
        d = source.shape[1]
        (s, s_axes), (t, t_axes) = (_variances(x) for x in (source, target))
        added = float(self.ridge) * (s.sum() + t.sum()) / (2 * d)
        used = s + added > max(len(source), d) * np.finfo(np.float64).eps * (s.max() + added)
        self.rank_ = int(used.sum())
        root, axes = np.sqrt(s[used] + added), s_axes[:, used]
        # S^(1/2) T S^(1/2) in the source's axes, from a factor of T: no covariance is formed
        factor = np.sqrt(t + added)[:, None] * (t_axes.T @ axes) * root
        _, values, vectors = np.linalg.svd(factor, full_matrices=False)
        middle = (vectors.T * values) @ vectors / root[:, None] / root
        self.W_ = axes @ middle @ axes.T
        if self.rank_ < d:
            self.W_ += np.eye(d) - axes @ axes.T
            warnings.warn(
                f"{self.name} was fitted on source rows that span {self.rank_} of {d} directions, which leave part of "
                "the map free; it is completed by the identity",
                RankWarning,
                stacklevel=3,
            )


def _variances(x: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues, (d,), and eigenvectors, (d, d) columns, of the covariance."""
    _, values, axes = np.linalg.svd(triangle(in_torch(x), center=True).numpy(), full_matrices=True)
    variances = np.zeros(x.shape[1])
    variances[: len(values)] = np.square(values) / len(x)
    return variances, axes.T
