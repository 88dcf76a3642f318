"""Silhouette (Rousseeuw 1987): are the rows closer to their own class than to the nearest other class?"""

from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.distances.by_class import sums_by_class
from clip_geometry.geometry.kinds import Value, arrays_in_kind, in_kind
from clip_geometry.geometry.measure import Measure, add_measure, measures, variant
from clip_geometry.geometry.statistics.class_distances import (
    ClassDistances,
    MeanDistances,
    ModalityDistances,
    as_classes,
    distances_of_means,
)
from clip_geometry.rows.arguments import Integer, Literal, one_of, seed_number, whole_number
from clip_geometry.rows.matrix import Labels, Rows, as_matrix

Metric: TypeAlias = Literal["euclidean", "sqeuclidean", "cosine", "precomputed"]
METRICS = ("euclidean", "sqeuclidean", "cosine", "precomputed")
ROWS = 4096


@in_kind
def silhouette(
    x: Rows | ClassDistances, labels: Labels | None = None, *, metric: Metric = "euclidean"
) -> Float[Tensor, ""]:
    """Return the mean silhouette of the rows: how well labeled classes are separated.

    The mean lies in [−1, 1]; higher means tighter, better separated classes. `silhouette_samples` has the formula of
    one row. The function equals scikit-learn's silhouette_score without its option sample_size, which returns the
    silhouette of a random subset; `sampled_silhouette` instead estimates that of all rows.

    Args:
        x: Rows, (n, d), n ≥ 3; or a precomputed `ClassDistances` in place of both arguments.
        labels: One label per row, (n,), with at least two and at most n − 1 different values.
        metric: "euclidean", "sqeuclidean", "cosine" or "precomputed", as in `silhouette_samples`.

    Returns:
        The mean as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: The labels do not match the rows, or the metric is cosine and a row is zero.

    Example:
        >>> import clip_geometry as cg
        >>> round(cg.geometry.silhouette([[0.0], [1.0], [5.0], [6.0]], ["a", "a", "b", "b"]), 3)
        0.798
    """
    metric = one_of(metric, "metric", METRICS)
    return ClassDistances.of(x, labels).mean(of_distances, metric)


@arrays_in_kind
def silhouette_samples(x: Rows, labels: Labels, *, metric: Metric = "euclidean") -> Float[Tensor, " n"]:
    """Return the silhouette of each row: how much nearer it is to its own class than to the nearest other class.

    The silhouette is (b − a)/max(a, b). a is the mean distance of the row to the other rows of its class. b is its mean
    distance to the rows of another class, for the class with the smallest such mean. The silhouette is 0 if the row is
    the only one of its class, or if a = b = 0, as in scikit-learn. The memory needed is a copy of x and a few blocks;
    with a gradient, "euclidean" holds n² distances. Float32 rows are twice as fast as float64 rows, with an error of
    1e-6.

    Args:
        x: Rows, (n, d), n ≥ 3; for "precomputed", the distances between all rows, (n, n).
        labels: One label per row, (n,), with at least two and at most n − 1 different values.
        metric: "euclidean", "sqeuclidean", "cosine" (1 − cos) or "precomputed".

    Returns:
        The silhouettes, (n,), float64, each in [−1, 1].

    Raises:
        InputError: The labels do not match the rows, the metric is cosine and a row is zero, or the metric is
            precomputed and x is not a matrix of distances.

    Example:
        >>> import clip_geometry as cg
        >>> cg.geometry.silhouette_samples([[0.0], [1.0], [4.0]], ["a", "a", "b"]).tolist()
        [0.75, 0.6666666666666666, 0.0]
    """
    metric = one_of(metric, "metric", METRICS)
    return of_distances(ClassDistances.of(x, labels).each(metric))


def of_distances(distances: MeanDistances) -> Float[Tensor, "*n"]:
    """Return (b − a)/max(a, b) for each row; 0 for the only row of a class, and where a and b are both 0."""
    larger = torch.maximum(distances.own, distances.nearest)
    defined = ~distances.alone & (larger > 0)
    return torch.where(defined, (distances.nearest - distances.own) / torch.where(defined, larger, 1), 0)


@in_kind
def modality_silhouette(
    image: Rows | ModalityDistances, text: Rows | None = None, *, metric: Metric = "euclidean"
) -> Float[Tensor, ""]:
    """Return the mean silhouette of all rows with the modality as the class: how well the modalities are separated.

    The value lies in [−1, 1]: near 0 if the modalities are mixed, near 1 if each modality is a cluster of its own.
    `silhouette_samples` has the formula.

    Args:
        image: Rows, (n, d), n ≥ 2; or a precomputed `ModalityDistances` in place of both arguments.
        text: Rows, (m, d), m ≥ 2.
        metric: "euclidean", "sqeuclidean" or "cosine", as in `silhouette_samples`.

    Returns:
        The silhouette as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: The dimensions differ.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.geometry.modality_silhouette(image, text + 1), 3)
        0.186
    """
    return ModalityDistances.of(image, text).mean(of_distances, one_of(metric, "metric", METRICS))


class SampledSilhouette(NamedTuple):
    """Result of `sampled_silhouette`. `rows` is the number of rows that were averaged."""

    value: Value
    standard_error: Value
    rows: int


@in_kind
@torch.no_grad()
def sampled_silhouette(x: Rows, labels: Labels, *, of: Integer = ROWS, seed: Integer = 0) -> SampledSilhouette:
    """Estimate the Euclidean silhouette of all rows from a random sample of rows, each compared with all rows.

    The sample is stratified: each class contributes in proportion to its size. Because the sampled rows are compared
    with all rows, the estimate is unbiased. The standard error describes the choice of the sample (without
    replacement); it is 0 if all rows are in the sample, and says nothing about new data. The cost is O(of · n · d), in
    blocks, with at most 16 million sums in memory. `StreamedRows` are read twice, in order, if `of` is at most 8192 and
    the sums fit in that limit. Source: Cochran 1977, Sampling Techniques, chapter 5.

    Args:
        x: Rows, (n, d), n ≥ 3.
        labels: One label per row, (n,), as in `silhouette`.
        of: Number of rows in the sample, ≥ 2.
        seed: Seed of the draws.

    Returns:
        A `SampledSilhouette`: value in [−1, 1], standard_error, and rows, the number of sampled rows; float64 without
        gradient.

    Raises:
        InputError: `of` or `seed` is out of range, or the arguments are invalid for `silhouette`.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> result = cg.geometry.sampled_silhouette(x, np.arange(100) % 2, of=50)
        >>> round(result.value, 3), round(result.standard_error, 3), result.rows
        (0.012, 0.004, 50)
    """
    x = as_matrix(x, least=3)
    codes, k = as_classes(labels, x)
    of = whole_number(of, "of", least=2, of=", of rows, for a standard error")
    generator = torch.Generator().manual_seed(seed_number(seed))
    codes = codes.cpu()
    sizes = torch.bincount(codes)
    stratum = strata(sizes, min(of, len(x)))[codes]
    drawn = in_proportion(torch.bincount(stratum), min(of, len(x)))
    chosen = (random_ranks(stratum, generator) < drawn[stratum]).nonzero()[:, 0]
    chosen = chosen[codes[chosen].argsort(stable=True)]
    values = []
    for rows, sums in sums_by_class(x, chosen.to(x.device), codes.to(x.device), k):
        values.append(of_distances(distances_of_means(sums.T.cpu() / sizes, codes[rows.cpu()], sizes)))
    value, variance = _stratified(torch.cat(values), stratum[chosen], torch.bincount(stratum))
    return SampledSilhouette(value, variance.sqrt(), len(chosen))


def _stratified(
    values: Float[Tensor, " m"], stratum: Int[Tensor, " m"], sizes: Int[Tensor, " s"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the mean over all rows of the strata, and its variance under sampling without replacement."""
    drawn = torch.bincount(stratum, minlength=len(sizes)).double()
    share = sizes.double() / sizes.sum()
    means = values.new_zeros(len(sizes)).index_add(0, stratum, values) / drawn
    squares = values.new_zeros(len(sizes)).index_add(0, stratum, (values - means[stratum]).square())
    variances = squares / (drawn - 1).clamp(min=1) / drawn * (1 - drawn / sizes)
    return (share * means).sum(), (share.square() * variances).sum()


def _remark_on_sample(x: Rows, labels: Labels, **_) -> str | None:
    """Return the remark of the sampled measure."""
    n = len(as_matrix(x))
    if n <= ROWS:
        return None
    estimate = sampled_silhouette(x, labels, of=ROWS)
    error = f"standard error {estimate.standard_error:.1g}"
    return f"mean over {estimate.rows} of {n} rows, drawn from all classes (seed 0), {error}"


def random_ranks(codes: Int[Tensor, " n"], generator: torch.Generator) -> Int[Tensor, " n"]:
    """Return the rank of each row, from 0, in a random order of its class.

    The rows with the lowest m ranks are a random sample of size m.
    """
    order = torch.randperm(len(codes), generator=generator)
    order = order[codes[order].argsort(stable=True)]
    sizes = torch.bincount(codes)
    starts = (sizes.cumsum(0) - sizes)[codes[order]]
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(codes)) - starts)


def strata(sizes: Int[Tensor, " k"], of: int) -> Int[Tensor, " k"]:
    """Return the stratum of each class, numbered from 0.

    Large classes are strata of their own and small classes share one, so that a proportional sample of `of` rows has at
    least two rows in every stratum.
    """
    least = 2 * int(sizes.sum()) / of
    stratum = torch.empty_like(sizes)
    last = filled = 0  # the last stratum, and its rows so far
    for c in sizes.argsort(descending=True, stable=True).tolist():
        if filled >= least:
            last, filled = last + 1, 0
        stratum[c] = last
        filled += int(sizes[c])
    if filled < least and last > 0:  # the last classes are too small for a stratum of their own
        stratum[stratum == last] = last - 1
    return stratum


def in_proportion(sizes: Int[Tensor, " s"], of: int) -> Int[Tensor, " s"]:
    """Allocate `of` rows to strata in proportion to their sizes, rounding up the largest remainders."""
    shares = sizes.double() * of / sizes.sum()
    rows = shares.floor().long()
    by_remainder = (shares - rows).argsort(descending=True, stable=True)
    rows[by_remainder[: of - int(rows.sum())]] += 1
    return rows


for _measure in (
    Measure(name="silhouette", function=silhouette, statistic=ClassDistances),
    Measure(name="modality_silhouette", function=modality_silhouette, statistic=ModalityDistances),
):
    add_measure(_measure, *(variant(_measure, m, streams=True, options={"metric": m}) for m in METRICS[1:3]))
_SAMPLED = {"function": sampled_silhouette, "attribute": "value", "streams": True, "remark": _remark_on_sample}
add_measure(variant(measures["silhouette"], "sampled", **_SAMPLED))
