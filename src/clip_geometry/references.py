"""Reference implementations as variants of our measures. Their packages are imported when they are called."""

import numpy as np
from jaxtyping import Float
from torch import Tensor, tensor

from clip_geometry.geometry import add_measure, measures, variant
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.rows.matrix import Rows, as_rows, require_spread


@in_kind
def isoscore_package(x: Rows) -> Float[Tensor, ""]:
    """Compute IsoScore with its authors' package, which uses scikit-learn's principal components in float32.

    The result differs from `isoscore` by float32 rounding: about 1e-6, or more if n is below d. Source: Rudman et al.
    2022, package IsoScore 2.

    Args:
        x: Rows, (n, d), n ≥ 2, d ≥ 2.

    Returns:
        The score in [0, 1], a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: All rows are equal.
    """
    from IsoScore import IsoScore

    x = as_rows(x, least_d=2)
    require_spread(x)
    rows = x.detach().cpu().double().numpy().astype(np.float32)
    return tensor(float(IsoScore.IsoScore(rows))).double()


add_measure(variant(measures["isoscore"], "package", function=isoscore_package, options={}))
