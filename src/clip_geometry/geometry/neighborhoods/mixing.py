"""Whether two modalities share their neighborhoods: scores of single-cell biology with the modality as the batch."""

from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry._core.arguments import Integer, Number, real_number, whole_number
from clip_geometry.geometry._core.kinds import in_kind
from clip_geometry.geometry._core.neighbors import nearest
from clip_geometry.geometry._core.rows import Labels, Rows, as_codes, as_two_sets, as_values
from clip_geometry.geometry.clusters.silhouette import silhouette_samples
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.neighborhoods.lisi import pooled
from clip_geometry.registry import InputError

if TYPE_CHECKING:
    OfBoth: TypeAlias = tuple[Labels, Labels]  # of the images and of the texts
else:  # labels of one set are our sentence, not a type checker's
    OfBoth = Any


@in_kind
@torch.no_grad()
def kbet(image: Rows, text: Rows, *, k: Integer = 50, alpha: Number = 0.05) -> Float[Tensor, ""]:
    """Acceptance rate of kBET with the modality as the batch: the share of rows whose neighborhood is mixed as all are.

    The k nearest rows, Euclidean, the row itself among them, hold o images; e = kn/(n + m) are expected. Accepted where
    the χ² test of both counts has p ≥ alpha. In [0, 1]: about 1 − alpha where the modalities are mixed at random.
    Source: Büttner et al. 2019, as in scib-metrics: all rows together, without diffusion distances.

    Args:
        image: Rows, (n, d), n ≥ 2.
        text: Rows, (m, d), m ≥ 2, n + m ≥ k.
        k: Rows of a neighborhood, ≥ 2.
        alpha: Level of the test, in (0, 1).

    Returns:
        The rate, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The dimensions differ, there are too few rows, all rows are equal, or alpha is out of range.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.kbet(image, text), 2), round(cg.kbet(image, text + 0.5), 2)
        (1.0, 0.53)
    """
    k = whole_number(k, "k", least=2, of=", of rows in a neighborhood")
    alpha = real_number(alpha, "alpha", lambda level: 0 < level < 1, "a level of a test, between 0 and 1")
    both, modality = pooled(image, text, k - 1)
    _, indices = nearest(both, k - 1)
    texts = modality[indices].sum(1) + modality
    share = modality.double().mean()
    statistic = (texts - k * share).square() / (k * share * (1 - share))  # of two counts, whose sum is k
    return (torch.special.erfc((statistic / 2).sqrt()) >= alpha).double().mean()


@in_kind
@torch.no_grad()
def graph_connectivity(image: Rows, text: Rows, labels: OfBoth | None = None, *, k: Integer = 15) -> Float[Tensor, ""]:
    """Share of the rows in the largest connected component of the graph of nearest neighbors, averaged over classes.

    Two rows are joined where one is among the k nearest of the other, Euclidean, in both modalities together. Each
    class is taken by itself, with the edges between its rows; without labels all rows are one class. In (0, 1]: 1 where
    the rows of each class hang together across modalities, about 1/2 where the modalities are islands. Source: Luecken
    et al. 2022.

    Args:
        image: Rows, (n, d), n ≥ 2.
        text: Rows, (m, d), m ≥ 2, n + m ≥ k + 1.
        labels: Those of the images and those of the texts, or None.
        k: Number of neighbors.

    Returns:
        The share, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The dimensions differ, there are too few rows, all rows are equal, or the labels do not fit.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> cg.graph_connectivity(image, text), cg.graph_connectivity(image, text + 9)
        (1.0, 0.5)
    """
    both, modality = pooled(image, text, k)
    codes, count = _classes(labels, modality)
    _, indices = nearest(both, whole_number(k, "k"))
    i, j = torch.arange(len(both), device=both.device).repeat_interleave(indices.shape[1]), indices.flatten()
    within = codes[i] == codes[j]
    components = _components(i[within], j[within], len(both))
    sizes = torch.bincount(components, minlength=len(both))[components]
    largest = sizes.new_zeros(count).scatter_reduce(0, codes, sizes, "amax")
    return (largest.double() / torch.bincount(codes)).mean()


def _components(i: Int[Tensor, " e"], j: Int[Tensor, " e"], n: int) -> Int[Tensor, " n"]:
    """The lowest row of the component of each of n rows, from the edges between them."""
    lowest = torch.arange(n, device=i.device)
    while True:
        lower = lowest.scatter_reduce(0, i, lowest[j], "amin")
        lower = lower.scatter_reduce(0, j, lower[i], "amin")
        lower = lower[lower]  # the lowest that this one knows
        if torch.equal(lower, lowest):
            return lowest
        lowest = lower


@in_kind
def batch_asw(image: Rows, text: Rows, labels: OfBoth | None = None) -> Float[Tensor, ""]:
    """Average silhouette width with the modality as the batch: the mean of 1 − |s_i|, averaged over classes.

    s_i is the Euclidean silhouette of a row among the rows of its class, with its modality as the label; without labels
    all rows are one class. Classes of one modality only, or of one row of each, are left out. In [0, 1]: 1 where the
    modalities are mixed. Source: Luecken et al. 2022.

    Args:
        image: Rows, (n, d), n ≥ 2.
        text: Rows, (m, d), m ≥ 2.
        labels: Those of the images and those of the texts, or None.

    Returns:
        The mean, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The dimensions differ, the labels do not fit, or no class has rows of both modalities.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.batch_asw(image, text), 2), round(cg.batch_asw(image, text + 1), 2)
        (0.98, 0.8)
    """
    image, text = as_two_sets(image, text, ("image", "text"))
    both = torch.cat([image, text])
    modality = (torch.arange(len(both), device=both.device) >= len(image)).long()
    codes, count = _classes(labels, modality)
    means = []
    for rows in (codes == code for code in range(count)):
        batches, size = len(modality[rows].unique()), int(rows.sum())
        if 1 < batches < size:
            means.append((1 - torch.as_tensor(silhouette_samples(both[rows], modality[rows])).abs()).mean())
    if not means:
        raise InputError("no class has rows of both image and text, which is what batch_asw compares")
    return torch.stack(means).mean()


def _classes(labels: OfBoth | None, modality: Int[Tensor, " n"]) -> tuple[Int[Tensor, " n"], int]:
    """The class of each row of both sets, and how many there are."""
    if labels is None:
        return torch.zeros_like(modality), 1
    if not isinstance(labels, tuple | list) or len(labels) != 2:
        raise InputError("labels are those of one set; expected two: those of image and those of text")
    sizes = torch.bincount(modality).tolist()
    parts = zip(labels, sizes, ("image", "text"), strict=True)
    values = [each for part, n, name in parts for each in as_values(part, n, name=f"labels of {name}")]
    codes, count = as_codes(values, len(modality), least=1)
    return codes.to(modality.device), count


_SHARED = {
    "depends_on_n": True,
    "group": "modality gap",
    "takes": "two sets",
    "range": (0, 1),
    "direction": "higher is more mixed",
    "invariances": ("rotation", "translation", "scale", "swap"),
    "quadratic": True,
    "by_default": False,
}
add_measure(
    Measure(
        name="kbet",
        title="kBET acceptance rate",
        brief="share of rows with both modalities around, by a test",
        function=kbet,
        summary="The share of rows whose 50 nearest hold images and texts as all rows do, by a χ² test.",
        reading="About 0.95 where the modalities are mixed as at random; 0 where every neighborhood leans to one of "
        "them.",
        caveat="It is strict: a slight lean of all neighborhoods rejects them all, so that repairs which help a "
        "search still have 0. Neighborhoods overlap, so it is a rate and no p-value, and 50 rows reach less far in a "
        "larger set: compare equal n. scib takes it within each cell type, on diffusion distances; here all rows are "
        "taken together.",
        formula="mean_i [p(χ²_i) ≥ 0.05], χ² of the modalities among the k = 50 nearest rows, the row itself included",
        at_gaussian=0.94,
        least_n=25,
        streams=True,
        smooth=False,
        reference="Büttner et al. 2019, doi:10.1038/s41592-018-0254-1; scib-metrics",
        **_SHARED,
    )
)
add_measure(
    Measure(
        name="graph_connectivity",
        title="Graph connectivity of the modalities",
        brief="share of rows that one graph of neighbors connects",
        function=graph_connectivity,
        summary="The share of all rows in the largest connected component of the graph of the 15 nearest neighbors.",
        reading="1 means that one can walk from any row to any other over near rows; 0.5, of equal sizes, that each "
        "modality is an island.",
        caveat="One edge joins two islands, so that it is 1 long before the modalities are mixed. 15 rows reach less "
        "far in a larger set: compare equal n. scib takes it within each cell type; with labels, the function does.",
        formula="largest component/(n + m) of the graph that joins each row with its k = 15 nearest, Euclidean",
        at_gaussian=1,
        least_n=8,
        streams=True,
        smooth=False,
        reference="Luecken et al. 2022, doi:10.1038/s41592-021-01336-8 (scib)",
        **_SHARED,
    )
)
add_measure(
    Measure(
        name="batch_asw",
        title="Batch silhouette width",
        brief="1 less the size of the silhouette of the modalities",
        function=batch_asw,
        summary="One less the mean size of the silhouettes of all rows with the modality as their label.",
        reading="1 means that the modalities are mixed, lower that they are apart.",
        caveat="Without labels it says what modality_silhouette says, turned around; but sizes do not cancel, so "
        "that a modality inside of the other, which has silhouettes of both signs, lowers it, and so does noise, the "
        "less the larger n. In high dimensions fully separate modalities still have 0.75.",
        formula="mean_i (1 − |s_i|), s_i the Euclidean silhouette of row i, label = modality",
        at_gaussian=1,
        reference="Luecken et al. 2022, doi:10.1038/s41592-021-01336-8 (scib)",
        **_SHARED,
    )
)
