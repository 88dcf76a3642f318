"""Whitening."""

import numpy as np

from clip_geometry.geometry._core.arguments import whole_number
from clip_geometry.transforms.base import Rows, Transform, TransformEntry, transforms
from clip_geometry.transforms.principal import principal_axes


class Whiten(Transform):
    """The first k principal components with variance 1: (w − μ) U_k diag(s_k)^(−1/2); (n, k) rows.

    U and s are the eigenvectors and eigenvalues of the covariance (ddof 1), found from the centred rows. This is PCA
    whitening (Su et al. 2021), not ZCA, which would turn back by U_kᵀ. Attributes: mean_ (d,), components_ (k, d),
    explained_variance_ (k,) = s_k, rank_ of the fitting set. k above the rank is an InputError.
    """

    name = "whiten"
    mean_: np.ndarray
    components_: np.ndarray
    explained_variance_: np.ndarray
    rank_: int

    def __init__(self, k: int):
        self.k = k

    def check(self) -> None:
        whole_number(self.k, f"k of {self.name}")

    def _learn(self, x: Rows) -> None:
        found = principal_axes(x, center=True)
        self.rank_ = found.rank
        self.components_ = found.first(self.k, f"{self.name}({self.k})", len(x))
        self.mean_ = found.mean
        self.explained_variance_ = found.singular_values[: self.k] ** 2 / (len(x) - 1)

    def _scaled(self) -> np.ndarray:
        return self.components_.T / np.sqrt(self.explained_variance_)

    def _map(self, x: np.ndarray) -> np.ndarray:
        return (x - self.mean_) @ self._scaled()

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        return self._scaled(), -self.mean_ @ self._scaled()


transforms.add(
    Whiten.name,
    TransformEntry(
        make=Whiten,
        fits=True,
        summary="keeps the first k principal components, each with variance 1",
        formula="(w − μ) U_k diag(s_k)^(−1/2), C = U diag(s) Uᵀ",
    ),
)
