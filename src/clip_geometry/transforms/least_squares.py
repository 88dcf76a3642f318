"""The linear map from one set to another."""

import math
import warnings
from numbers import Real

import numpy as np

from clip_geometry.registry import InputError
from clip_geometry.transforms.base import PairedTransform, RankWarning, TransformEntry, transforms


class LeastSquares(PairedTransform):
    """The W that minimises ‖AW − B‖_F for source rows A, (n, d), and target rows B, (n, e); no intercept.

    Where A has rank r < d, W is not unique and a RankWarning says so: it is the one of minimum norm, A⁺B.
    rcond: singular values of A up to rcond times the largest count as zero; None is max(n, d) · ε of float64.
    Attributes: W_ (d, e), rank_ = r, rcond_ as used.
    """

    name = "least_squares"
    rcond_: float

    def __init__(self, rcond: float | None = None):
        self.rcond = rcond

    def check(self) -> None:
        rcond = self.rcond
        if rcond is None:
            return
        if isinstance(rcond, bool) or not isinstance(rcond, Real) or not (math.isfinite(rcond) and 0 <= rcond < 1):
            raise InputError(f"rcond of {self.name} is {rcond!r}; expected a number from 0 to below 1")

    def _learn_pairs(self, source: np.ndarray, target: np.ndarray) -> None:
        d = source.shape[1]
        self.rcond_ = float(max(source.shape) * np.finfo(np.float64).eps if self.rcond is None else self.rcond)
        self.W_, _, rank, _ = np.linalg.lstsq(source, target, rcond=self.rcond_)
        self.rank_ = int(rank)
        if self.rank_ < d:
            warnings.warn(
                f"{self.name} was fitted on source rows of rank {self.rank_} in dimension {d}, which leave part of "
                "the map free; it is the one of minimum norm",
                RankWarning,
                stacklevel=3,
            )


transforms.add(
    LeastSquares.name,
    TransformEntry(
        make=LeastSquares,
        fits=True,
        paired=True,
        summary="the linear map of one modality nearest to the other; of several the one of minimum norm",
        formula="w W, W = argmin ‖AW − B‖ = A⁺B",
    ),
)
