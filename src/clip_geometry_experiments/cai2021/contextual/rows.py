"""Records of a layer: cosines, clusters, cosines within clusters, and local intrinsic dimensions (Cai et al. 2021)."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clip_geometry.geometry import average_cosine, inter_type_cosine, intra_type_cosine, isoscore, silhouette
from clip_geometry.geometry.cosine import skipped_types
from clip_geometry.geometry.dimension import Estimator, NeighborMetric
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry_experiments.cai2021.contextual.config import ContextualConfig
from clip_geometry_experiments.cai2021.contextual.measures import Neighborhoods, adjusted_type_cosines, neighborhoods

NO_TYPES = "the words of these rows are not known"
LIDS: dict[NeighborMetric, dict[Estimator, str]] = {  # metric → estimator → registered measure
    "euclidean": {"mackay": "lid", "cai2021": "lid[cai2021]"},
    "cosine": {"mackay": "lid[cosine]", "cai2021": "lid[cai2021-cosine]"},
}
STANDARD_K = 100  # K of the registered measures
NULL_PROBES = 1000  # neighborhoods of a Gaussian vary little


def size_rows(n: int, d: int) -> Iterator[Record]:
    """Yield the numbers of rows and columns, as Table 3 prints them."""
    yield row("contextual.million_rows", n / 1e6)
    yield row("contextual.columns", d)


def row(measure: str, value: float | None, *, at: Row | None = None, **rest: Any) -> Record:
    return Record(measure, value, **rest, at=at or {})


def tried(measure: str, compute: Callable[[], Tensor | float], **rest: Any) -> Record:
    """Return the record of a measure or, if it is undefined, a record without a value that says why."""
    try:
        return row(measure, float(compute()), **rest)
    except InputError as error:
        return row(measure, None, **rest | {"null_value": None, "note": str(error)})


def cosine_rows(x: Tensor, types: list[str] | None) -> Iterator[Record]:
    yield tried("average_cosine", partial(average_cosine, x), null_value=0.0)
    yield tried("isoscore", partial(isoscore, x))
    if types is None:
        yield from (row(f"{kind}_type_cosine", None, note=NO_TYPES) for kind in ("inter", "intra"))
        return
    yield tried("inter_type_cosine", partial(inter_type_cosine, x, types), null_value=0.0)
    skipped = skipped_types(x, types)
    yield tried("intra_type_cosine", partial(intra_type_cosine, x, types), null_value=0.0, note=skipped)


# --- clusters


@dataclass(frozen=True)
class Clusters:
    """A clustering.

    Args:
        k: Number of clusters.
        labels: Cluster of each row, (n,).
        silhouettes: Mapping from every k that was tried to its silhouette.
        sample: Number of rows on which k was chosen.
        method: How all rows were clustered, for the note of a record.
    """

    k: int
    labels: np.ndarray
    silhouettes: dict[int, float]
    sample: int
    method: str

    @property
    def best(self) -> int:
        """The k with the highest silhouette, even if that is below the minimum; the smallest k in a tie."""
        return max(self.silhouettes, key=lambda k: self.silhouettes[k])


def find_clusters(x: np.ndarray, sample: np.ndarray, config: ContextualConfig) -> Clusters:
    """Cluster rows by Euclidean k-means, as in the paper, with the k of the best silhouette.

    k is chosen on a sample, with the best of `starts` runs for each k, and all rows are clustered from its centers. k
    is 1 if the best silhouette is below `least_silhouette`.

    Args:
        x: Rows, (n, d).
        sample: Indices of the rows on which k is chosen.
        config: Config with the largest k, the number of starts, the minimum silhouette and the seed.

    Raises:
        InputError: If the sample has fewer than three distinct rows.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    seed = config.seed % 2**32
    rows = x[sample]
    best = None
    silhouettes = {}
    for k in range(2, min(config.most_clusters, len(rows) - 1) + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer than k distinct rows
            means = KMeans(k, n_init=config.starts, random_state=seed).fit(rows)  # pyright: ignore[reportArgumentType]
        labels = np.asarray(means.labels_)
        if len(np.unique(labels)) < k:
            continue  # a cluster is empty
        silhouettes[k] = silhouette(rows, labels)
        if max(silhouettes, key=silhouettes.__getitem__) == k:
            best = means
    if best is None:
        raise InputError(
            f"{len(sample)} rows are too few or too equal to be clustered; expected at least three different ones"
        )
    k = len(best.cluster_centers_)
    if silhouettes[k] < config.least_silhouette:
        return Clusters(1, np.zeros(len(x), dtype=int), silhouettes, len(sample), "one cluster")
    if len(sample) == len(x):
        return Clusters(k, np.asarray(best.labels_), silhouettes, len(sample), "k-means")
    start: Any = {"init": best.cluster_centers_, "n_init": 1, "random_state": seed}
    labels = np.asarray(KMeans(k, **start).fit(x).labels_)
    return Clusters(k, labels, silhouettes, len(sample), "k-means from the centres of the sample")


def cluster_rows(
    x: np.ndarray, types: list[str] | None, sample: np.ndarray, config: ContextualConfig
) -> Iterator[Record]:
    """Yield the records of clusters and adjusted cosines.

    `weighted_by_rows` is the adjusted cosine with clusters weighted by their rows; the paper counts each cluster once.
    """
    try:
        clusters = find_clusters(x, sample, config)
    except InputError as error:
        yield row("contextual.clusters", None, note=str(error))
        return
    best = clusters.silhouettes[clusters.best]
    chosen = f"below {config.least_silhouette:g}: one cluster"
    note = f"best silhouette {best:.3f} at k = {clusters.best}, of {clusters.sample} rows"
    note += f", {chosen}" if clusters.k == 1 else f"; {clusters.method}"
    yield row("contextual.clusters", clusters.k, note=note, sizes=np.bincount(clusters.labels).tolist())
    values = {str(k): value for k, value in clusters.silhouettes.items()}
    yield row("contextual.silhouette", best, at={"clusters": clusters.best}, n=clusters.sample, tried=values)
    names = {kind: f"contextual.adjusted_{kind}" for kind in ("inter", "intra")}
    at = {"clusters": clusters.k}
    if types is None:
        yield from (row(name, None, at=at, note=NO_TYPES) for name in names.values())
        return
    adjusted = adjusted_type_cosines(x, types, clusters.labels)
    left_out = f"{adjusted.left_out} rows that are their cluster's mean left out" if adjusted.left_out else None
    for kind, name in names.items():
        record = tried(name, partial(adjusted.mean, kind), at=at, null_value=0.0, note=left_out)
        if record["value"] is not None:
            record |= {"weighted_by_rows": adjusted.mean(kind, weighted=True)}
        yield record


# --- dimensions


def dimension_rows(x: np.ndarray, sample: np.ndarray, config: ContextualConfig) -> Iterator[Record]:
    """Compute TwoNN and four conventions of the local intrinsic dimension (LID) of rows (n, d).

    Neighbors are searched among the sample and, if this is not all rows, also among all rows for some of them. In a
    record, n is the number of distinct rows that were searched. `at.sample` means that these are a sample of this size,
    and `at.probes` means that the neighbors of this many rows were searched. With neither, all rows were searched for
    all rows, exactly.
    """
    if len(sample) == len(x):
        yield from _dimensions(x, {}, config)
        return
    yield from _dimensions(x[sample], {"sample": len(sample)}, config)
    if config.probes:
        yield from _dimensions(x, {"probes": config.probes}, config)


def _dimensions(x: np.ndarray, chosen: dict[str, int], config: ContextualConfig) -> Iterator[Record]:
    """Yield the intrinsic dimensions by each metric and estimator, with those of Gaussian rows as null values."""
    k, probes = config.neighbours, chosen.get("probes")
    n = len(x)
    at = chosen if k == STANDARD_K else {"neighbours": k, **chosen}
    for metric, names in LIDS.items():
        try:
            neighbors = neighborhoods(x, k=k, metric=metric, of=probes, seed=config.seed)
        except InputError as error:
            yield from (row(name, None, n=n, d=x.shape[1], at=at, note=str(error)) for name in names.values())
            continue
        copies = "copies" if metric == "euclidean" else "copies in direction"
        note = f"{n - neighbors.among} of {n} rows are {copies} and left out" if neighbors.among < n else None
        shared: dict[str, Any] = {"n": neighbors.among, "d": x.shape[1], "at": at, "note": note}
        null = _of_gaussian(*x.shape, k, metric, config.seed)
        if metric == "euclidean" and probes is None:
            yield tried("two_nn", neighbors.two_nn, **shared, null_value=null.two_nn())
        for estimator, name in names.items():
            try:
                value, error = neighbors.dimension(estimator)
            except InputError as reason:
                yield row(name, None, **{**shared, "note": str(reason)})
                continue
            expected = null.dimension(estimator).value
            yield row(name, value, **shared, standard_error=error, null_value=expected)


@cache
def _of_gaussian(n: int, d: int, k: int, metric: NeighborMetric, seed: int) -> Neighborhoods:
    """Return the neighborhoods of isotropic Gaussian rows with the same n and d, for the null value."""
    rows = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    return neighborhoods(rows, k=k, metric=metric, of=NULL_PROBES, seed=seed)
