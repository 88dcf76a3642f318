"""Conceptors: soft projections onto the directions that rows use."""

from typing import Any

import numpy as np

from clip_geometry.geometry.statistics.spectrum import triangle
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
