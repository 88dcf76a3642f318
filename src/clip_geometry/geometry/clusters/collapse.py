"""Neural collapse: do rows fall onto their class means, and these onto a simplex (Papyan et al. 2020)?"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry._core.kinds import Value, in_kind
from clip_geometry.geometry._core.rows import Labels, Rows, as_rows, as_two_sets, class_indices, mean_row, unit_rows
from clip_geometry.geometry.clusters.silhouette import as_classes
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.registry import InputError

ROUNDING = 1e-10  # of the largest singular value of the class means: smaller ones are made of last digits


class NeuralCollapse(NamedTuple):
    """Result of `neural_collapse`; all are 0 in full collapse.

    Args:
        nc1: tr(Σ_W Σ_B⁺)/C: spread within classes, relative to that between their means.
        nc2_norm: Standard deviation over mean of the class means' distances from their center.
        nc2_angle: Mean over pairs of classes of |cos + 1/(C − 1)|, seen from the center of the class means.
        nc3: ‖M/‖M‖ − W/‖W‖‖ of class means and class texts, each about its center; None without texts.
        nc4: Share of rows whose nearest class mean is not the class of the text of largest cosine; None without texts.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(90, 8))
        >>> isinstance(cg.neural_collapse(x, np.arange(90) % 3), cg.NeuralCollapse)
        True
    """

    nc1: Value
    nc2_norm: Value
    nc2_angle: Value
    nc3: Value
    nc4: Value


class ClassMeans(NamedTuple):
    """Rows scaled to at most 1, about their class means, and these about their own mean: classes count alike."""

    within: Float[Tensor, "n d"]
    means: Float[Tensor, "k d"]
    codes: Int[Tensor, " n"]
    weights: Float[Tensor, " n"]  # 1/(k n_c): their sum is 1

    @classmethod
    def of(cls, x: Float[Tensor, "n d"], codes: Int[Tensor, " n"], k: int) -> "ClassMeans":
        rows = x.double()
        rows = rows / rows.abs().amax().clamp(min=1e-300)
        rows = rows - mean_row(rows)
        codes = codes.to(x.device)
        counts = torch.bincount(codes, minlength=k).double()
        means = rows.new_zeros(k, rows.shape[1]).index_add(0, codes, rows) / counts[:, None]
        return cls(rows - means[codes], means - means.mean(0), codes, 1 / (k * counts)[codes])


@in_kind
def neural_collapse(x: Rows, labels: Labels, class_text: Rows | None = None) -> NeuralCollapse:
    """How far labeled rows have collapsed, NC1 to NC4 (Papyan et al. 2020). Every class counts alike.

    Σ_W is the mean over classes of their covariances, Σ_B that of the C class means about their center. NC3 and NC4
    compare them with a classifier, here the texts of the classes. A vector added to all rows of a linear classifier
    changes no decision and is taken out of NC3; the paper, whose figures show the square of NC3, has no such vector in
    its classifiers. O(nd + C²d).

    Args:
        x: Rows, (n, d).
        labels: Labels, (n,), of at least two classes, one of them with two rows; with texts, the indices of their rows.
        class_text: One text per class, (C, d), or None. Classes without rows are left out.

    Returns:
        A `NeuralCollapse`, floats (for tensors 0-d float64 tensors).

    Raises:
        InputError: There are too few classes or rows, or all class means, or all texts, are equal.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> labels = np.arange(90) % 3
        >>> x = 3 * np.eye(3, 8)[labels] + 0.1 * np.random.default_rng(0).normal(size=(90, 8))
        >>> found = cg.neural_collapse(x, labels, np.eye(3, 8))
        >>> round(found.nc1, 3), round(found.nc2_angle, 3), round(found.nc3, 3), found.nc4
        (0.002, 0.004, 0.018, 0.0)
    """
    texts = None
    if class_text is None:
        x = as_rows(x)
        codes, k = as_classes(labels, x)
    else:
        x, texts = as_two_sets(x, class_text, ("image", "class_text"))
        numbers = class_indices(labels, len(x), len(texts))
        codes, k = as_classes(numbers, x)
        present = torch.empty(k, dtype=torch.long).scatter_(0, codes.cpu(), numbers)
        texts = texts[present.to(texts.device)]
    classes = ClassMeans.of(x, codes, k)
    lengths = classes.means.norm(dim=1)
    if lengths.amax() <= ROUNDING * classes.within.norm(dim=1).amax():
        raise InputError(f"the means of the {k} classes are all equal; neural collapse is undefined there")
    _, values, axes = torch.linalg.svd(classes.means, full_matrices=False)
    kept = values[: k - 1] > ROUNDING * values[0]  # means about their center have at most k − 1 directions
    along = classes.within @ (axes[: k - 1][kept] / values[: k - 1][kept, None]).T
    cosines = unit_rows(classes.means, name="class means")
    i, j = torch.triu_indices(k, k, offset=1, device=x.device)
    nc3 = nc4 = None
    if texts is not None:
        centered = texts.double() / texts.double().abs().amax().clamp(min=1e-300)
        centered = centered - mean_row(centered)
        if centered.norm() == 0:
            raise InputError(f"the texts of the {k} classes are all equal; NC3 is undefined there")
        nc3 = (classes.means / classes.means.norm() - centered / centered.norm()).norm()
        nearest = torch.cdist(classes.within + classes.means[classes.codes], classes.means).argmin(1)
        chosen = (unit_rows(x, name="image") @ unit_rows(texts, name="class_text").T).argmax(1)
        nc4 = (nearest != chosen).double().mean()
    return NeuralCollapse(
        nc1=classes.weights @ along.square().sum(1),
        nc2_norm=lengths.std(correction=0) / lengths.mean(),
        nc2_angle=((cosines[i] * cosines[j]).sum(1) + 1 / (k - 1)).abs().mean(),
        nc3=nc3,
        nc4=nc4,
    )


_SHARED: Any = {
    "group": "clusters",
    "takes": "labeled rows",
    "function": neural_collapse,
    "direction": "lower is more collapsed",
    "at_gaussian": None,  # depends on n, d and the number of classes
    "depends_on_n": True,
    "invariances": ("rotation", "translation", "scale"),
    "least_n": 3,
    "by_default": False,
    "reference": "Papyan et al. 2020, doi:10.1073/pnas.2015509117",
}
add_measure(
    Measure(
        name="nc1",
        attribute="nc1",
        title="Neural collapse NC1",
        brief="spread within classes over that between them",
        summary="The spread of rows about their class means, relative to that of the class means, in their directions.",
        reading="0 means that every row is its class mean; noise has about n/d, of many dimensions.",
        caveat="The direction in which class means differ least weighs most, so that two classes that are close raise "
        "it as much as all others being wide; it grows with n until class means are sure.",
        formula="tr(Σ_W Σ_B⁺)/C, Σ_W within and Σ_B between classes, C classes",
        range=(0, float("inf")),
        **_SHARED,
    ),
    Measure(
        name="nc2_norm",
        attribute="nc2_norm",
        title="Neural collapse NC2, norms",
        brief="how unequal the distances of class means are",
        summary="How unequally far the class means lie from their center: standard deviation over mean.",
        reading="0 means that all class means are equally far, as the corners of a simplex are.",
        caveat="Class means of noise in many dimensions are about equally far, too, and those of two classes always "
        "are: read it beside nc1, at equal n.",
        formula="std_c ‖μ_c − μ‖/mean_c ‖μ_c − μ‖, μ the mean of the class means",
        range=(0, float("inf")),
        **_SHARED,
    ),
    Measure(
        name="nc2_angle",
        attribute="nc2_angle",
        title="Neural collapse NC2, angles",
        brief="how far class means are from a simplex",
        summary="How far the cosines between class means, seen from their center, are from those of a simplex.",
        reading="0 means that all pairs of classes are as far apart as C classes can be, −1/(C − 1).",
        caveat="Class means of noise in many dimensions form a simplex as well, and those of two classes always do: "
        "read it beside nc1, at equal n. Classes that resemble each other should not be equally far.",
        formula="mean_{c<c'} |cos(μ_c − μ, μ_c' − μ) + 1/(C − 1)|",
        range=(0, 2),
        **_SHARED,
    ),
)
_WITH_TEXTS: Any = {**_SHARED, "takes": "classes"}
add_measure(
    Measure(
        name="nc3",
        attribute="nc3",
        title="Neural collapse NC3",
        brief="how far class means are from the class texts",
        summary="The distance of the class means of images and the class texts as two figures, each about its center "
        "and of one size.",
        reading="0 means that both are the same figure, so that a class text is the direction of its images; texts "
        "that know nothing of the classes have about √2.",
        caveat="It compares directions from two centers, so that the modality gap plays no part and a rotation of one "
        "modality does: good classifiers may have more than 1. It depends on the prompt, and on n through the class "
        "means. The paper does not center the classifier, and its figures show the square.",
        formula="‖M/‖M‖_F − T/‖T‖_F‖_F, M the class means and T the class texts, each less the mean of its rows",
        range=(0, 2),
        **_WITH_TEXTS,
    ),
    Measure(
        name="nc4",
        attribute="nc4",
        title="Neural collapse NC4",
        brief="images whose class text is not their nearest mean",
        summary="The share of images that zero-shot classification and the nearest class mean put into different "
        "classes.",
        reading="0 means that texts decide as class means do; 1 − 1/C is chance level for C classes.",
        caveat="It asks for agreement, not for accuracy: both may err alike. Images belong to the class means they are "
        "compared with, which makes them too near at small n: compare equal n only.",
        formula="share of images with argmin_c ‖x_i − μ_c‖ ≠ argmax_c cos(x_i, t_c)",
        range=(0, 1),
        smooth=False,  # a share, whose jackknife is 0 near 0
        **(_WITH_TEXTS | {"invariances": ("rotation", "scale")}),
    ),
)
