"""ABID: intrinsic dimension from the angles between the neighbors of a row."""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.arguments import Integer
from clip_geometry.geometry._core.kinds import in_kind
from clip_geometry.geometry._core.neighbors import as_rows_with_neighbors, nearest
from clip_geometry.geometry._core.rows import Rows, as_rows
from clip_geometry.geometry.dimension.nearest import different_rows, duplicates
from clip_geometry.geometry.measure import Measure, add_measure

ENTRIES = 2**21  # of the differences to neighbors that are taken at a time


@in_kind
def abid(x: Rows, *, k: Integer = 50) -> Float[Tensor, ""]:
    """Angle-based intrinsic dimension: of the neighborhoods of k rows, averaged over the rows.

    1/mean_{j,l} cos²(x_j − x_i, x_l − x_i) per row i, over all k² pairs of its nearest rows, j = l included: directions
    spread over δ dimensions have cos² = 1/δ on average. In [1, min(k, d)]. It presumes that neighbors lie all around a
    row: in noise of many dimensions all of them lie on one side, the inner one, where cos is about 1/2, and the value
    about 4. Of duplicated rows one is kept; the measure's `remark` counts the others. O(n²d + nkd min(k, d)). Source:
    Thordsen & Schubert 2022.

    Args:
        x: Rows, (n, d), at least k + 1 of them different.
        k: Number of neighbors, ≥ 2.

    Returns:
        The dimension, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: There are fewer rows, or k < 2.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(300, 2)) @ np.eye(2, 8)
        >>> round(cg.abid(x), 2)
        1.9
    """
    x, k = as_rows_with_neighbors(as_rows(x), k, least_k=2)
    x = different_rows(x, "euclidean", least=k + 1)
    near = nearest(x, k)[1]
    step = max(1, ENTRIES // (k * x.shape[1]))
    parts = []
    for rows, found in zip(x.double().split(step), near.split(step), strict=True):
        arrows = x.double()[found] - rows[:, None]
        arrows = arrows / arrows.abs().amax(-1, keepdim=True)  # so that squares stay in range
        arrows = arrows / arrows.norm(dim=-1, keepdim=True)
        products = arrows @ arrows.mT if k <= x.shape[1] else arrows.mT @ arrows
        parts.append(k**2 / products.square().sum((1, 2)))
    return torch.cat(parts).mean()


add_measure(Measure(name="abid", function=abid, remark=duplicates("euclidean")))
