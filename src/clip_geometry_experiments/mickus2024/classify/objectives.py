"""The objectives of Mickus et al. 2024, all to be maximised: clusters, isotropy, a linear classifier, triplets.

d, d' are rows, ℓ their labels, Ω the set of labels, D_ω the rows of label ω; sign(ω, ω') = −1 if equal, +1 otherwise.
The sums run over ordered pairs and triples, as in the paper, and are no means: they grow with n² and n³.
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

DISTANCES = 2**20  # distances at a time: 8 MB


@in_kind
def silhouette(x: matrix.Rows, labels: matrix.Labels) -> Float[Tensor, ""]:
    """Silhouette objective: squared distances between classes minus those within (equation 1).

    O_S = Σ_d Σ_d' sign(ℓ(d), ℓ(d')) ‖d − d'‖² over all ordered pairs, from class sums in O(nd): 2 Σ_ω (n − 2n_ω) V_ω +
    2n Σ_ω n_ω ‖m_ω − μ‖², V_ω = Σ_ω ‖d − m_ω‖², m_ω the class means, μ the mean. Unless a class holds more than half of
    the rows, no term is negative, and scatter within classes never lowers it. Unbounded both ways; 0 where all rows are
    equal. Source: Mickus et al. 2024.

    Args:
        x: Rows, (n, d), n ≥ 2.
        labels: One label per row, (n,), at least two values.

    Returns:
        The objective, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: There is a single label.

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
    """Isotropy objective: cosine between the eigenvalues of the covariance and equal ones (equation 2).

    O_I = cos(1, V) = √(PR/d), V the eigenvalues, PR the participation ratio, so that isoscore = (d O_I² − 1)/(d − 1).
    The paper's "∝ ΣΣ‖d − d'‖²" drops the denominator ‖V‖ and is no identity. In [1/√d, 1]. Source: Mickus et al. 2024.

    Args:
        x: Rows, (n, d), or `Moments`; n ≥ 2, d ≥ 2.

    Returns:
        The objective, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: All rows are equal, or d = 1.

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
    """Linear classifier objective: agreement with the own class vector minus that with all others (equation 3).

    O_C = −Σ_d Σ_ω sign(ω, ℓ(d)) ⟨d, c_ω⟩, from class sums in O((n + k)d). Linear in the rows for given class vectors,
    quadratic with class means. Unbounded: an optimum exists only under a bound such as ‖d‖ ≤ 1. Depends on the origin.
    Differentiable in rows and class vectors. Source: Mickus et al. 2024.

    Args:
        x: Rows, (n, d), n ≥ 2.
        labels: One label per row, (n,). At least two values where the class means are taken.
        class_vectors: The c_ω, (k, d), as in torch.nn.Linear: row j is for label j, so labels must be integers 0..k−1,
            not all of which need to occur. By default the mean of each class, for labels of any kind.

    Returns:
        The objective, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The labels do not fit.

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
                f"x has dimension {x.shape[1]} and class_vectors has {vectors.shape[1]}; expected the same"
            )
        vectors, k = vectors.to(x.device).double(), len(vectors)
        sums = class_sums(x, matrix.class_indices(labels, len(x), k, rows="x", of="rows of class_vectors"), k)
        base = vectors.mean(0)
        offsets = vectors - base
    # with c_ω = base + offset and d = μ + (d − μ), what is large far from the origin stands alone and adds up exactly
    n = len(x)
    common = n * (2 - k) * base + ((2 * sums.counts - n)[:, None] * offsets).sum(0)
    return 2 * (sums.sums * offsets).sum() + sums.mean @ common


@in_kind
def triplet(x: matrix.Rows, labels: matrix.Labels) -> Float[Tensor, ""]:
    """Triplet objective: minus the triplet loss without margin, summed over all triplets (equation 5).

    O_T = −Σ_a Σ_p Σ_n max(‖a − p‖ − ‖a − n‖, 0) over all anchors a, positives p ≠ a of its label, negatives n. At most
    0, which is reached where every row is nearer to its own class than to all other rows, and where all rows are equal.
    In blocks of anchors, each with its distances sorted, so that every distance is counted at once: time O(n²(d + log
    n)), memory O(nd), for the gradient too. Source: Mickus et al. 2024.

    Args:
        x: Rows, (n, d), n ≥ 3.
        labels: One label per row, (n,), at least two values, one of them on two rows.

    Returns:
        The objective, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: There are fewer rows, or the labels do not fit.

    Example:
        >>> import numpy as np
        >>> from clip_geometry_experiments.mickus2024.classify import objectives
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> labels = np.arange(100) % 5
        >>> round(objectives.triplet(x, labels), 1)
        -72656.8
    """

    def term(distances: Float[Tensor, "b n"], same: Bool[Tensor, "b n"]) -> Float[Tensor, ""]:
        # a positive counts once for each nearer negative, a negative once, with −, for each farther positive; the
        # anchor itself has no nearer negative, and of a positive and a negative equally far the counts cancel
        distances, order = distances.sort(dim=1)
        positive = same.gather(1, order)
        nearer = (~positive).cumsum(1)
        farther = positive.sum(1, keepdim=True) - positive.cumsum(1)
        return -(torch.where(positive, nearer, -farther) * distances).sum()

    return _sum_over_anchors(term, x, labels)


@in_kind
def triplet_bound(x: matrix.Rows, labels: matrix.Labels) -> Float[Tensor, ""]:
    """Upper bound of the triplet objective: a weighted sum of distances (equation 5).

    Σ_a Σ_d' sign_wgt(ℓ(a), ℓ(d')) ‖a − d'‖ over all ordered pairs; sign_wgt = |D_ω| − |D| for equal labels, |D_ω| − 1
    otherwise, ω the label of the anchor a. It bounds O_T only; that it bounds O_S too, as the paper remarks, is false.
    Unbounded both ways; 0 where all rows are equal, and on average for random labels. In blocks: time O(n²d), memory
    O(nd), for the gradient too. Source: Mickus et al. 2024.

    Args:
        x: Rows, (n, d), n ≥ 3.
        labels: One label per row, (n,), at least two values, one of them on two rows.

    Returns:
        The bound, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: There are fewer rows, or the labels do not fit.

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
    x = matrix.as_rows(x, least=3)
    codes, k = matrix.as_codes(labels, len(x))
    if k == len(x):
        raise InputError(f"each of the {k} rows has a label of its own; a triplet needs a class of two")
    codes = codes.to(x.device)
    rows = x.double() - matrix.mean_row(x)  # near rows far from the origin would cancel in products

    def of_anchors(anchors: Tensor, labels: Tensor) -> Tensor:
        return term(_distances(anchors, rows), codes == labels[:, None])

    step = max(1, DISTANCES // len(rows))
    total = rows.new_zeros(())
    for anchors, labels in zip(rows.split(step), codes.split(step), strict=True):
        # distances are computed again for the gradient, so that n × n numbers are never kept
        total = total + checkpoint(of_anchors, anchors, labels, use_reentrant=False, preserve_rng_state=False)
    return total


def _distances(x: Float[Tensor, "a d"], y: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
    """‖x_i − y_j‖ with gradient 0 at 0, where a row meets itself."""
    squares = squared_distances(x, y)
    at_zero = squares <= 0
    return squares.masked_fill(at_zero, 1).sqrt().masked_fill(at_zero, 0)


@dataclass(frozen=True)
class Objective:
    """An objective as `ClassificationCallback` takes it, in place of a registered measure.

    Args:
        function: Of the rows, or of rows and labels.
        takes: Which of both, as `Measure.takes`.
        statistic: `Moments` if it takes these in place of rows, as `Measure.statistic`.
    """

    function: Callable[..., Tensor]
    takes: Literal["rows", "labeled rows"] = "labeled rows"
    statistic: type[Moments] | None = None

    def __call__(self, *sets: Any) -> Tensor:
        return self.function(*sets)


# by the names in configs and records; numbers.yaml says what they mean
OBJECTIVES = {
    "objective_silhouette": Objective(silhouette),
    "objective_isotropy": Objective(isotropy, takes="rows", statistic=Moments),
    "objective_classifier": Objective(classifier),
    "objective_triplet": Objective(triplet),
    "triplet_bound": Objective(triplet_bound),
}
