"""Principal components."""

import numpy as np

from clip_geometry.geometry._core.arguments import flag, whole_number
from clip_geometry.transforms.base import Rows, Transform, TransformEntry, transforms
from clip_geometry.transforms.principal import principal_axes


class PCA(Transform):
    """The first k principal components: (w − μ) V_k, or w V_k with center=False (the truncated SVD); (n, k) rows.

    Attributes: mean_ (d,), zero where not centred; components_ (k, d), orthonormal rows; explained_variance_ (k,),
    s²/(n − 1), about the origin where not centred; rank_ of the fitting set. k above the rank is an InputError.
    Centring on one modality moves both: PCA-90 on class prompts keeps CIFAR-10's zero-shot .872 uncentred, .644
    centred. Unlike scikit-learn's PCA it is told whether to centre.
    """

    name = "pca"
    mean_: np.ndarray
    components_: np.ndarray
    explained_variance_: np.ndarray
    rank_: int

    def __init__(self, k: int, center: bool = True):
        self.k = k
        self.center = center

    def check(self) -> None:
        whole_number(self.k, f"k of {self.name}")
        flag(self.center, f"center of {self.name}")

    def _learn(self, x: Rows) -> None:
        found = principal_axes(x, center=self.center)
        self.rank_ = found.rank
        self.components_ = found.first(self.k, f"{self.name}({self.k})", len(x))
        self.mean_ = found.mean
        self.explained_variance_ = found.singular_values[: self.k] ** 2 / max(len(x) - 1, 1)

    def _map(self, x: np.ndarray) -> np.ndarray:
        return (x - self.mean_) @ self.components_.T

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        return self.components_.T, -self.mean_ @ self.components_.T


transforms.add(
    PCA.name,
    TransformEntry(
        make=PCA,
        fits=True,
        summary="keeps the first k principal components; center=false: those about the origin",
        formula="(w − μ) V_k",
    ),
)
