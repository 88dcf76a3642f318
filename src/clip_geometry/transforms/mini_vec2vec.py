"""The linear map between the spaces of two models, fitted on rows of different items: mini_vec2vec."""

import warnings

import numpy as np

from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import SEEDS, whole_number
from clip_geometry.rows.matrix import BLOCK
from clip_geometry.transforms.base import RankWarning, Rows, register
from clip_geometry.transforms.sets import CenteredTransform, in_memory


@register
class MiniVec2Vec(CenteredTransform):
    """Turn one model's space onto another's without any pair, by mini-vec2vec (Dar 2025, arXiv:2510.02348).

    Rows are centered and made unit length. k-means anchors of both sets are matched by a quadratic assignment of their
    centered products, in several runs; the cosines of a row to all anchors describe it alike in both spaces. Each
    source row is paired with the mean of the target rows of most similar description, and Procrustes gives W. Two
    refinements follow, each of which averages W with a new one: on sampled source rows and the mean of the target rows
    nearest to them, and on k-means centers of the source and those that k-means of the target finds from them.

    The authors' map is of centered unit rows, unit(w − μ_s) W. This one returns them to the target's place by its mean
    and mean length, so that it is affine: (w − μ_s) s W + μ_t. It takes tens of thousands of rows of each set: the two
    have to have clusters in common, of which a few hundred rows show little.

    Args:
        anchors: Per run.
        runs: Runs of k-means and assignment, each on at most 10,000 rows of each set.
        tries: Random starts of each assignment, of which the best is kept.
        neighbors: Rows averaged into a match, at most those there are.
        steps: Of the first refinement, of 1,000 rows each.
        clusters: Of the second refinement, at most as many as rows of the smaller set; 0 for none.
        seed: Of all of this.

    Attributes:
        W_: (d, e), s W with the ratio s of the root mean square lengths about the means.
        source_mean_, target_mean_: (d,), (e,).

    Example:
        >>> import numpy as np
        >>> from clip_geometry import MiniVec2Vec
        >>> rng = np.random.default_rng(0)
        >>> centers, turn = rng.normal(size=(12, 6)) * [5, 4, 3, 2, 1, 1], np.linalg.qr(rng.normal(size=(6, 6)))[0]
        >>> draw = lambda: centers[rng.integers(12, size=400)] + 0.3 * rng.normal(size=(400, 6))
        >>> fitted = MiniVec2Vec(anchors=12, runs=3, tries=10, neighbors=20, steps=10, clusters=12)
        >>> fitted = fitted.fit(draw(), draw() @ turn)  # different rows
        >>> bool(np.abs(fitted.W_ - turn).max() < 0.1)
        True
    """

    name = "mini_vec2vec"
    one_space = False

    def __init__(
        self,
        anchors: int = 20,
        runs: int = 30,
        tries: int = 30,
        neighbors: int = 50,
        steps: int = 100,
        clusters: int = 500,
        seed: int = 0,
    ):
        self.anchors = anchors
        self.runs = runs
        self.tries = tries
        self.neighbors = neighbors
        self.steps = steps
        self.clusters = clusters
        self.seed = seed

    def check(self) -> None:
        for name in ("runs", "tries", "neighbors"):
            whole_number(getattr(self, name), f"{name} of {self.name}")
        whole_number(self.anchors, f"anchors of {self.name}", least=2)
        whole_number(self.steps, f"steps of {self.name}", least=0)
        whole_number(self.clusters, f"clusters of {self.name}", least=0)
        whole_number(self.seed, f"seed of {self.name}", least=0, most=SEEDS)

    def _learn(self, source: Rows, target: Rows) -> None:
        x, y = in_memory(self, source), in_memory(self, target)
        for name, rows in (("source", x), ("target", y)):
            if len(rows) <= self.anchors:
                raise InputError(
                    f"{self.name} takes {self.anchors} anchors of each set, but the {name} has {len(rows)} rows; it "
                    "needs many more rows than anchors"
                )
        self.source_mean_, self.target_mean_ = x.mean(0), y.mean(0)
        x, y = x - self.source_mean_, y - self.target_mean_
        lengths = [np.sqrt(np.square(rows).sum(1).mean()) for rows in (x, y)]
        if not all(lengths):
            raise InputError(f"{self.name} matches the clusters of two sets, but all rows of one set are equal")
        x, y = unit_or_zero(x), unit_or_zero(y)
        rng = np.random.default_rng(int(self.seed))
        matched = [self._matched_anchors(x, y, rng) for _ in range(self.runs)]
        first, second = (np.concatenate([each[which] for each in matched]) for which in (0, 1))
        x_described, y_described = (unit_or_zero(a @ unit_or_zero(b).T) for a, b in ((x, first), (y, second)))
        turn, rank = rotation(x, self._matches(x_described, y_described, y))
        if rank < (full := min(turn.shape)):
            warnings.warn(
                f"{self.name} was fitted on rows of rank {rank} in dimension {full}, which leave part of the map free; "
                "that part is zero",
                RankWarning,
                stacklevel=3,
            )
        for _ in range(self.steps):
            some = x[rng.permutation(len(x))[:1000]]
            turn = (turn + rotation(some, self._matches(unit_or_zero(some @ turn), y, y))[0]) / 2
        if clusters := min(int(self.clusters), len(x), len(y)):
            centers = k_means(x, clusters, rng)
            turn = (turn + rotation(centers, k_means(y, clusters, rng, start=centers @ turn))[0]) / 2
        self.W_ = lengths[1] / lengths[0] * turn

    def _matched_anchors(self, x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return k-means centers of a sample of each set, in the order in which they are matched."""
        from scipy.optimize import quadratic_assignment

        centers = [k_means(rows[rng.permutation(len(rows))[:10_000]], int(self.anchors), rng) for rows in (x, y)]
        kernels = [(each - each.mean(0)) @ (each - each.mean(0)).T for each in centers]
        options = {"maximize": True, "rng": rng}
        first, second = kernels
        found = [quadratic_assignment(first, second, method="2opt", options=options) for _ in range(self.tries)]
        return centers[0], centers[1][max(found, key=lambda each: each.fun).col_ind]

    def _matches(self, queries: np.ndarray, rows: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return for each query the mean of the target rows whose unit `rows` are nearest to it."""
        k, found = min(int(self.neighbors), len(y)), []
        for start in range(0, len(queries), BLOCK):
            products = queries[start : start + BLOCK] @ rows.T
            near = np.argpartition(-products, k - 1, axis=1)[:, :k]
            found.append(y[near].mean(1))
        return np.concatenate(found)


def rotation(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the W, (d, e), that minimizes ‖x W − y‖ with orthonormal rows or columns, and the rank r of xᵀy.

    Directions that the rows leave free, where r is below d and e, are mapped to zero: W has r singular values of 1.
    """
    u, values, vt = np.linalg.svd(x.T @ y, full_matrices=False)
    noise = max(x.shape) * np.finfo(np.float64).eps * np.linalg.norm(x) * np.linalg.norm(y)
    rank = int((values > noise).sum())
    return u[:, :rank] @ vt[:rank], rank


def k_means(x: np.ndarray, k: int, rng: np.random.Generator, start: np.ndarray | None = None) -> np.ndarray:
    """Return k cluster centers, (k, d), from a start drawn by k-means++ or from the one given."""
    from sklearn.cluster import KMeans

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer different rows than clusters: centers repeat, and match each other
        found = KMeans(
            k,
            init="k-means++" if start is None else start,  # pyright: ignore[reportArgumentType]
            n_init=1,  # pyright: ignore[reportArgumentType]
            random_state=int(rng.integers(SEEDS)),
        ).fit(x)
    return found.cluster_centers_


def unit_or_zero(x: np.ndarray) -> np.ndarray:
    """Return rows of unit length; a row at the mean, which has no direction, stays zero."""
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(lengths > 0, lengths, 1)
