"""A chain of transforms as one affine map, for programs that know nothing of this package."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from clip_geometry.registry import InputError
from clip_geometry.transforms.base import Transform, as_matrix
from clip_geometry.transforms.normalize import Normalize


@dataclass(frozen=True, eq=False)
class Affine:
    """x ↦ x W + b, made unit length afterwards if `renormalise`; called on rows it does all of it.

    W (d_in, d_out), b (d_out,), float64. unit_rows_in: the rows have to be unit length before W, which is what a
    leading normalize becomes; rows that already are (most CLIP indices) need no step for it.

    x W + b is the chain's transform up to rounding relative to ‖x W‖: where rows lie far from the mean's origin
    (‖μ‖ above 1000 times the spread) and are whitened, that is more than in the transform, which centres first.
    """

    W: np.ndarray
    b: np.ndarray
    renormalise: bool
    unit_rows_in: bool = False

    def __call__(self, x: np.ndarray) -> np.ndarray:
        x = Normalize().transform(x) if self.unit_rows_in else as_matrix(x)
        moved = x @ self.W + self.b
        return Normalize().transform(moved) if self.renormalise else moved


def affine_chain(chain: Iterable[Transform], d: int) -> Affine:
    """The fitted transforms one after the other as one Affine of rows of dimension d.

    normalize may come first and last, not in between, and cluster_center not at all: InputError.
    """
    weights, shift = np.eye(d), np.zeros(d)
    unit_rows_in = unit = moved = False
    for transform in chain:
        if isinstance(transform, Normalize):
            unit = True
            continue
        if unit and moved:
            raise InputError(
                f"a normalize stands between affine steps (before {transform.name}), so the pipeline is no affine map; "
                "normalize may come first and last"
            )
        w, b = transform.weights()
        weights, shift = weights @ w, shift @ w + b
        unit_rows_in, unit, moved = unit_rows_in or unit, False, True
    return Affine(weights, shift, renormalise=unit, unit_rows_in=unit_rows_in)
