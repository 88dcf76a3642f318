"""The affine map from one set to another by ridge regression on aligned rows, of full or low rank: ridge."""

import numpy as np

from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import positive_number, whole_number
from clip_geometry.transforms.base import Rows, as_blocks, mean_of, register
from clip_geometry.transforms.sets import CenteredTransform, PairedTransform


@register
class Ridge(CenteredTransform, PairedTransform):
    """Ridge regression with intercept: μ_t + (w − μ_s) W, W = argmin ‖XW − Y‖² + λ‖W‖² for centered pairs X and Y.

    λ is `alpha` times the mean over the d dimensions of ‖X_k‖², so that it scales with the rows: W = (XᵀX + λI)⁻¹ XᵀY.
    Where there are few pairs, `least_squares` fits their noise; alpha from 0.01 to 1 mostly does better on others. A
    `rank` r gives reduced-rank ridge regression (Mukherjee & Zhu 2011): W on the r principal axes of what it fits.

    Args:
        alpha: λ, relative.
        rank: r; None for full rank.

    Attributes:
        W_: (d, e).
        source_mean_, target_mean_: (d,), (e,).
        rank_: Of W.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import Ridge
        >>> source = np.random.default_rng(0).normal(size=(50, 3))
        >>> target = source @ np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]]) + 5
        >>> bool(np.allclose(Ridge(1e-9).fit(source, target).transform(source), target))
        True
    """

    name = "ridge"
    one_space = False
    least = 2  # one pair would map all rows to its target

    def __init__(self, alpha: float = 0.1, rank: int | None = None):
        self.alpha = alpha
        self.rank = rank

    def check(self) -> None:
        positive_number(self.alpha, f"alpha of {self.name}")
        if self.rank is not None:
            whole_number(self.rank, f"rank of {self.name}")

    def _learn(self, source: Rows, target: Rows) -> None:
        (n, d), e = source.shape, target.shape[1]
        if self.rank is not None and self.rank > (most := min(n - 1, d, e)):
            raise InputError(
                f"rank of {self.name} = {self.rank}; {n} pairs of {d} and {e} dimensions have up to {most}"
            )
        self.source_mean_, self.target_mean_ = mean_of(source), mean_of(target)
        squares, product = np.zeros((d, d)), np.zeros((d, e))
        for a, b in zip(as_blocks(source), as_blocks(target), strict=True):
            a = a - self.source_mean_
            squares += a.T @ a
            product += a.T @ (b - self.target_mean_)
        values, axes = np.linalg.eigh(squares)
        values = np.maximum(values, 0)
        shrunk = values + float(self.alpha) * (values.mean() or 1.0)
        self.W_ = axes @ ((axes.T @ product) / shrunk[:, None])
        if self.rank is not None:  # the axes of the fitted rows, in the norm that the ridge adds to
            _, _, principal = np.linalg.svd(np.sqrt(shrunk)[:, None] * (axes.T @ self.W_), full_matrices=False)
            self.W_ = self.W_ @ principal[: self.rank].T @ principal[: self.rank]
        self.rank_ = min(n - 1, d, e) if self.rank is None else int(self.rank)
