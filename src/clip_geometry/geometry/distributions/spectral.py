"""Whether two sets spread their variance over equally many directions, whatever the directions are."""

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.spread import singular_values
from clip_geometry.rows.matrix import Rows, as_two_sets, require_spread


@in_kind
def spectral_discrepancy(image: Rows, text: Rows) -> Float[Tensor, ""]:
    """Total variation distance of the normalized spectra of two sets: ½ Σ_k |λ_k/Σλ − κ_k/Σκ|.

    λ and κ are the eigenvalues of the covariances, in descending order. In [0, 1]: 0 where the k-th direction of both
    sets carries the same share of the variance, for all k. O((n + m)d²).

    Args:
        image: Rows, (n, d), n ≥ 2.
        text: Rows, (m, e), m ≥ 2, of any dimension: missing eigenvalues are 0.

    Returns:
        The distance, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: All rows of a set are equal.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.spectral_discrepancy(image, text), 3), round(cg.spectral_discrepancy(image, text[:, :4]), 3)
        (0.049, 0.365)
    """
    image, text = as_two_sets(image, text, ("image", "text"), one_space=False, streams=True)
    require_spread(image, name="image")
    require_spread(text, name="text")
    x, y = (singular_values(rows, center=True).square() for rows in (image, text))
    size = max(len(x), len(y))
    x, y = (torch.nn.functional.pad(each / each.sum(), (0, size - len(each))) for each in (x, y))
    return (x - y).abs().sum() / 2


add_measure(Measure(name="spectral_discrepancy", streams=True, function=spectral_discrepancy))
