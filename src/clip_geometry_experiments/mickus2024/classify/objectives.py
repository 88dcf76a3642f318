"""The objectives of Mickus et al. 2024, all to be maximized: clusters, isotropy, a linear classifier, triplets.

d and d' are rows, ℓ their labels, Ω the set of labels, and D_ω the rows with label ω; sign(ω, ω') is −1 if the labels
are equal and +1 otherwise. As in the paper, the objectives are sums over ordered pairs and triples, not means, so they
grow with n² and n³.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from clip_geometry.geometry.distances.pairwise import squared_distances
from clip_geometry.geometry.isoscore import participation_ratio
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.statistics.class_sums import class_sums
from clip_geometry.geometry.statistics.moments import Moments, as_moments
from clip_geometry.registry import InputError
from clip_geometry.rows import matrix

DISTANCES = 2**20  # distances computed at a time: 8 MB


@in_kind
def silhouette(x: matrix.Rows, labels: matrix.Labels) -> Float[Tensor, ""]:
    """Compute the silhouette objective: squared distances between classes minus those within classes (equation 1).

    O_S = Σ_d Σ_d' sign(ℓ(d), ℓ(d')) ‖d − d'‖² over all ordered pairs. It is computed from class sums in O(nd) as
    2 Σ_ω (n − 2n_ω) V_ω + 2n Σ_ω n_ω ‖m_ω − μ‖², where V_ω = Σ_ω ‖d − m_ω‖², m_ω are the class means, and μ is the
    mean. Unless a class holds more than half of the rows, no term is negative, and scatter within classes never lowers
    the objective. It is unbounded in both directions, and 0 if all rows are equal. Source: Mickus et al. 2024.

    Args:
        x: Rows, (n, d), n ≥ 2.
        labels: One label per row, (n,), with at least two distinct values.

    Returns:
        The objective, a float (a 0-d float64 tensor for tensor input).

    Raises:
        InputError: If there is a single label.

    Example:
        >>> import numpy as np
        >>> from clip_geometry_experiments.mickus2024.classify import objectives
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> labels = np.arange(100) % 5
        >>> round(objectives.silhouette(x, labels), 1)
        98121.6
    """
    x = matrix.as_matrix(x)
    sums = class_sums(x, *matrix.as_codes(labels, len(x)))
    n = len(x)
    within = ((n - 2 * sums.counts) * sums.scatters).sum()
    between = (sums.counts * sums.offsets.square().sum(1)).sum()
    return 2 * within + 2 * n * between


@in_kind
def isotropy(x: matrix.Rows | Moments) -> Float[Tensor, ""]:
    """Compute the isotropy objective: the cosine between the eigenvalues of the covariance and equal ones (equation 2).

    O_I = cos(1, V) = √(PR/d), where V are the eigenvalues and PR is the participation ratio. Hence
    isoscore = (d O_I² − 1)/(d − 1). The paper's "∝ ΣΣ‖d − d'‖²" drops the denominator ‖V‖ and does not hold as an
    identity. The objective lies in [1/√d, 1], and 1 means that all eigenvalues are equal. Source: Mickus et al. 2024.

    Args:
        x: Rows, (n, d), or `Moments`; n ≥ 2, d ≥ 2.

    Returns:
        The objective, a float (a 0-d float64 tensor for tensor input).

    Raises:
        InputError: If all rows are equal, or d = 1.

    Example:
        >>> import numpy as np
        >>> from clip_geometry_experiments.mickus2024.classify import objectives
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(objectives.isotropy(x), 3)
        0.953
    """
    moments = as_moments(x, least_d=2)
    return (participation_ratio(moments) / moments.d).sqrt()


@in_kind
def classifier(x: matrix.Rows, labels: matrix.Labels, class_vectors: matrix.Rows | None = None) -> Float[Tensor, ""]:
    """Compute the linear classifier objective (equation 3).

    It is the agreement with the own class vector minus the agreement with all others:
    O_C = −Σ_d Σ_ω sign(ω, ℓ(d)) ⟨d, c_ω⟩, computed from class sums in O((n + k)d). It is linear in the rows for given
    class vectors and quadratic with class means. It is unbounded: an optimum exists only under a bound such as ‖d‖ ≤ 1.
    It depends on the origin, and is differentiable in the rows and the class vectors. Source: Mickus et al. 2024.

    Args:
        x: Rows, (n, d), n ≥ 2.
        labels: One label per row, (n,), with at least two distinct values if the class means are used.
        class_vectors: The class vectors c_ω, (k, d). As in torch.nn.Linear, row j belongs to label j, so labels must be
            integers 0..k−1, not all of which need to occur. By default, the class means, for labels of any kind.

    Returns:
        The objective, a float (a 0-d float64 tensor for tensor input).

    Raises:
        InputError: If the labels do not fit.

    Example:
        >>> import numpy as np
        >>> from clip_geometry_experiments.mickus2024.classify import objectives
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> labels = np.arange(100) % 5
        >>> round(objectives.classifier(x, labels), 1)
        -2224.3
    """
    x = matrix.as_matrix(x)
    if class_vectors is None:
        codes, k = matrix.as_codes(labels, len(x))
        sums = class_sums(x, codes, k)
        base, offsets = sums.mean, sums.offsets
    else:
        vectors = matrix.as_rows(class_vectors, name="class_vectors")
        if vectors.shape[1] != x.shape[1]:
            raise InputError(
                f"x has dimension {x.shape[1]} and class_vectors has {vectors.shape[1]}; expected the same dimension"
            )
        k = len(vectors)
        vectors = vectors.to(x.device).double()
        sums = class_sums(x, matrix.class_indices(labels, len(x), k, rows="x", of="rows of class_vectors"), k)
        base = vectors.mean(0)
        offsets = vectors - base
    # with c_ω = base + offset and d = μ + (d − μ), the terms that grow with distance from the origin are separate and
    # sum exactly
    n = len(x)
    common = n * (2 - k) * base + ((2 * sums.counts - n)[:, None] * offsets).sum(0)
    return 2 * (sums.sums * offsets).sum() + sums.mean @ common


@in_kind
def triplet(x: matrix.Rows, labels: matrix.Labels) -> Float[Tensor, ""]:
    """Compute the triplet objective: minus the triplet loss without margin, summed over all triplets (equation 5).

    O_T = −Σ_a Σ_p Σ_n max(‖a − p‖ − ‖a − n‖, 0) over all anchors a, positives p ≠ a with the label of a, and negatives
    n. It is at most 0, which is reached if every row is nearer to its own class than to all other rows, and if all rows
    are equal. The distances of each anchor are sorted so that every distance is counted at once, in blocks of anchors.
    This takes time O(n²(d + log n)) and memory O(nd), also for the gradient. Source: Mickus et al. 2024.

    Args:
        x: Rows, (n, d), n ≥ 3.
        labels: One label per row, (n,), with at least two distinct values, one of which occurs at least twice.

    Returns:
        The objective, a float (a 0-d float64 tensor for tensor input).

    Raises:
        InputError: If there are fewer than three rows, or the labels do not fit.

    Example:
        >>> import numpy as np
        >>> from clip_geometry_experiments.mickus2024.classify import objectives
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> labels = np.arange(100) % 5
        >>> round(objectives.triplet(x, labels), 1)
        -72656.8
    """

    def term(distances: Float[Tensor, "b n"], same: Bool[Tensor, "b n"]) -> Float[Tensor, ""]:
        # each positive counts once per nearer negative, and each negative counts −1 per farther positive; the anchor
        # itself has no nearer negative, and the counts of a positive and a negative at equal distance cancel
        distances, order = distances.sort(dim=1)
        positive = same.gather(1, order)
        nearer = (~positive).cumsum(1)
        farther = positive.sum(1, keepdim=True) - positive.cumsum(1)
        return -(torch.where(positive, nearer, -farther) * distances).sum()

    return _sum_over_anchors(term, x, labels)


@in_kind
def triplet_bound(x: matrix.Rows, labels: matrix.Labels) -> Float[Tensor, ""]:
    """Compute an upper bound of the triplet objective: a weighted sum of distances (equation 5).

    The bound is Σ_a Σ_d' sign_wgt(ℓ(a), ℓ(d')) ‖a − d'‖ over all ordered pairs, where sign_wgt is |D_ω| − |D| for equal
    labels and |D_ω| − 1 otherwise, and ω is the label of the anchor a. It bounds only O_T; the paper's remark that it
    also bounds O_S is false. It is unbounded in both directions. It is 0 if all rows are equal, and 0 on average for
    random labels. It is computed in blocks, in time O(n²d) and memory O(nd), also for the gradient. Source: Mickus et
    al. 2024.

    Args:
        x: Rows, (n, d), n ≥ 3.
        labels: One label per row, (n,), with at least two distinct values, one of which occurs at least twice.

    Returns:
        The bound, a float (a 0-d float64 tensor for tensor input).

    Raises:
        InputError: If there are fewer than three rows, or the labels do not fit.

    Example:
        >>> import numpy as np
        >>> from clip_geometry_experiments.mickus2024.classify import objectives
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> labels = np.arange(100) % 5
        >>> round(objectives.triplet_bound(x, labels), 1)
        1051.0
    """

    def term(distances: Float[Tensor, "b n"], same: Bool[Tensor, "b n"]) -> Float[Tensor, ""]:
        size = same.sum(1, keepdim=True)
        return (torch.where(same, size - same.shape[1], size - 1) * distances).sum()

    return _sum_over_anchors(term, x, labels)


def _sum_over_anchors(term: Callable[..., Tensor], x: matrix.Rows, labels: Any) -> Float[Tensor, ""]:
    """Sum `term` over all rows as anchors, in blocks; it takes distances and a mask of equal labels."""
    x = matrix.as_rows(x, least=3)
    codes, k = matrix.as_codes(labels, len(x))
    if k == len(x):
        raise InputError(f"each of the {k} rows has a label of its own; a triplet needs a class of two rows")
    codes = codes.to(x.device)
    rows = x.double() - matrix.mean_row(x)  # rows close together but far from the origin would cancel in products

    def of_anchors(anchors: Tensor, labels: Tensor) -> Tensor:
        return term(_distances(anchors, rows), codes == labels[:, None])

    step = max(1, DISTANCES // len(rows))
    total = rows.new_zeros(())
    for anchors, labels in zip(rows.split(step), codes.split(step), strict=True):
        # distances are recomputed for the gradient, so that n × n numbers are never stored
        total = total + checkpoint(of_anchors, anchors, labels, use_reentrant=False, preserve_rng_state=False)
    return total


def _distances(x: Float[Tensor, "a d"], y: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
    """Return ‖x_i − y_j‖ with gradient 0 at distance 0, where a row is compared with itself."""
    squares = squared_distances(x, y)
    at_zero = squares <= 0
    return squares.masked_fill(at_zero, 1).sqrt().masked_fill(at_zero, 0)


@dataclass(frozen=True)
class Objective:
    """An objective that `ClassificationCallback` accepts in place of a registered measure.

    Args:
        function: Function of the rows, or of rows and labels.
        takes: Arguments of the function, as in `Measure.takes`: "rows" or "labeled rows".
        statistic: `Moments` if the function accepts them in place of rows, as in `Measure.statistic`.
    """

    function: Callable[..., Tensor]
    takes: Literal["rows", "labeled rows"] = "labeled rows"
    statistic: type[Moments] | None = None

    def __call__(self, *sets: Any) -> Tensor:
        return self.function(*sets)


# keys are the names in configs and records; numbers.yaml explains them
OBJECTIVES = {
    "objective_silhouette": Objective(silhouette),
    "objective_isotropy": Objective(isotropy, takes="rows", statistic=Moments),
    "objective_classifier": Objective(classifier),
    "objective_triplet": Objective(triplet),
    "triplet_bound": Objective(triplet_bound),
}
