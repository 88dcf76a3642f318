"""Harmony: soft clusters that hold all modalities, and a ridge correction of each modality within them."""

import math
import warnings
from dataclasses import dataclass

import numpy as np

from clip_geometry.geometry._core.arguments import SEEDS, positive_number, real_number, whole_number
from clip_geometry.registry import InputError
from clip_geometry.transforms.base import Rows, register
from clip_geometry.transforms.elementary import Normalize
from clip_geometry.transforms.sets import JointTransform, in_memory

# of the reference implementation
ROUNDS, BLOCKS, WINDOW = 20, 20, 3
CLUSTERED, HARMONIZED = 1e-5, 1e-4


@register
class Harmony(JointTransform):
    """Cluster all modalities together, then remove from each its own offset in each cluster (Korsunsky et al. 2019).

    Unit rows u have soft clusters R_k ∝ exp(−2(1 − ⟨u, y_k⟩)/sigma) ((E + 1)/(O + 1))^theta, where O and E are the
    observed and the expected weight of the row's modality in cluster k, so that clusters with too much of a modality
    become less likely for it. In each cluster a ridge regression on the modality gives its offset c_mk, and

        w ↦ w − Σ_k R_k c_mk.

    Clusters and offsets alternate until the objective decreases by less than 1e-4. Not affine. The fitting sets have
    to be in memory. Initial clusters are scikit-learn's KMeans with ten starts, as in harmonypy, whose rows
    `harmonize` gives. `transform` repeats the rounds with what they learned, so that the result of a row depends on no
    other row; clusters that were updated block by block make it differ slightly from `harmonize` on the fitting rows.

    Args:
        k: Number of clusters; none is a thirtieth of the rows, at most 100.
        theta: Strength of mixing; 0 leaves clusters as they are.
        sigma: Softness of clusters.
        ridge: Penalty of the offsets, in rows.
        rounds: The largest number of corrections.
        seed: Of the clusters and of the order of updates.

    Attributes:
        centroids_: (rounds, k, d) y.
        penalties_: (rounds, k, sets) ((E + 1)/(O + 1))^theta.
        offsets_: (rounds, k, sets, d) c.

    Raises:
        InputError: A row is zero, a modality has fewer than two, or there are fewer rows than clusters.

    Example:
        >>> import numpy as np
        >>> from clip_geometry import Harmony
        >>> rng = np.random.default_rng(0)
        >>> image, text = rng.normal(size=(2, 60, 8)) + 4 * np.eye(8)[:2, None]
        >>> moved = [each.transform(x) for each, x in zip(Harmony(k=2).fit_sets([image, text]), [image, text])]
        >>> [round(float(np.linalg.norm(a.mean(0) - b.mean(0))), 1) for a, b in ([image, text], moved)]
        [5.6, 1.1]
    """

    name = "harmony"
    summary = "removes the offset of each modality in soft clusters that all modalities share"
    formula = "w − Σ_k R_k(w) c_mk"
    centroids_: np.ndarray
    penalties_: np.ndarray
    offsets_: np.ndarray

    def __init__(
        self,
        k: int | None = None,
        theta: float = 2.0,
        sigma: float = 0.1,
        ridge: float = 1.0,
        rounds: int = 10,
        seed: int = 0,
    ):
        self.k = k
        self.theta = theta
        self.sigma = sigma
        self.ridge = ridge
        self.rounds = rounds
        self.seed = seed

    def check(self) -> None:
        if self.k is not None:
            whole_number(self.k, f"k of {self.name}")
        for key in ("sigma", "ridge"):
            positive_number(getattr(self, key), f"{key} of {self.name}")
        real_number(self.theta, f"theta of {self.name}", lambda x: 0 <= x < math.inf, "a finite number, 0 or more")
        whole_number(self.rounds, f"rounds of {self.name}")
        whole_number(self.seed, f"seed of {self.name}", least=0, most=SEEDS)

    def _learn(self, *sets: Rows) -> None:
        found = self.harmonize(*(in_memory(self, x) for x in sets))
        self.centroids_, self.penalties_, self.offsets_ = found.centroids, found.penalties, found.offsets

    def harmonize(self, *sets: np.ndarray) -> "Harmonized":
        """Return what is learned of the sets, and their rows, stacked, as the reference implementation gives them."""
        x = np.concatenate(sets)
        of = np.repeat(np.eye(len(sets)), [len(each) for each in sets], axis=0)  # (n, sets)
        k = int(self.k or max(1, min(round(len(x) / 30), 100)))
        if len(x) < k:
            raise InputError(f"{self.name}(k={k}) needs {k} rows, but there are {len(x)}")
        unit = Normalize().apply(x)
        random = np.random.RandomState(int(self.seed))
        state = _Clusters(unit, of, self._centers(unit, k), float(self.theta), float(self.sigma))
        objective, moved, learned = state.objective(unit), x, []
        # in each cluster a regression on the modalities and an intercept, whose coefficients of the modalities are
        # the offsets, (k, sets, d)
        design = np.concatenate([np.ones((len(x), 1)), of], axis=1)
        penalty = np.diag([0.0] + [float(self.ridge)] * len(sets))
        for _ in range(int(self.rounds)):
            state.cluster(unit, random)
            weighted = (state.r.T[:, :, None] * design).transpose(0, 2, 1)  # (k, 1 + sets, n)
            offsets = np.linalg.solve(weighted @ design + penalty, weighted @ x)[:, 1:]
            learned.append((state.centroids, state.penalty(), offsets))
            moved = x - np.einsum("nk,nm,kmd->nd", state.r, of, offsets, optimize=True)
            unit = Normalize().apply(moved)
            before, objective = objective, state.value
            if before - objective <= HARMONIZED * abs(before):
                break
        centroids, penalties, offsets = (np.stack(each) for each in zip(*learned, strict=True))
        return Harmonized(moved, centroids, penalties, offsets)

    def _centers(self, unit: np.ndarray, k: int) -> np.ndarray:
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than clusters: some stay empty
            found = KMeans(k, n_init=10, max_iter=25, random_state=int(self.seed)).fit(unit)  # pyright: ignore
        return np.asarray(found.cluster_centers_)

    def _map(self, x: np.ndarray) -> np.ndarray:
        unit, moved = Normalize().apply(x), x
        for centroids, penalties, offsets in zip(self.centroids_, self.penalties_, self.offsets_, strict=True):
            r = _assign(unit, centroids, float(self.sigma)) * penalties[:, self.set_]
            moved = x - (r / r.sum(1, keepdims=True)) @ offsets[:, self.set_]
            unit = Normalize().apply(moved)
        return moved


@dataclass(frozen=True, eq=False)
class Harmonized:
    """rows: (n, d) corrected; centroids, penalties and offsets: as in `Harmony`."""

    rows: np.ndarray
    centroids: np.ndarray
    penalties: np.ndarray
    offsets: np.ndarray


class _Clusters:
    """Soft clusters of the rows of all sets: r (n, k), their observed and expected weights (k, sets)."""

    def __init__(self, unit: np.ndarray, of: np.ndarray, centroids: np.ndarray, theta: float, sigma: float):
        self.of, self.share, self.theta, self.sigma = of, of.mean(0), theta, sigma
        self.centroids = Normalize().apply(centroids)
        self.r = _assign(unit, self.centroids, sigma)
        self.r /= self.r.sum(1, keepdims=True)
        self.expected, self.observed = np.outer(self.r.sum(0), self.share), self.r.T @ of

    def penalty(self) -> np.ndarray:
        return ((self.expected + 1) / (self.observed + 1)) ** self.theta

    def cluster(self, unit: np.ndarray, random: np.random.RandomState) -> None:
        """Alternate centroids and weights until the objective settles; its last value is `value`."""
        values = []
        for _ in range(ROUNDS):
            self.centroids = Normalize().apply(self.r.T @ unit)
            weights, order = _assign(unit, self.centroids, self.sigma), np.arange(len(unit))
            random.shuffle(order)
            for rows in np.array_split(order, BLOCKS):
                self._count(rows, -1)
                self.r[rows] = weights[rows] * (self.of[rows] @ self.penalty().T)
                self.r[rows] /= self.r[rows].sum(1, keepdims=True)
                self._count(rows, 1)
            values.append(self.objective(unit))
            if len(values) > WINDOW + 1:
                old, new = sum(values[-WINDOW - 1 : -1]), sum(values[-WINDOW:])
                if abs(old - new) <= CLUSTERED * abs(old):
                    break
        self.value = values[-1]

    def _count(self, rows: np.ndarray, sign: int) -> None:
        self.expected += sign * np.outer(self.r[rows].sum(0), self.share)
        self.observed += sign * self.r[rows].T @ self.of[rows]

    def objective(self, unit: np.ndarray) -> float:
        """The distance to the centroids, less the entropy of clusters, plus what clusters tell of the modality."""
        from scipy.special import xlogy

        penalty = self.theta * np.log((self.observed + 1) / (self.expected + 1))
        distances = 2 * (1 - unit @ self.centroids.T)
        entropies = xlogy(self.r, self.r).sum() + (self.observed * penalty).sum()
        return float((self.r * distances).sum() + self.sigma * entropies)


def _assign(unit: np.ndarray, centroids: np.ndarray, sigma: float) -> np.ndarray:
    """exp(−‖u − y‖²/sigma), (n, k), relative to the nearest centroid."""
    distances = 2 * (1 - unit @ centroids.T)
    return np.exp(-(distances - distances.min(1, keepdims=True)) / sigma)
