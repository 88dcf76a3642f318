"""Transforms one after the other, as one transform."""

from collections.abc import Sequence
from typing import Self, cast

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from clip_geometry.registry import InputError, shown
from clip_geometry.transforms.affine import affine_chain
from clip_geometry.transforms.base import PairedTransform, Rows, Transform, as_learnable


class Compose(Transform):
    """Each of `steps` fitted on what the ones before it make of the rows; attribute steps_, the fitted copies.

    fit(source, target) gives the target, as it comes, to the steps that map one set onto another. Pipelines written
    as strings (`Pipeline`) also move the target, know modalities and are saved.
    """

    name = "compose"
    steps_: list[Transform]

    def __init__(self, steps: Sequence[Transform]):
        self.steps = steps

    def check(self) -> None:
        if not isinstance(self.steps, list | tuple) or not all(isinstance(step, Transform) for step in self.steps):
            raise InputError(
                f"steps of {self.name} are {shown(self.steps)}; expected a list of transforms to be fitted"
            )

    def fit(self, x: Rows, y: Rows | None = None) -> Self:
        self.check()
        x = as_learnable(x)
        self.fitted_on_, self.n_features_in_ = x.shape
        self.steps_ = []
        for step in self.steps:
            fitted = cast(Transform, clone(step)).fit(x, y if isinstance(step, PairedTransform | Compose) else None)
            self.steps_.append(fitted)
            x = fitted.transform(x)
        return self

    def _learn(self, x: Rows) -> None:
        self.fit(x)

    def _map(self, x: np.ndarray) -> np.ndarray:
        for step in self.steps_:
            x = step.transform(x)
        return x

    def affine(self):
        """The whole as an `Affine`; InputError where it is none."""
        check_is_fitted(self)
        return affine_chain(self.steps_, self.n_features_in_)

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        found = self.affine()
        if found.renormalise or found.unit_rows_in:
            raise InputError(f"{self.name} makes rows unit length, so it cannot be written as (W, b) inside a chain")
        return found.W, found.b
