"""LiDAR: how many directions tell classes, or pairs, from each other beyond their spread within."""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.arguments import Number, positive_number
from clip_geometry.geometry._core.kinds import in_kind
from clip_geometry.geometry._core.rows import Labels, Rows, as_aligned, as_rows
from clip_geometry.geometry.clusters.collapse import ROUNDING, ClassMeans
from clip_geometry.geometry.clusters.silhouette import as_classes
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.registry import InputError


@in_kind
def lidar(x: Rows, labels: Labels, *, delta: Number = 1e-4) -> Float[Tensor, ""]:
    """LiDAR: effective rank of linear discriminant analysis (Thilak et al. 2023).

    exp(−Σ p log p), p = λ/Σλ, λ the eigenvalues of Σ_W^{−1/2} Σ_B Σ_W^{−1/2}; Σ_W is the mean over classes of their
    covariances plus δ tr(Σ_W)/d on the diagonal, Σ_B that of the class means. (The paper adds δ itself, which depends
    on the scale of the rows.) In [1, min(C − 1, d)]; higher separates classes along more directions. O(nd² + d³).

    Args:
        x: Rows, (n, d).
        labels: Labels, (n,), of at least two classes, one of them with two rows.
        delta: δ, positive and finite.

    Returns:
        The effective rank, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: There are too few classes or rows, all class means are equal, or all rows are their class means.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng, labels = np.random.default_rng(0), np.arange(400) % 20
        >>> plane = 5 * rng.normal(size=(20, 2)) @ np.eye(2, 8)  # class means that differ in two directions
        >>> round(cg.lidar(plane[labels] + rng.normal(size=(400, 8)), labels), 2)
        1.75
    """
    delta = positive_number(delta, "delta")
    x = as_rows(x)
    return _effective_rank(ClassMeans.of(x, *as_classes(labels, x)), delta)


@in_kind
def pair_lidar(x: Rows, y: Rows, *, delta: Number = 1e-4) -> Float[Tensor, ""]:
    """`lidar` of pairs: each pair is a class of two rows, as two views of one image are in the paper.

    Args:
        x: Rows, (n, d), n ≥ 2.
        y: Rows, (n, d), aligned with x.
        delta: δ, positive and finite.

    Returns:
        The effective rank, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The numbers of rows or the dimensions differ, all pairs have the same mean, or x = y.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> x = 5 * rng.normal(size=(100, 2)) @ np.eye(2, 8) + rng.normal(size=(100, 8))
        >>> y = x + rng.normal(size=(100, 8))
        >>> round(cg.pair_lidar(x, y), 2)
        3.45
    """
    delta = positive_number(delta, "delta")
    x, y = as_aligned(x, y, ("image", "text"))
    codes = torch.arange(len(x), device=x.device).repeat(2)
    return _effective_rank(ClassMeans.of(torch.cat([x, y]), codes, len(x)), delta)


def _effective_rank(classes: ClassMeans, delta: float) -> Float[Tensor, ""]:
    within = (classes.weights[:, None] * classes.within).T @ classes.within
    size, longest = within.trace() / len(within), classes.means.norm(dim=1).amax()
    if size == 0:
        raise InputError(f"all rows are the means of their {len(classes.means)} classes; lidar is undefined there")
    if longest <= ROUNDING * classes.within.norm(dim=1).amax():
        raise InputError(f"the means of the {len(classes.means)} classes are all equal; lidar is undefined there")
    root = torch.linalg.cholesky(
        within / size + delta * torch.eye(len(within), dtype=within.dtype, device=within.device)
    )
    shares = torch.linalg.svdvals(torch.linalg.solve_triangular(root, classes.means.T / longest, upper=False)).square()
    return torch.special.entr(shares / shares.sum()).sum().exp()


_LIDAR = Measure(name="lidar", function=lidar)
add_measure(_LIDAR, variant(_LIDAR, "pairs", function=pair_lidar))
