"""Silhouette (Rousseeuw 1987): do the rows lie closer to their own class than to the nearest other one?

Squared Euclidean and cosine distances have class means in closed form, O(ndK); Euclidean ones are summed in blocks,
each pair of rows once, never an n × n matrix.
"""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.distances.by_class import Products
from clip_geometry.geometry.kinds import arrays_in_kind, in_kind
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.geometry.statistics.class_distances import ClassDistances, MeanDistances
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import one_of
from clip_geometry.rows.matrix import Labels, Rows

if TYPE_CHECKING:
    Metric: TypeAlias = Literal["euclidean", "sqeuclidean", "cosine", "precomputed"]
else:  # an unknown one is our sentence, not a type checker's
    Metric = Any


@in_kind
def silhouette(
    x: Rows | ClassDistances,
    labels: Labels | None = None,
    *,
    metric: Metric = "euclidean",
    products: Products | None = None,
) -> Float[Tensor, ""]:
    """Mean silhouette of the rows.

    The mean of `silhouette_samples`, which has the formula. In [−1, 1]; higher means tighter, better separated classes.
    Interchangeable with scikit-learn's silhouette_score, but for its sample_size, the silhouette of a random subset:
    `sampled_silhouette` takes a size and a seed, and estimates the silhouette of all rows.

    Args:
        x: Rows, (n, d), n ≥ 3; or `ClassDistances` alone.
        labels: One label per row, (n,), of at least two and at most n − 1 values.
        metric: "euclidean", "sqeuclidean", "cosine" or "precomputed", as in `silhouette_samples`.
        products: How large float32 sets are multiplied on a GPU, as in `silhouette_samples`.

    Returns:
        The mean, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The labels do not fit, or the metric is cosine and a row is zero.

    Example:
        >>> import clip_geometry as cg
        >>> round(cg.silhouette([[0.0], [1.0], [5.0], [6.0]], ["a", "a", "b", "b"]), 3)
        0.798
    """
    metric = checked_metric(metric, products)
    return ClassDistances.of(x, labels).mean(of_distances, metric, products=products)


@arrays_in_kind
def silhouette_samples(
    x: Rows, labels: Labels, *, metric: Metric = "euclidean", products: Products | None = None
) -> Float[Tensor, " n"]:
    """Silhouette of each row: (b − a)/max(a, b).

    a is the mean distance to the other rows of its class, b the smallest mean distance to the rows of another class. 0
    for the only row of a class and where a = b = 0, as in scikit-learn. Memory is a copy of x and a few blocks; with a
    gradient, n² distances for "euclidean". Float32 rows are twice as fast as float64 ones, with an error of 1e-6.

    Args:
        x: Rows, (n, d), n ≥ 3; for "precomputed" the distances of all rows, (n, n).
        labels: One label per row, (n,), of at least two and at most n − 1 values.
        metric: "euclidean", "sqeuclidean", "cosine" (1 − cos) or "precomputed".
        products: How large float32 sets are multiplied on a GPU for "euclidean" (see `fused_mean_distances`), by
            default as exactly as in float32.

    Returns:
        The silhouettes, (n,), float64, each in [−1, 1].

    Raises:
        InputError: The labels do not fit, the metric is cosine and a row is zero, or x are no distances.

    Example:
        >>> import clip_geometry as cg
        >>> cg.silhouette_samples([[0.0], [1.0], [4.0]], ["a", "a", "b"]).tolist()
        [0.75, 0.6666666666666666, 0.0]
    """
    metric = checked_metric(metric, products)
    return of_distances(ClassDistances.of(x, labels).each(metric, products=products))


def of_distances(found: MeanDistances) -> Float[Tensor, "*n"]:
    """(b − a)/max(a, b) of each row; 0 for the only row of a class, and where both are 0."""
    larger = torch.maximum(found.own, found.nearest)
    defined = ~found.alone & (larger > 0)
    return torch.where(defined, (found.nearest - found.own) / torch.where(defined, larger, 1), 0)


def checked_metric(metric: Metric, products: Products | None) -> Metric:
    """The metric; products are those of the Euclidean one only."""
    metric = one_of(metric, "metric", ("euclidean", "sqeuclidean", "cosine", "precomputed"))
    if products is not None and metric != "euclidean":
        raise InputError(f"products {products!r} were asked for with metric {metric!r}; only 'euclidean' has a choice")
    return metric


_SILHOUETTE = Measure(name="silhouette", function=silhouette, statistic=ClassDistances)
add_measure(
    _SILHOUETTE,
    variant(_SILHOUETTE, "sqeuclidean", streams=True, options={"metric": "sqeuclidean"}),
    variant(_SILHOUETTE, "cosine", streams=True, options={"metric": "cosine"}),
)
