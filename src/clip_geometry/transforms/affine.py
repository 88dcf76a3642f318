"""Several affine transforms as one map."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from clip_geometry.registry import InputError
from clip_geometry.transforms.base import Transform, as_matrix
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

    @classmethod
    def of(cls, chain: Iterable[Transform], d: int) -> "Affine":
        """Combine fitted transforms of rows of dimension d.

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
                    f"a normalize stands between affine steps (before {transform.name}), so the pipeline is no affine "
                    "map; normalize may come first and last"
                )
            w, b = transform.weights()
            weights, shift = weights @ w, shift @ w + b
            unit_rows_in, unit, mapped = unit_rows_in or unit, False, True
        return cls(weights, shift, renormalise=unit, unit_rows_in=unit_rows_in)

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
