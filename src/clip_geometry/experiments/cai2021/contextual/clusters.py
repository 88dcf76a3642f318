"""k-means with k by the best silhouette, and k = 1 where no k is good enough (Cai et al. 2021)."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from clip_geometry.experiments.cai2021.contextual.config import ContextualConfig
from clip_geometry.geometry.silhouettes import silhouettes
from clip_geometry.registry import InputError


@dataclass(frozen=True)
class Clusters:
    """k, the cluster of each row, and the silhouette of every k that was tried, on `sample` rows.

    method: how all rows were clustered, in words.
    """

    k: int
    labels: np.ndarray
    silhouettes: dict[int, float]
    sample: int
    method: str

    @property
    def best(self) -> int:
        """The k of the highest silhouette, whether it is good enough or not; of equal ones the smallest."""
        return max(self.silhouettes, key=lambda k: self.silhouettes[k])


@dataclass(frozen=True)
class Candidate:
    k: int
    labels: np.ndarray
    centres: np.ndarray


def find_clusters(x: np.ndarray, sample: np.ndarray, config: ContextualConfig) -> Clusters:
    """x: (n, d) rows; sample: indices of those on which k is chosen; all rows are then clustered from its centres.

    Euclidean, as in the paper. Raises InputError where the sample has fewer than three different rows.
    """
    seed = config.seed % 2**32
    candidates = list(_candidates(x[sample], config, seed))
    if not candidates:
        raise InputError(f"{len(sample)} rows are too few or too equal to be clustered; expected three different ones")
    found = silhouettes(torch.from_numpy(x[sample]), [each.labels for each in candidates]).tolist()
    values = {each.k: value for each, value in zip(candidates, found, strict=True)}
    _, chosen = max(zip(found, candidates, strict=True), key=lambda pair: pair[0])
    if max(found) < config.least_silhouette:
        return Clusters(1, np.zeros(len(x), dtype=int), values, len(sample), "one cluster")
    labels, method = _of_all(x, sample, chosen, config.mini_batch, seed)
    return Clusters(chosen.k, labels, values, len(sample), method)


def _candidates(rows: np.ndarray, config: ContextualConfig, seed: int) -> Iterator[Candidate]:
    """The best of `starts` k-means of the rows for each k from 2 on, but for those that leave a cluster empty."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    for k in range(2, min(config.most_clusters, len(rows) - 1) + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer than k different rows
            means = KMeans(k, n_init=config.starts, random_state=seed).fit(rows)  # pyright: ignore[reportArgumentType]
        labels = np.asarray(means.labels_)
        if len(np.unique(labels)) == k:
            yield Candidate(k, labels, means.cluster_centers_)


def _of_all(x: np.ndarray, sample: np.ndarray, chosen: Candidate, mini_batch: int, seed: int) -> tuple[np.ndarray, str]:
    from sklearn.cluster import KMeans, MiniBatchKMeans

    if len(sample) == len(x):
        return chosen.labels, "k-means"
    kind = KMeans if len(x) < mini_batch else MiniBatchKMeans
    start: Any = {"init": chosen.centres, "n_init": 1}
    means = kind(chosen.k, **start, random_state=seed).fit(x)
    name = "k-means" if kind is KMeans else "mini-batch k-means"
    return np.asarray(means.labels_), f"{name} from the centres of the sample"
