"""Conformity: how much a row points where the others point (Levi & Gilboa 2025). Linear in n."""

from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import arrays_in_kind, in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.rows.matrix import Matrix, Rows, as_matrix, blocks, in_one_piece, mean_row, unit_rows


@arrays_in_kind
def conformity(x: Rows) -> Float[Tensor, " n"]:
    """Mean cosine similarity of each row to all other rows, exactly, in O(nd).

    ⟨u_i, Σ_{j≠i} u_j⟩/(n − 1), u the unit rows. Computed as 1 − (n‖u_i − ū‖² + Σ_j‖u_j − ū‖²)/(2(n − 1)), which is the
    same and does not cancel where all rows nearly coincide. In [−1, 1]: high for common rows, low for unusual ones.
    Their mean is `average_cosine`. Source: Levi & Gilboa 2025.

    Args:
        x: Rows, (n, d), n ≥ 2.

    Returns:
        The conformity of each row, (n,), float64.

    Raises:
        InputError: A row is zero.

    Example:
        >>> import clip_geometry as cg
        >>> cg.conformity([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).tolist()
        [0.5, 0.5, 0.0]
    """
    squares = _squares_from_mean(as_matrix(x))
    n = len(squares)
    return 1 - (n * squares + squares.sum()) / (2 * (n - 1))


@in_kind
def conformity_std(x: Rows) -> Float[Tensor, ""]:
    """Standard deviation of `conformity` over the rows (population, ddof 0).

    n std_i(‖u_i − ū‖²)/(2(n − 1)): what all conformities share drops out, so no digits are lost to it. In [0, 1]; 0
    where all rows are equally common. Source: Levi & Gilboa 2025.

    Args:
        x: Rows, (n, d), n ≥ 3, because two rows always conform equally.

    Returns:
        The standard deviation, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.conformity_std(x), 3)
        0.119
    """
    squares = _squares_from_mean(as_matrix(x, least=3))
    n = len(squares)
    return squares.std(correction=0) * (n / (2 * (n - 1)))


def _squares_from_mean(x: Float[Matrix, "n d"]) -> Float[Tensor, " n"]:
    """‖u_i − ū‖² of the unit rows u."""
    u = unit_rows(x)
    mean = mean_row(u)
    return in_one_piece(((block - mean).square().sum(1) for block in blocks(u)), len(u))


add_measure(Measure(name="conformity_std", streams=True, function=conformity_std))
