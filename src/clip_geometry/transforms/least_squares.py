"""The linear map from one set to another."""

import warnings

import numpy as np

from clip_geometry.geometry._core.arguments import real_number
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.transforms.base import PairedTransform, RankWarning, Rows, TransformEntry, as_blocks, transforms


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
        if self.rcond is not None:
            real_number(self.rcond, f"rcond of {self.name}", lambda part: 0 <= part < 1, "a number from 0 to below 1")

    def _learn_pairs(self, source: Rows, target: Rows) -> None:
        d = source.shape[1]
        self.rcond_ = float(max(source.shape) * np.finfo(np.float64).eps if self.rcond is None else self.rcond)
        self.W_, _, rank, _ = np.linalg.lstsq(*_reduced(source, target), rcond=self.rcond_)
        self.rank_ = int(rank)
        if self.rank_ < d:
            warnings.warn(
                f"{self.name} was fitted on source rows of rank {self.rank_} in dimension {d}, which leave part of "
                "the map free; it is the one of minimum norm",
                RankWarning,
                stacklevel=3,
            )


def _reduced(source: Rows, target: Rows) -> tuple[np.ndarray, np.ndarray]:
    """The rows as they are; of streamed ones R and QᵀB of A = QR: the same problem in d rows, to all digits."""
    if not isinstance(source, StreamedRows) and not isinstance(target, StreamedRows):
        return source, target
    d = source.shape[1]
    triangle = np.zeros((0, d + target.shape[1]))
    for a, b in zip(as_blocks(source), as_blocks(target), strict=True):
        rows = np.concatenate([triangle, np.concatenate([a, b], axis=1)])
        triangle = np.asarray(np.linalg.qr(rows, mode="r"))
    return triangle[:d, :d], triangle[:d, d:]


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
