"""The config, and measures and records of a layer: cosines, clusters and intrinsic dimensions (Cai et al. 2021)."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from clip_geometry.geometry import average_cosine, inter_type_cosine, intra_type_cosine, isoscore, silhouette
from clip_geometry.geometry.cosine import skipped_types
from clip_geometry.geometry.dimension import Estimator, NeighborMetric, different, inverse_dimensions, slope_on_ratios
from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.geometry.statistics import Neighbors
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry.rows.matrix import Labels, as_codes, mean_row
from clip_geometry_experiments.kit.base import Model, RunConfig, Source, distinct
from clip_geometry_experiments.kit.stored import check_sources
from clip_geometry_experiments.kit.word_vectors import WordsConfig


class ContextualConfig(RunConfig):
    """Config of the experiment `contextual`.

    Args:
        model: hidden-states:…, or words:PATH for the vectors of all words in a file; null for stored embeddings.
        data: A corpus; null for words:PATH.
        layers: Layers to measure, where 0 is the embeddings before the first block; empty if rows have no layers.
        fold_case: Whether to count "The" and "the" as one type, for models that do not distinguish them.
        limit: Use only the first N sentences (or words of the file); null uses all.
        batch_size: Batch size of the encoder.
        sample: Number of random rows on which k is chosen and among which neighbors are searched, at least 3; null uses
            all rows (exact).
        probes: Number of rows whose neighbors are also searched among all rows, if there are more rows than `sample`; 0
            for none.
        neighbours: Number of neighbors K of the local intrinsic dimension, at least 2.
        most_clusters: Largest k to try, at least 2.
        least_silhouette: Minimum silhouette for more than one cluster; if the best silhouette is lower, k = 1.
        starts: Number of runs of each k-means on the sample.
    """

    model: Model | None = None
    data: Source | None = None
    layers: Annotated[tuple[Annotated[int, Field(ge=0)], ...], distinct("layers")] = ()
    fold_case: bool = False
    limit: int | None = Field(default=None, ge=2)
    batch_size: int = Field(default=64, ge=1)
    sample: int | None = Field(default=20_000, ge=3)
    probes: int = Field(default=2000, ge=0)
    neighbours: int = Field(default=100, ge=2)
    most_clusters: int = Field(default=15, ge=2)
    least_silhouette: float = Field(default=0.1, ge=-1, le=1)
    starts: int = Field(default=3, ge=1)

    @model_validator(mode="after")
    def _known_source(self) -> Self:
        """Check that model, data, layers and probes fit together."""
        if isinstance(self.model, WordsConfig):  # the vectors of a vocabulary
            if self.data is not None or self.layers:
                raise InputError("words:PATH uses all words of its file; leave data and layers out")
            return self
        if self.data is None:
            raise InputError("data is missing; expected a corpus, or model: words:PATH for the words of a file")
        check_sources(self.model, data=self.data)
        if self.model is not None and not self.layers:
            raise InputError("layers is missing; expected a list such as [0, 1, 2], 0 being the embeddings")
        if self.probes == 1:
            raise InputError("probes = 1 has no standard error; expected 0 for none, or at least 2")
        return self

    @property
    def places(self) -> tuple[int | None, ...]:
        """The layers, or (None,) for rows without layers."""
        return self.layers or (None,)


def sampled(n: int, size: int | None, seed: int) -> np.ndarray:
    """Return sorted indices of `size` rows drawn at random from n; of all rows if size is None or at least n."""
    if size is None or size >= n:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, size, replace=False))


ROUNDING = 1e-12  # relative to the mean: the rounding left by subtracting it from a row equal to it


class AdjustedCosines(NamedTuple):
    """Adjusted cosines of the clusters.

    `inter` and `intra` hold one value per cluster, NaN if it has none (because of a single type, or no type with two
    rows). `left_out` counts the rows equal to the mean of their
    cluster, which have no direction once it is subtracted.
    """

    inter: NDArray[np.float64]
    intra: NDArray[np.float64]
    left_out: int

    def mean(self, which: str) -> float:
        """Return the mean of "inter" or "intra" over the clusters that have a value.

        Each cluster counts once, as in the authors' code. Raises InputError if no cluster has a value.
        """
        values = getattr(self, which)
        known = ~np.isnan(values)
        if not known.any():
            needed = "rows of two types" if which == "inter" else "two rows of one type"
            raise InputError(f"none of the {len(values)} clusters has {needed} once its mean is subtracted")
        return float(values[known].mean())


def adjusted_type_cosines(x: np.ndarray, types: Labels, clusters: np.ndarray) -> AdjustedCosines:
    """Compute inter_type_cosine and intra_type_cosine, exactly, within each cluster after subtracting its mean.

    In each cluster c with mean μ_c, the rows w − μ_c are compared, and a type consists of its rows in c. With one
    cluster, the values are those of centered rows. Takes time O(nd). Source: Cai et al. 2021, section 4.

    Args:
        x: Rows, (n, d), n ≥ 2.
        types: Type of each row, (n,).
        clusters: Cluster of each row, (n,).

    Returns:
        The cosines of the clusters, ordered by first appearance.

    Raises:
        InputError: If the rows are unusable.
    """
    codes, _ = as_codes(types, len(x), name="types")
    inter, intra = [], []
    left_out = 0
    for cluster in dict.fromkeys(clusters.tolist()):
        members = np.flatnonzero(clusters == cluster)
        rows = torch.from_numpy(x[members])
        mean = mean_row(rows)
        shifted = rows.double() - mean
        has_direction = shifted.abs().amax(1) > ROUNDING * mean.abs().amax()  # a row equal to the mean has none
        shifted = shifted[has_direction]
        own_types = codes[members][has_direction]
        several = len(own_types.unique()) > 1
        inter.append(float(inter_type_cosine(shifted, own_types)) if several else np.nan)
        if len(own_types) < 2 or int(own_types.bincount().max()) < 2:
            intra.append(np.nan)
        else:  # for a single type, this is the average cosine
            intra.append(float(intra_type_cosine(shifted, own_types) if several else average_cosine(shifted)))
        left_out += len(members) - len(shifted)
    return AdjustedCosines(np.array(inter), np.array(intra), left_out)


DISCARD = 0.1  # share of the ratios of two_nn to discard, the largest ones


class DimensionEstimate(NamedTuple):
    value: float
    standard_error: float


class Neighborhoods(NamedTuple):
    """Neighborhoods of m query rows: `logs` holds log(r_k/r_j) for j = 1 … k, (m, k), and `among` is the number of
    distinct rows that were searched."""

    logs: Tensor
    among: int

    def dimension(self, estimator: Estimator) -> DimensionEstimate:
        """Return local_intrinsic_dimension of these rows by this estimator, and its standard error.

        The standard error is that of a mean over m independent rows (for "mackay", the inverse of a mean, by the delta
        method). It covers the choice of the query rows, but not the choice of the rows that are searched. Raises
        InputError if the neighbors are all equally far.
        """
        inverses = inverse_dimensions(self.logs, estimator)
        m, mean = len(inverses), inverses.mean()
        if (mean if estimator == "mackay" else inverses.amin()) == 0:
            row = "every row" if estimator == "mackay" else "some row"
            raise InputError(f"the nearest rows of {row} are equally far from it, so the dimension is unbounded")
        if estimator == "mackay":
            return DimensionEstimate(float(1 / mean), float(inverses.std() / mean.square() / m**0.5))
        return DimensionEstimate(float((1 / inverses).mean()), float((1 / inverses).std() / m**0.5))

    def two_nn(self) -> float:
        """Return `two_nn` of these rows among all, from the two nearest of each. Raises InputError as it does."""
        logs = (self.logs[:, 0] - self.logs[:, 1]).sort().values
        used = min(int(len(logs) * (1 - DISCARD)), len(logs) - 1)
        if used < 1 or logs[used - 1] == 0:
            raise InputError("the two nearest rows are equally far from every row that is kept, or no row is kept")
        return float(slope_on_ratios(logs[:used], len(logs)))


def neighborhoods(
    x: np.ndarray | Tensor, *, k: int = 100, metric: NeighborMetric = "euclidean", of: int | None = None, seed: int = 0
) -> Neighborhoods:
    """Find the neighborhoods of `of` random rows (None: of all rows) among all rows of x.

    With all rows, `dimension` equals local_intrinsic_dimension, which documents k and metric and also drops duplicates.
    The search is exact and blockwise, and takes time O(of · n · d).

    Args:
        x: Rows, (n, d), with at least k + 1 distinct rows.
        k: Number of neighbors, at least 2.
        metric: "euclidean" or "cosine"; cosine needs d ≥ 2.
        of: Number of random query rows; None uses all rows.
        seed: Seed of the query rows.

    Raises:
        InputError: If x has fewer distinct rows, or k or d is too small.
    """
    neighbors = Neighbors(torch.as_tensor(x))
    k = neighbors.checked(k, least_d=2 if metric == "cosine" else 1, least_k=2)
    rows = different(neighbors, metric, least=k + 1).rows
    if of is None or of >= len(rows):
        distances, _ = nearest(rows, k)
    else:
        chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:of].sort().values
        distances, _ = nearest(rows[chosen], k + 1, y=rows)
        distances = distances[:, 1:]  # drop the row itself, the only one at distance 0
    return Neighborhoods((distances[:, -1:] / distances).log(), len(rows))


# --- records

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
    """Yield the records of clusters and adjusted cosines."""
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
