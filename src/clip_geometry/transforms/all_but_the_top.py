"""All but the top components."""

import numpy as np

from clip_geometry.geometry._core.arguments import whole_number
from clip_geometry.registry import InputError
from clip_geometry.transforms.base import Rows, Transform, TransformEntry, transforms
from clip_geometry.transforms.principal import principal_axes


class AllButTheTop(Transform):
    """Removes the mean and the first k principal components: c − c V_k V_kᵀ with c = w − μ; (n, d) rows.

    Mu & Viswanath 2018. They project the raw row where this projects the centred one, so that the mean of the
    fitting set is zero here; the two differ by one vector. Attributes: mean_ (d,), components_ (k, d), rank_ of the
    fitting set. k from the rank on is an InputError.
    """

    name = "all_but_the_top"
    mean_: np.ndarray
    components_: np.ndarray
    rank_: int

    def __init__(self, k: int):
        self.k = k

    def check(self) -> None:
        whole_number(self.k, f"k of {self.name}")

    def _learn(self, x: Rows) -> None:
        found = principal_axes(x, center=True)
        self.rank_ = found.rank
        self.components_ = found.first(self.k, f"{self.name}({self.k})", len(x))
        if self.k == self.rank_:
            raise InputError(
                f"{self.name}({self.k}) removes all {self.k} directions in which the {len(x)} rows differ; "
                "what is left of them is rounding; take a smaller k"
            )
        self.mean_ = found.mean

    def _map(self, x: np.ndarray) -> np.ndarray:
        centred = x - self.mean_
        return centred - (centred @ self.components_.T) @ self.components_

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        rest = np.eye(len(self.mean_)) - self.components_.T @ self.components_
        return rest, -self.mean_ @ rest


transforms.add(
    AllButTheTop.name,
    TransformEntry(
        make=AllButTheTop,
        fits=True,
        summary="removes the mean and the first k principal components",
        formula="(w − μ)(I − V_k V_kᵀ)",
    ),
)
