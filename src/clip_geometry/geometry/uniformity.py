"""Alignment and uniformity (Wang & Isola 2020): matching pairs are close, and all rows are spread out."""

from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.statistics.kernels import CrossKernelSums, KernelSums
from clip_geometry.geometry.statistics.sums import PairDistance
from clip_geometry.rows.arguments import Number, positive_number
from clip_geometry.rows.matrix import Rows


@in_kind
def alignment(x: Rows | PairDistance, y: Rows | None = None) -> Float[Tensor, ""]:
    """Return the mean squared distance of matching rows, mean_i ‖x_i − y_i‖².

    Rows are used as given. The value is at least 0; lower is better aligned, and 0 means that all pairs coincide. On
    unit rows it is at most 4 and equals 2 − 2 `matching_cosine`. Source: Wang & Isola 2020.

    Args:
        x: Rows, (n, d), n ≥ 1; or a precomputed `PairDistance` in place of both arguments.
        y: Rows, (n, d), aligned with x.

    Returns:
        The mean as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: The numbers of rows or the dimensions differ.

    Example:
        >>> import clip_geometry as cg
        >>> cg.geometry.alignment([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]])
        1.0
    """
    pairs = PairDistance.of(x, y)
    return pairs.apart / pairs.n


@in_kind
def uniformity(x: Rows | KernelSums, *, t: Number = 2.0) -> Float[Tensor, ""]:
    """Return the uniformity, log mean_{i<j} exp(−t‖x_i − x_j‖²): how evenly the rows are spread.

    Rows are used as given. The value is at most 0, which means that all rows coincide; lower means more evenly spread.
    On unit rows it is at least −4t, and about −2t for many evenly spread rows of high dimension. The cost is O(n²d), in
    blocks that use each pair once, without an n × n matrix in memory. Source: Wang & Isola 2020.

    Args:
        x: Rows, (n, d), n ≥ 2; or a precomputed `KernelSums`.
        t: Positive factor of the squared distance (inverse temperature).

    Returns:
        The logarithm as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: t is not positive and finite.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        >>> round(cg.geometry.uniformity(unit), 3)
        -3.091
    """
    return KernelSums.of(x).log_mean(positive_number(t, "t"))


@in_kind
def cross_uniformity(x: Rows | CrossKernelSums, y: Rows | None = None, *, t: Number = 2.0) -> Float[Tensor, ""]:
    """Return the cross-modal uniformity, log mean_{i≠j} exp(−t‖x_i − y_j‖²), over non-matching rows.

    Rows are used as given. The value is at most 0, which means that all rows of both sets coincide; lower means more
    evenly spread. On unit rows it is at least −4t, and about −2t for many evenly spread rows of high dimension. The
    cost is O(n²d), in blocks, without an n × n matrix in memory. Source: Fahim et al. 2024, as computed in their code
    (`cross_encoder_uniform_loss` of github.com/abrar-fahim/contrastive-gap, t = 2).

    Args:
        x: Rows, (n, d), n ≥ 2; or a precomputed `CrossKernelSums` in place of both arguments.
        y: Rows, (n, d), aligned with x.
        t: Positive factor of the squared distance (inverse temperature).

    Returns:
        The logarithm as a float, or as a 0-d float64 tensor for tensor input.

    Raises:
        InputError: The numbers of rows or the dimensions differ, or t is not positive and finite.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rows = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> image, text = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
        >>> round(cg.geometry.cross_uniformity(image, text), 3)
        -3.088
    """
    return CrossKernelSums.of(x, y).log_mean(positive_number(t, "t"))


add_measure(Measure(name="alignment", function=alignment, statistic=PairDistance, streams=True))
add_measure(Measure(name="uniformity", function=uniformity, statistic=KernelSums, streams=True))
add_measure(Measure(name="cross_uniformity", function=cross_uniformity, statistic=CrossKernelSums, streams=True))
