"""Maps from one set to another that are fitted on aligned rows: procrustes, least_squares, ridge."""

from typing import Any, Literal

import numpy as np

from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import one_of, positive_number, real_number, whole_number
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.transforms.base import PairedTransform, Rows, as_blocks, mean_of, register


@register
class LeastSquares(PairedTransform):
    """Map rows of one set to their pairs in another by the linear map W that minimizes ‖AW − B‖_F, without intercept.

    A, (n, d), holds the source rows and B, (n, e), the target rows, aligned. If A has rank r < d, W is not unique; the
    solution of minimum norm, A⁺B, is used, with a RankWarning.

    Args:
        rcond: Singular values of A up to rcond times the largest count as zero. None: max(n, d) · ε, where ε is the
            rounding unit of float64.

    Attributes:
        W_: (d, e) the map W.
        rank_: Rank r of A.
        rcond_: The value of rcond that was used.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.transforms import LeastSquares
        >>> source = np.random.default_rng(0).normal(size=(20, 3))
        >>> target = source @ np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]])
        >>> LeastSquares().fit(source, target).W_.round(6) + 0.0
        array([[1., 0.],
               [2., 1.],
               [0., 3.]])
    """

    name = "least_squares"
    one_space = False
    rcond_: float

    def __init__(self, rcond: float | None = None):
        self.rcond = rcond

    def check(self) -> None:
        if self.rcond is not None:
            real_number(self.rcond, f"rcond of {self.name}", lambda value: 0 <= value < 1, "a number from 0 to below 1")

    def _learn(self, source: Rows, target: Rows) -> None:
        """Solve the least-squares problem; streamed rows are first reduced by a QR decomposition."""
        d = source.shape[1]
        self.rcond_ = float(max(source.shape) * np.finfo(np.float64).eps if self.rcond is None else self.rcond)
        if isinstance(source, StreamedRows) or isinstance(target, StreamedRows):
            # with A = QR, R and QᵀB give the same problem in d rows, without loss of precision
            triangle = np.zeros((0, d + target.shape[1]))
            for a, b in zip(as_blocks(source), as_blocks(target), strict=True):
                rows = np.concatenate([triangle, np.concatenate([a, b], axis=1)])
                triangle = np.asarray(np.linalg.qr(rows, mode="r"))
            source, target = triangle[:d, :d], triangle[:d, d:]
        self.W_, _, rank, _ = np.linalg.lstsq(source, target, rcond=self.rcond_)
        self.rank_ = int(rank)
        self._warn_of_rank("source rows", d, "the one of minimum norm")


@register
class Procrustes(PairedTransform):
    """Map rows of one set to their pairs in another by the orthogonal map Ω that minimizes ‖AΩ − B‖_F.

    Source: Schönemann 1966. A and B, both (n, d), hold the source and the target rows, aligned, which are neither
    centered nor scaled. Let M = AᵀB = U S Vᵀ have rank r, and split U and V into the first r columns, U_r and V_r, and
    the others, U_⊥ and V_⊥. The minimum is Ω = U_r V_rᵀ + U_⊥ Q V_⊥ᵀ with any orthogonal Q. If r < d, `completion`
    chooses Q, with a RankWarning. Directions with less than about 1e-8 of the norm of both sets count as outside the
    rank.

    Args:
        completion: How Q is chosen. "identity": so that Ω is as close as possible to the identity, and directions
            without data change as little as possible (the polar factor of U_⊥ᵀ V_⊥; if that matrix is singular, one of
            several such Q). "lapack": Q = I for the arbitrary U_⊥ and V_⊥ that LAPACK returns, as in
            scipy.linalg.orthogonal_procrustes.

    Attributes:
        W_: (d, d) the map Ω.
        rank_: Rank r: the number of singular values of M above max(n, d) · ε · ‖A‖_F ‖B‖_F, where ε is the rounding
            unit of float64.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.transforms import Procrustes
        >>> source = np.random.default_rng(0).normal(size=(20, 2))
        >>> target = source @ np.array([[0.0, 1.0], [-1.0, 0.0]])  # a quarter turn
        >>> Procrustes().fit(source, target).W_.round(6) + 0.0
        array([[ 0.,  1.],
               [-1.,  0.]])
    """

    name = "procrustes"

    def __init__(self, completion: Literal["identity", "lapack"] = "identity"):
        self.completion = completion

    def check(self) -> None:
        one_of(self.completion, f"completion of {self.name}", ("identity", "lapack"))

    def _learn(self, source: Rows, target: Rows) -> None:
        n, d = source.shape
        product = np.zeros((d, d))
        squares = np.zeros(2)
        for a, b in zip(as_blocks(source), as_blocks(target), strict=True):
            product += a.T @ b
            squares += np.square(a).sum(), np.square(b).sum()
        norms = float(np.sqrt(squares).prod())
        u, values, vt = np.linalg.svd(product)
        self.rank_ = r = int((values > max(n, d) * np.finfo(np.float64).eps * norms).sum())
        completed = "completed as LAPACK happens to"
        if self.completion == "identity":
            u[:, r:] = u[:, r:] @ nearest_orthogonal(u[:, r:].T @ vt[r:].T)
            completed = "completed nearest to the identity"
        self.W_ = u @ vt
        self._warn_of_rank("pairs", d, completed)


@register
class Ridge(PairedTransform):
    """Map rows of one set to their pairs in another by ridge regression: w ↦ μ_t + (w − μ_s) W.

    W minimizes ‖XW − Y‖² + λ‖W‖², where X and Y are the centered source and target rows, aligned, and μ_s and μ_t their
    means: W = (XᵀX + λI)⁻¹ XᵀY. λ is `alpha` times the mean squared length of the columns of X, so `alpha` does not
    depend on the scale of the rows. With few pairs, `least_squares` fits their noise; an alpha from 0.01 to 1 usually
    gives better maps of new rows. With `rank`, W is projected onto that many principal axes of the fitted rows
    (reduced-rank ridge regression, Mukherjee & Zhu 2011).

    Args:
        alpha: Relative strength of the penalty, above 0.
        rank: Rank r of W; None for full rank.

    Attributes:
        W_: (d, e) the matrix W.
        source_mean_, target_mean_: (d,) the mean μ_s and (e,) the mean μ_t.
        rank_: Rank of W.

    Example:
        >>> import numpy as np
        >>> from clip_geometry.transforms import Ridge
        >>> source = np.random.default_rng(0).normal(size=(50, 3))
        >>> target = source @ np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]]) + 5
        >>> bool(np.allclose(Ridge(1e-9).fit(source, target).transform(source), target))
        True
    """

    name = "ridge"
    source_mean_: np.ndarray
    target_mean_: np.ndarray
    one_space = False

    def __init__(self, alpha: float = 0.1, rank: int | None = None):
        self.alpha = alpha
        self.rank = rank

    def check(self) -> None:
        positive_number(self.alpha, f"alpha of {self.name}")
        if self.rank is not None:
            whole_number(self.rank, f"rank of {self.name}")

    def _learn(self, source: Rows, target: Rows) -> None:
        (n, d), e = source.shape, target.shape[1]
        full_rank = min(n - 1, d, e)
        if self.rank is not None and self.rank > full_rank:
            raise InputError(
                f"rank of {self.name} = {self.rank}; expected at most {full_rank} for {n} pairs of {d} and {e} "
                "dimensions"
            )
        self.source_mean_, self.target_mean_ = mean_of(source), mean_of(target)
        squares, product = np.zeros((d, d)), np.zeros((d, e))
        for a, b in zip(as_blocks(source), as_blocks(target), strict=True):
            a = a - self.source_mean_
            squares += a.T @ a
            product += a.T @ (b - self.target_mean_)
        values, axes = np.linalg.eigh(squares)
        values = np.maximum(values, 0)
        penalized = values + float(self.alpha) * (values.mean() or 1.0)
        self.W_ = axes @ ((axes.T @ product) / penalized[:, None])
        if self.rank is not None:  # the principal axes of the fitted rows, in the norm that includes the ridge
            _, _, principal = np.linalg.svd(np.sqrt(penalized)[:, None] * (axes.T @ self.W_), full_matrices=False)
            self.W_ = self.W_ @ principal[: self.rank].T @ principal[: self.rank]
        self.rank_ = full_rank if self.rank is None else int(self.rank)

    def _affine(self) -> tuple[Any, Any, Any]:
        return self.source_mean_, self.W_, self.target_mean_


def nearest_orthogonal(matrix: np.ndarray) -> np.ndarray:
    """Return the polar factor of a square matrix: the orthogonal Q with the largest tr(Qᵀ matrix)."""
    u, _, vt = np.linalg.svd(matrix)
    return u @ vt
