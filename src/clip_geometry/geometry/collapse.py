"""Neural collapse: do rows collapse onto their class means, and the class means onto a simplex (Papyan et al. 2020)?"""

from typing import NamedTuple

import torch

from clip_geometry.geometry.kinds import Value, in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.statistics.class_distances import as_classes
from clip_geometry.geometry.statistics.class_sums import class_sums
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import Labels, Rows, as_rows, as_two_sets, class_indices, mean_row, unit_rows

ROUNDING = 1e-10  # relative to the largest singular value of the class means; smaller ones are rounding error


class NeuralCollapse(NamedTuple):
    """Result of `neural_collapse`: four signs of neural collapse, NC1 to NC4, all at least 0. Full collapse gives 0.

    C is the number of classes. Class means and class texts are taken relative to their mean over the classes.

    Args:
        nc1: tr(Σ_W Σ_B⁺)/C, the spread Σ_W of rows within classes relative to the spread Σ_B of the class means, where
            ⁺ is the pseudoinverse.
        nc2_norm: Standard deviation of the lengths of the class means, divided by their mean. 0: all class means are
            equally long.
        nc2_angle: Mean of |cos + 1/(C − 1)| over pairs of classes, where cos is the cosine of the two class means. 0:
            the class means are as far apart as C directions can be.
        nc3: ‖M/‖M‖ − W/‖W‖‖, where the rows of M are the class means, the rows of W the class texts, and ‖·‖ is the
            Frobenius norm. 0: class means and texts agree. None without class texts.
        nc4: Share of rows, in [0, 1], whose nearest class mean belongs to another class than the text with the largest
            cosine. None without class texts.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> labels = np.arange(90) % 3
        >>> collapsed = np.eye(3, 8)[labels] + 0.01 * np.random.default_rng(0).normal(size=(90, 8))
        >>> result = cg.geometry.neural_collapse(collapsed, labels)
        >>> round(result.nc1, 2), round(result.nc2_norm, 2), round(result.nc2_angle, 2), result.nc3
        (0.0, 0.0, 0.0, None)
    """

    nc1: Value
    nc2_norm: Value
    nc2_angle: Value
    nc3: Value
    nc4: Value


@in_kind
def neural_collapse(x: Rows, labels: Labels, class_text: Rows | None = None) -> NeuralCollapse:
    """Measure how far labeled rows have collapsed onto their class means, NC1 to NC4 (Papyan et al. 2020).

    In full neural collapse, rows equal their class mean (NC1), the class means form a regular simplex (NC2), the
    classifier's weights equal the class means up to scale (NC3), and the classifier chooses the nearest class mean
    (NC4). The classifier is here given by the class texts. The formulas are in `NeuralCollapse`.

    All classes have equal weight: Σ_W is the mean of the covariances of the classes, and Σ_B the covariance of the C
    class means. For NC3, the mean over the classes is subtracted from the texts, because it does not affect decisions
    of a linear classifier; the figures of the paper show the square of NC3. The cost is O(nd + C²d).

    Args:
        x: Rows, (n, d).
        labels: Label of each row, (n,), of at least two classes, at least one of which has two rows. With `class_text`,
            each label is the index of a row of `class_text`.
        class_text: One text embedding per class, (C, d). None: nc3 and nc4 are None. Texts of classes without rows are
            ignored.

    Returns:
        A `NeuralCollapse` of floats, or of 0-d float64 tensors for tensor input.

    Raises:
        InputError: There are too few classes or rows, all class means are equal, or all texts are equal.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> labels = np.arange(90) % 3
        >>> x = 3 * np.eye(3, 8)[labels] + 0.1 * np.random.default_rng(0).normal(size=(90, 8))
        >>> result = cg.geometry.neural_collapse(x, labels, np.eye(3, 8))
        >>> round(result.nc1, 3), round(result.nc2_angle, 3), round(result.nc3, 3), result.nc4
        (0.002, 0.004, 0.018, 0.0)
    """
    texts = None
    if class_text is None:
        x = as_rows(x)
        codes, k = as_classes(labels, x)
    else:
        x, texts = as_two_sets(x, class_text, ("image", "class_text"))
        indices = class_indices(labels, len(x), len(texts))
        codes, k = as_classes(indices, x)
        present = torch.empty(k, dtype=torch.long).scatter_(0, codes.cpu(), indices)  # the text of each class
        texts = texts[present.to(texts.device)]
    # scale to entries of at most 1; center the class means at their unweighted mean, so that classes count alike
    rows = x.double() / x.double().abs().amax().clamp(min=1e-300)
    sums = class_sums(rows, codes, k)
    within = rows - sums.mean - sums.offsets[codes]
    means = sums.offsets - sums.offsets.mean(0)
    lengths = means.norm(dim=1)
    if lengths.amax() <= ROUNDING * within.norm(dim=1).amax():
        raise InputError(
            f"the means of the {k} classes are all equal, so neural collapse is undefined; check the labels"
        )
    _, values, axes = torch.linalg.svd(means, full_matrices=False)
    nonzero = values[: k - 1] > ROUNDING * values[0]  # means about their center have at most k − 1 directions
    whitened = within @ (axes[: k - 1][nonzero] / values[: k - 1][nonzero, None]).T
    directions = unit_rows(means, name="class means")
    i, j = torch.triu_indices(k, k, offset=1, device=x.device)
    nc3 = nc4 = None
    if texts is not None:
        centered = texts.double() / texts.double().abs().amax().clamp(min=1e-300)
        centered = centered - mean_row(centered)
        if centered.norm() == 0:
            raise InputError(f"the texts of the {k} classes are all equal, so NC3 is undefined; give different texts")
        nc3 = (means / means.norm() - centered / centered.norm()).norm()
        by_mean = torch.cdist(within + means[codes], means).argmin(1)
        by_text = (unit_rows(x, name="image") @ unit_rows(texts, name="class_text").T).argmax(1)
        nc4 = (by_mean != by_text).double().mean()
    return NeuralCollapse(
        nc1=(whitened.square().sum(1) / sums.counts[codes]).sum() / k,
        nc2_norm=lengths.std(correction=0) / lengths.mean(),
        nc2_angle=((directions[i] * directions[j]).sum(1) + 1 / (k - 1)).abs().mean(),
        nc3=nc3,
        nc4=nc4,
    )


add_measure(*(Measure(name, neural_collapse, attribute=name) for name in NeuralCollapse._fields))
