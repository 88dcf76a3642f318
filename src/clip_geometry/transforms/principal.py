"""Transforms by principal axes: pca, whiten, all_but_the_top, conceptor.

The axes are computed from the rows themselves, because forming the covariance would square the condition number.
"""

from typing import Any, ClassVar, NamedTuple

import numpy as np

from clip_geometry.geometry.statistics.spectrum import triangle
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import flag, positive_number, whole_number
from clip_geometry.transforms.base import NewFeatures, Rows, Transform, as_blocks, in_torch, mean_of, register


class PrincipalAxes(NamedTuple):
    """Mean (d,), zero if not centered; orthonormal axes (r, d); singular_values (r,), descending; and rank ≤ r."""

    mean: np.ndarray
    axes: np.ndarray
    singular_values: np.ndarray
    rank: int


def principal_axes(x: Rows, *, center: bool) -> PrincipalAxes:
    """Compute the right singular vectors of the (centered) rows of x, (n, d) float64, by blockwise QR and SVD of R.

    The SVD does not determine the sign of an axis. Here, the row with the largest absolute score has a positive score
    (scikit-learn's svd_flip), so the axes are a function of the data and rotate with it. If singular values repeat, the
    axes are not unique. The rank is the number of singular values above max(n, d) · ε · √(s₁² + n‖μ‖²), the rounding
    error of an exact zero, such as the direction that centering removes from n ≤ d rows.
    """
    n, d = x.shape
    mean = mean_of(x) if center else np.zeros(d)
    _, values, axes = np.linalg.svd(triangle(in_torch(x), center=center).numpy(), full_matrices=False)
    noise = max(n, d) * np.finfo(np.float64).eps * np.hypot(values[0], np.sqrt(n) * np.linalg.norm(mean))
    largest = np.zeros(len(axes))
    for block in as_blocks(x):
        scores = (block - mean) @ axes.T
        largest_of_block = scores[np.abs(scores).argmax(0), np.arange(len(axes))]
        largest = np.where(np.abs(largest_of_block) > np.abs(largest), largest_of_block, largest)
    signs = np.where(largest < 0, -1.0, 1.0)
    return PrincipalAxes(mean, axes * signs[:, None], values, int((values > noise).sum()))


class _Components(Transform):
    """Base class of the transforms that learn the first k principal axes."""

    default: ClassVar = "all directions"  # the meaning of k = None
    mean_: np.ndarray
    components_: np.ndarray
    rank_: int

    def __init__(self, k: int | None = None):
        self.k = k

    def check(self) -> None:
        if self.k is not None:
            whole_number(self.k, f"k of {self.name}", of=f", or None for {self.default}")

    def _learn_axes(self, x: Rows, k: int | None, *, center: bool = True) -> np.ndarray:
        """Set the learned attributes, and return the variances of the k components, (k,)."""
        self.mean_, axes, singular_values, self.rank_ = principal_axes(x, center=center)
        k = max(self.rank_, 1) if k is None else int(k)
        if k > self.rank_:
            rows = "1 sample" if len(x) == 1 else f"{len(x)} rows"
            raise InputError(
                f"{self.name}({k}) needs {k} direction{'s' * (k > 1)}, but the {rows} it is fitted on span only "
                f"{self.rank_}; expected a smaller k or rows that differ more"
            )
        self.components_ = axes[:k]
        return singular_values[:k] ** 2 / max(len(x) - 1, 1)


@register
class PCA(NewFeatures, _Components):
    """Keep the first k principal components: w ↦ (w − μ) V_k, or w V_k with center=False (truncated SVD).

    The columns of V_k are the principal directions and μ is the mean of the fitting set. Unlike scikit-learn's PCA,
    centering is optional, because the mean of one modality is wrong for the other: 90 components fitted on class
    prompts keep CIFAR-10's zero-shot accuracy at 0.872 without centering, but at 0.644 with it.

    Args:
        k: Number of components, at most the rank of the fitting set; a larger k raises an InputError. None keeps all
            components, up to min(n − 1, d) for n rows in d dimensions.
        center: Whether to subtract the mean.

    Attributes:
        mean_: (d,) the mean; zero if not centered.
        components_: (k, d) the principal directions, as orthonormal rows.
        explained_variance_: (k,) variances along the components (ddof 1); about the origin if not centered.
        rank_: Rank of the fitting set.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.transforms import PCA
        >>> x = np.random.default_rng(0).normal(size=(50, 4)) * [3, 2, 1, 0.1]
        >>> pca = PCA(2).fit(x)
        >>> pca.transform(x).shape, pca.rank_
        ((50, 2), 4)
        >>> bool(pca.explained_variance_[0] > pca.explained_variance_[1])
        True
    """

    name = "pca"
    explained_variance_: np.ndarray

    def __init__(self, k: int | None = None, center: bool = True):
        self.k = k
        self.center = center

    def check(self) -> None:
        super().check()
        flag(self.center, f"center of {self.name}")

    def _learn(self, x: Rows) -> None:
        self.explained_variance_ = self._learn_axes(x, self.k, center=self.center)

    def _affine(self) -> tuple[Any, Any, Any]:
        return self.mean_, self.components_.T, 0.0


@register
class Whiten(NewFeatures, _Components):
    """Keep the first k principal components and scale each to variance 1: w ↦ (w − μ) U_k diag(s_k)^(−1/2).

    μ is the mean of the fitting set, the columns of U_k are the first k eigenvectors of its covariance (ddof 1), and
    s_k are their eigenvalues. This is PCA whitening (Su et al. 2021); ZCA whitening would also rotate back by U_kᵀ.

    Args:
        k: Number of components, at most the rank of the fitting set; a larger k raises an InputError. None keeps all
            components, up to min(n − 1, d) for n rows in d dimensions. The last components are then mostly noise,
            amplified to variance 1; with n ≤ d, all rows of the fitting set become equally far apart.

    Attributes:
        mean_: (d,) the mean.
        components_: (k, d) the principal directions, as orthonormal rows.
        explained_variance_: (k,) the eigenvalues s_k.
        rank_: Rank of the fitting set.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.transforms import Whiten
        >>> x = np.random.default_rng(0).normal(size=(50, 4)) * [3, 2, 1, 0.1]
        >>> np.cov(Whiten(3).fit_transform(x).T).round(6) + 0.0
        array([[1., 0., 0.],
               [0., 1., 0.],
               [0., 0., 1.]])
    """

    name = "whiten"
    explained_variance_: np.ndarray

    def _learn(self, x: Rows) -> None:
        self.explained_variance_ = self._learn_axes(x, self.k)

    def _affine(self) -> tuple[Any, Any, Any]:
        return self.mean_, self.components_.T / np.sqrt(self.explained_variance_), 0.0


@register
class AllButTheTop(_Components):
    """Remove the mean and the first k principal components of the fitting set: w ↦ c − c V_k V_kᵀ with c = w − μ.

    The columns of V_k are the principal directions and μ is the mean. Mu & Viswanath 2018 project w instead of c; the
    two versions differ by a constant vector, and here the mean of the fitting set becomes zero.

    Args:
        k: Number of components to remove, below the rank of the fitting set; a larger k raises an InputError. None:
            d/100, rounded, and at least one, as the authors recommend.

    Attributes:
        mean_: (d,) the mean μ of the fitting set.
        components_: (k, d) the removed directions, as orthonormal rows.
        rank_: Rank of the fitting set.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.transforms import AllButTheTop
        >>> x = np.random.default_rng(0).normal(size=(50, 4)) * [3, 2, 1, 0.1]
        >>> rest = AllButTheTop(1).fit_transform(x)
        >>> rest.shape, int(np.linalg.matrix_rank(rest))
        ((50, 4), 3)
    """

    name = "all_but_the_top"
    default = "a hundredth of the dimension, at least 1"

    def _learn(self, x: Rows) -> None:
        k = max(round(x.shape[1] / 100), 1) if self.k is None else int(self.k)
        self._learn_axes(x, k)
        if k == self.rank_:
            raise InputError(
                f"{self.name}({k}) removes all {k} directions in which the {len(x)} rows differ, which leaves only "
                f"rounding errors of their {x.shape[1]} feature(s); expected a smaller k"
            )

    def _map(self, x: np.ndarray) -> np.ndarray:
        centered = x - self.mean_
        return centered - (centered @ self.components_.T) @ self.components_

    def _affine(self) -> tuple[Any, Any, Any]:
        return self.mean_, np.eye(len(self.mean_)) - self.components_.T @ self.components_, 0.0


@register
class Conceptor(Transform):
    """Damp the directions that the rows use most, by conceptor negation: w ↦ w (I − C).

    C = R (R + α⁻² I)⁻¹ with R = XᵀX/n, where X holds the n rows of the fitting set, which are not centered. A direction
    in which the rows have the mean square s is multiplied by 1 − s/(s + α⁻²), which is near 0 for large s and near 1
    for small s. `all_but_the_top` removes k directions completely; this transform damps all directions gradually.
    Sources: Jaeger 2014, arXiv:1403.3369; Liu, Ungar & Sedoc 2019, arXiv:1811.11001, who use α = 2 for word vectors
    several units long.

    The mean squares of unit rows sum to 1, so α = 2 halves a direction with s = 1/4. For CLIP embeddings, it damps
    little except the mean direction. A single row can be fitted, too: only its own direction is damped.

    Args:
        alpha: The aperture α, above 0; a larger α damps more. Multiplying the rows by c and dividing α by c gives the
            same map.

    Attributes:
        conceptor_: (d, d) the symmetric matrix C, with eigenvalues between 0 and 1.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.transforms import Conceptor
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
