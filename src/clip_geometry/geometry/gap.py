"""How far the modalities lie apart."""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.clusters.silhouette import Metric, checked_metric, of_distances
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.geometry.statistics.class_distances import ModalityDistances
from clip_geometry.geometry.statistics.sums import Means, UnitPairs
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import one_of
from clip_geometry.rows.matrix import Rows

if TYPE_CHECKING:
    GapMetric: TypeAlias = Literal["euclidean", "cosine"]
else:  # an unknown one is our sentence, not a type checker's
    GapMetric = Any

CENTERED = 1e-7  # length of a mean relative to the rows that only centering leaves, in float32 as in float64
ROUNDING = 1e-29  # squared distance of unit rows that are equal but for a few last digits


@in_kind
def modality_gap(
    image: Rows | Means, text: Rows | None = None, *, metric: GapMetric = "euclidean"
) -> Float[Tensor, ""]:
    """Distance between the two means, ‖mean(image) − mean(text)‖, rows as given.

    In [0, 2] on unit rows, which Liang et al. 2022 take; larger is wider apart. With metric="cosine" it is
    1 − cos(mean(image), mean(text)), in [0, 2], which leaves out how long the means are.

    Args:
        image: Rows, (n, d), n ≥ 2; or `Means` alone.
        text: Rows, (m, d), m ≥ 2.
        metric: "euclidean", or "cosine" for 1 − cos.

    Returns:
        The distance, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The dimensions differ; or a mean is zero, as after centering, and the metric is "cosine".

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.modality_gap(image, text + 1), 3)
        2.942
        >>> round(cg.modality_gap(image, text + 1, metric="cosine"), 3)
        1.312
    """
    metric = one_of(metric, "metric", ("euclidean", "cosine"))
    means = Means.of(image, text)
    if metric == "euclidean":
        return (means.image - means.text).norm()
    directions = []
    for name, mean, square in zip(("image", "text"), (means.image, means.text), means.squares, strict=True):
        length = mean.norm()
        if length <= CENTERED * square.sqrt():
            raise InputError(f"the mean of {name} is zero, as after centering, and has no direction; measure before it")
        directions.append(mean / length)
    return (directions[0] - directions[1]).square().sum() / 2  # exact near 0, too


@in_kind
def modality_silhouette(
    image: Rows | ModalityDistances, text: Rows | None = None, *, metric: Metric = "euclidean"
) -> Float[Tensor, ""]:
    """Silhouette of all rows, with the modality as the label.

    In [−1, 1]: 0 where the modalities are mixed, towards 1 where each is a cluster of its own.

    Args:
        image: Rows, (n, d), n ≥ 2; or `ModalityDistances` alone.
        text: Rows, (m, d), m ≥ 2.
        metric: "euclidean", "sqeuclidean" or "cosine", as in `silhouette_samples`.

    Returns:
        The silhouette, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The dimensions differ.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.modality_silhouette(image, text + 1), 3)
        0.186
    """
    return ModalityDistances.of(image, text).mean(of_distances, checked_metric(metric, None))


@in_kind
def relative_modality_gap(image: Rows | UnitPairs, text: Rows | None = None) -> Float[Tensor, ""]:
    """Distance of matching pairs relative to the distances within the modalities (Schrodi et al. 2025).

    m/(m + (i + t)/2) with D = 1 − (cos + 1)/2, m the mean of D over matching pairs, i and t its means over different
    rows within image and within text. In [0, 1]: 0 where pairs coincide, 1/2 where they are as far apart as random rows
    of one modality. O(nd).

    Args:
        image: Rows, (n, d), n ≥ 2; or `UnitPairs` alone.
        text: Rows, (n, d), aligned with image.

    Returns:
        The relative gap, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, the numbers of rows differ, or all directions are equal (0/0).

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.relative_modality_gap(image, image + text), 3)
        0.226
    """
    pairs = UnitPairs.of(image, text)
    between = pairs.apart / (2 * pairs.n)  # twice D, as both others; the factor cancels
    within = (pairs.image.mean_distance + pairs.text.mean_distance) / 2
    if between + within <= ROUNDING:
        raise InputError("all rows of image and text point the same way; their relative gap is 0/0")
    return between / (between + within)


_GAP = Measure(name="modality_gap", function=modality_gap, statistic=Means, streams=True, aggregated=True)
add_measure(_GAP, variant(_GAP, "cosine", aggregated=False, options={"metric": "cosine"}))
_SILHOUETTE = Measure(name="modality_silhouette", function=modality_silhouette, statistic=ModalityDistances)
add_measure(
    _SILHOUETTE,
    variant(_SILHOUETTE, "sqeuclidean", streams=True, options={"metric": "sqeuclidean"}),
    variant(_SILHOUETTE, "cosine", streams=True, options={"metric": "cosine"}),
)
add_measure(Measure(name="relative_modality_gap", function=relative_modality_gap, statistic=UnitPairs, streams=True))
