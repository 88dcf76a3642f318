"""k-means with the k of the best silhouette, or k = 1 where no k is good enough (Cai et al. 2021)."""

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
    """A clustering.

    Args:
        k: Number of clusters.
        labels: Cluster of each row.
        silhouettes: Silhouette of every k that was tried.
        sample: Rows on which k was chosen.
        method: How all rows were clustered, for the note of a row.
    """

    k: int
    labels: np.ndarray
    silhouettes: dict[int, float]
    sample: int
    method: str

    @property
    def best(self) -> int:
        """The k of the highest silhouette, good enough or not; the smallest of equals."""
        return max(self.silhouettes, key=lambda k: self.silhouettes[k])


@dataclass(frozen=True)
class Candidate:
    k: int
    labels: np.ndarray
    centres: np.ndarray


def find_clusters(x: np.ndarray, sample: np.ndarray, config: ContextualConfig) -> Clusters:
    """Choose k on a sample, then cluster all rows from the centers of the sample. Euclidean, as in the paper.

    Args:
        x: (n, d) rows.
        sample: Indices of the rows on which k is chosen.
        config: Largest k, number of starts, least silhouette, mini-batch size and seed.

    Raises:
        InputError: The sample has fewer than three different rows.
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
    if len(sample) == len(x):
        return Clusters(chosen.k, chosen.labels, values, len(sample), "k-means")
    from sklearn.cluster import KMeans, MiniBatchKMeans

    start: Any = {"init": chosen.centres, "n_init": 1, "random_state": seed}
    kind, name = (KMeans, "k-means") if len(x) < config.mini_batch else (MiniBatchKMeans, "mini-batch k-means")
    labels = np.asarray(kind(chosen.k, **start).fit(x).labels_)
    return Clusters(chosen.k, labels, values, len(sample), f"{name} from the centres of the sample")


def _candidates(rows: np.ndarray, config: ContextualConfig, seed: int) -> Iterator[Candidate]:
    """The best of `starts` runs of k-means for each k from 2 on, without those that leave a cluster empty."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    for k in range(2, min(config.most_clusters, len(rows) - 1) + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer than k different rows
            means = KMeans(k, n_init=config.starts, random_state=seed).fit(rows)  # pyright: ignore[reportArgumentType]
        labels = np.asarray(means.labels_)
        if len(np.unique(labels)) == k:
            yield Candidate(k, labels, means.cluster_centers_)
