"""Reference implementations as variants of our measures; their packages are imported when they are called."""

import numpy as np
from jaxtyping import Float
from torch import Tensor, tensor

from clip_geometry.geometry import add_measure, measures, variant
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.rows.matrix import Rows, as_rows, require_spread


@in_kind
def isoscore_package(x: Rows) -> Float[Tensor, ""]:
    """IsoScore as its authors' package computes it: principal components by scikit-learn, in float32.

    In [0, 1]. Differs from `isoscore` by the rounding of float32: about 1e-6, more where n is below d. Source: Rudman
    et al. 2022, package IsoScore 2.

    Args:
        x: Rows, (n, d), n ≥ 2, d ≥ 2.

    Returns:
        The score, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: All rows are equal.
    """
    from IsoScore import IsoScore

    x = as_rows(x, least_d=2)
    require_spread(x)
    rows = x.detach().cpu().double().numpy().astype(np.float32)
    return tensor(float(IsoScore.IsoScore(rows))).double()


add_measure(variant(measures["isoscore"], "package", function=isoscore_package, options={}))
