"""Several transforms as one: a transform of their own kind (`Compose`), or a single affine map (`Affine`)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, cast

import numpy as np

from clip_geometry.registry import InputError, shown
from clip_geometry.transforms.base import Rows, Transform, as_matrix
from clip_geometry.transforms.elementary import Normalize


@dataclass(frozen=True, eq=False)
class Affine:
    """The affine map x ↦ x W + b of a chain of transforms, for programs that do not know this package.

    Calling it on rows applies all of it, the unit lengths included. The result equals the chain's transform up to
    rounding relative to ‖x W‖: for whitened rows far from the origin (‖μ‖ above 1000 times the spread) that is more
    than the transform's own rounding, which centers first.

    Args:
        W: (d_in, d_out) float64.
        b: (d_out,) float64.
        renormalise: Whether rows are made unit length afterwards.
        unit_rows_in: Whether rows have to be unit length before W, which a leading normalize asks for; those of most
            CLIP indices are already.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import Pipeline
        >>> fitted = Pipeline("scale(2),center").fit({"any": np.array([[1.0, 0.0], [3.0, 4.0]])})
        >>> affine = fitted.affine("any")
        >>> affine.W.tolist(), affine.b.tolist()
        ([[2.0, 0.0], [0.0, 2.0]], [-4.0, -4.0])
        >>> affine(np.array([[1.0, 1.0]]))
        array([[-2., -2.]])
    """

    W: np.ndarray
    b: np.ndarray
    renormalise: bool
    unit_rows_in: bool = False

    @cached_property
    def identity(self) -> bool:
        """Whether W is the identity, whose product is left out."""
        return self.W.shape[0] == self.W.shape[1] and np.array_equal(self.W, np.eye(len(self.W)))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        x = Normalize().apply(x) if self.unit_rows_in else as_matrix(x)
        if x.shape[1] != len(self.W):
            raise InputError(f"rows have dimension {x.shape[1]}, but the map was fitted on dimension {len(self.W)}")
        mapped = (x if self.identity else x @ self.W) + self.b
        return Normalize().apply(mapped) if self.renormalise else mapped


def affine_chain(chain: Iterable[Transform], d: int) -> Affine:
    """Combine fitted transforms into one Affine of rows of dimension d.

    Raises:
        InputError: If normalize stands between other steps (it may come first and last), or a step is not affine.
    """
    weights, shift = np.eye(d), np.zeros(d)
    unit_rows_in = unit = mapped = False
    for transform in chain:
        if isinstance(transform, Normalize):
            unit = True
            continue
        if unit and mapped:
            raise InputError(
                f"a normalize stands between affine steps (before {transform.name}), so the pipeline is no affine map; "
                "normalize may come first and last"
            )
        w, b = transform.weights()
        weights, shift = weights @ w, shift @ w + b
        unit_rows_in, unit, mapped = unit_rows_in or unit, False, True
    return Affine(weights, shift, renormalise=unit, unit_rows_in=unit_rows_in)


class Compose(Transform):
    """Several transforms as one; each is fitted on the output of those before it.

    `fit(source, target)` passes the target, unchanged, to the steps that are fitted on two sets. Pipelines written
    as strings (`Pipeline`) also transform the target, know modalities and can be saved.

    Args:
        steps: Transforms to be fitted; the ones given are left as they are.

    Attributes:
        steps_: The fitted copies.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import Center, Compose, Normalize
        >>> x = np.array([[3.0, 4.0], [0.0, 2.0]])
        >>> Compose([Normalize(), Center()]).fit_transform(x).round(2)
        array([[ 0.3, -0.1],
               [-0.3,  0.1]])
    """

    name = "compose"
    steps_: list[Transform]

    def __init__(self, steps: Sequence[Transform]):
        self.steps = steps

    @property
    def onto(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether one of the steps is fitted on two sets."""
        steps = self.steps if isinstance(self.steps, list | tuple) else ()  # they are checked when it is fitted
        return any(getattr(step, "onto", False) or getattr(step, "joint", False) for step in steps)

    @property
    def joint(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether one of the steps is fitted on two sets together."""
        steps = self.steps if isinstance(self.steps, list | tuple) else ()
        return any(getattr(step, "joint", False) for step in steps)

    @property
    def paired(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether one of the steps is fitted on two aligned sets."""
        steps = self.steps if isinstance(self.steps, list | tuple) else ()
        return any(getattr(step, "paired", False) for step in steps)

    def check(self) -> None:
        if not isinstance(self.steps, list | tuple) or not all(isinstance(step, Transform) for step in self.steps):
            raise InputError(
                f"steps of {self.name} are {shown(self.steps)}; expected a list of transforms to be fitted"
            )

    def fit(self, x: Rows, y: Rows | None = None) -> Self:
        from sklearn.base import clone

        steps, rows = [], self._start(x)
        for step in self.steps:
            steps.append(cast(Transform, clone(step)).fit(rows, y if step.onto or step.joint else None))
            rows = steps[-1].apply(rows)
        self.steps_, self.fitted_on_ = steps, len(rows)
        return self

    def _map(self, x: np.ndarray) -> np.ndarray:
        for step in self.steps_:
            x = step.apply(x)
        return x

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the new columns: the features' through all steps."""
        names = super().get_feature_names_out(input_features)
        for step in self.steps_:
            names = step.get_feature_names_out(names)
        return names

    def affine(self) -> Affine:
        """Return the whole as an `Affine`; raise InputError if it is not affine."""
        self.require_fitted()
        return affine_chain(self.steps_, self.n_features_in_)

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        found = self.affine()
        if found.renormalise or found.unit_rows_in:
            raise InputError(f"{self.name} makes rows unit length, so it cannot be written as (W, b) inside a chain")
        return found.W, found.b
