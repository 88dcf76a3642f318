"""Conceptors: soft projections onto the directions that rows use, and their Boolean operations."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from clip_geometry.geometry.statistics.triangle import triangle
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import positive_number
from clip_geometry.transforms.base import Rows, Transform, in_torch, register


@register
class Conceptor(Transform):
    """Conceptor negation, w (I − C) with C = R (R + α⁻² I)⁻¹ and R = XᵀX/n: damp the directions that rows use most.

    C has the eigenvectors of the uncentered R and eigenvalues s/(s + α⁻²) from 0 to 1 for variances s, so that I − C
    shrinks a direction of large s to almost nothing and leaves one of small s alone (Jaeger 2014, arXiv:1403.3369; Liu,
    Ungar & Sedoc 2019, arXiv:1811.11001, who take α = 2 for word vectors with lengths of several units). Where
    `all_but_the_top` removes k directions, this damps all of them. Variances of unit rows sum to 1: α = 2 halves a
    direction that has 1/4 of it, and of CLIP rows damps little but the mean. As R is not centered, one row has a
    conceptor, of its direction; other directions stay as they are.

    Fitted conceptors combine: ~a is w C, a | b damps what a or b damps, and a & b what both damp.

    Args:
        alpha: The aperture α; more damps more. Rows scaled by c with α/c give the same map.

    Attributes:
        conceptor_: (d, d), C; symmetric with eigenvalues from 0 to 1.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import Conceptor
        >>> x = np.random.default_rng(0).normal(size=(500, 3)) * [9, 3, 0.1]
        >>> damped = Conceptor(1.0).fit(x)
        >>> np.diag(damped.conceptor_).round(2)
        array([0.99, 0.89, 0.01])
        >>> np.allclose(damped.transform(x) + (~damped).transform(x), x)
        True
    """

    name = "conceptor"
    conceptor_: np.ndarray

    def __init__(self, alpha: float = 2.0):
        self.alpha = alpha

    def check(self) -> None:
        positive_number(self.alpha, f"alpha of {self.name}")

    def _learn(self, x: Rows) -> None:
        _, values, axes = np.linalg.svd(triangle(in_torch(x), center=False).numpy(), full_matrices=False)
        variances = np.square(values) / len(x)
        self.conceptor_ = (axes.T * (variances / (variances + float(self.alpha) ** -2.0))) @ axes

    def _affine(self) -> tuple[Any, Any, Any]:
        return 0.0, np.eye(len(self.conceptor_)) - self.conceptor_, 0.0

    def __invert__(self) -> "Conceptor":
        check_is_fitted(self)
        return self._with(np.eye(len(self.conceptor_)) - self.conceptor_)

    def __and__(self, other: "Conceptor") -> "Conceptor":
        return self._with(_both(self.conceptor_, self._other(other)))

    def __or__(self, other: "Conceptor") -> "Conceptor":
        one = np.eye(len(self.conceptor_))
        return self._with(one - _both(one - self.conceptor_, one - self._other(other)))

    def _other(self, other: "Conceptor") -> np.ndarray:
        if not isinstance(other, Conceptor):
            raise InputError(f"a conceptor combines with a conceptor, not with a {type(other).__name__}")
        check_is_fitted(self)
        check_is_fitted(other)
        if len(other.conceptor_) != len(self.conceptor_):
            raise InputError(
                f"conceptors of {len(self.conceptor_)} and of {len(other.conceptor_)} dimensions do not combine"
            )
        return other.conceptor_

    def _with(self, conceptor: np.ndarray) -> "Conceptor":
        combined = Conceptor(self.alpha)
        combined.conceptor_ = (conceptor + conceptor.T) / 2
        combined.n_features_in_, combined.fitted_on_ = self.n_features_in_, self.fitted_on_
        return combined


def _both(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return A ∧ B = (A⁻¹ + B⁻¹ − I)⁻¹ on the directions that both use, 0 on the others (Jaeger 2014, section 3.9)."""
    d, inverses, unused = len(a), [], []
    for each in (a, b):
        values, vectors = np.linalg.eigh(each)
        used = values > d * np.finfo(np.float64).eps
        inverses.append((vectors[:, used] / values[used]) @ vectors[:, used].T)
        unused.append(vectors[:, ~used])
    null = np.concatenate(unused, axis=1)
    u, values, _ = np.linalg.svd(null, full_matrices=True)
    shared = u[:, int((values > d * np.finfo(np.float64).eps).sum()) :]  # orthogonal to what either leaves unused
    return shared @ np.linalg.inv(shared.T @ (inverses[0] + inverses[1] - np.eye(d)) @ shared) @ shared.T
