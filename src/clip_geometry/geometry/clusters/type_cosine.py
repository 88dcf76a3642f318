"""Cosines of labeled rows between and within types, exactly and linear in n (Cai et al. 2021)."""

from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure
from clip_geometry.geometry.statistics.class_sums import ClassSums, class_sums
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import Labels, Rows, as_codes, as_matrix, unit_rows


@in_kind
def inter_type_cosine(x: Rows, types: Labels) -> Float[Tensor, ""]:
    """Mean cosine similarity of instances of two different types, each pair of types counted once whatever its size.

    (‖Σm_t‖² − Σ‖m_t‖²)/(T(T − 1)), m_t the mean of the unit rows u of type t, T types: the exact expectation over one
    random instance per type. Computed as 1 − [Σ‖m_t − m̄‖²/(T − 1) + mean_t s_t], s_t the mean of ‖u − m_t‖² over type
    t, which is the same and does not cancel. In [−1, 1]: 0 without a common direction, 1 where all rows point the same
    way. Source: Cai et al. 2021.

    Args:
        x: Rows, (n, d), n ≥ 2.
        types: Type of each row, (n,), at least two values.

    Returns:
        The mean, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, or there is a single type.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.inter_type_cosine(x, np.arange(100) % 5), 3)
        0.487
    """
    sums = _unit_sums(x, types, least=2)
    between = (sums.offsets - sums.offsets.mean(0)).square().sum() / (len(sums.counts) - 1)
    return (1 - (between + (sums.scatters / sums.counts).mean())).clamp(-1, 1)


@in_kind
def intra_type_cosine(x: Rows, types: Labels) -> Float[Tensor, ""]:
    """Mean cosine similarity of two different instances of one type, averaged over types with at least two.

    Mean over types with n_t ≥ 2 of (‖Σ_t u‖² − n_t)/(n_t(n_t − 1)), u the unit rows. Computed as 1 − Σ_t‖u − m_t‖²/(n_t
    − 1), which is the same and does not cancel. Types of a single row are left out (`skipped_types` says how many). In
    [−1, 1]; 1 where the rows of each type point the same way. Source: Cai et al. 2021.

    Args:
        x: Rows, (n, d), n ≥ 3.
        types: Type of each row, (n,), at least two values, one of them on two rows.

    Returns:
        The mean, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: A row is zero, there is a single type, or no type has two rows.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.intra_type_cosine(x, np.arange(100) % 5), 3)
        0.486
    """
    sums = _unit_sums(x, types, least=3)
    several = sums.counts > 1
    if not several.any():
        raise InputError(f"each of the {len(several)} rows has a type of its own; expected a type with two rows")
    return (1 - (sums.scatters[several] / (sums.counts[several] - 1)).mean()).clamp(-1, 1)


def skipped_types(x: Rows, types: Labels) -> str | None:
    """How many types intra_type_cosine leaves out, in words; None where it takes all."""
    codes, count = as_codes(types, len(x))
    single = int((codes.bincount() == 1).sum())
    return f"{single} of {count} types have a single row and are left out" if single else None


def _unit_sums(x: Rows, types: Labels, *, least: int) -> ClassSums:
    x = as_matrix(x, least=least)
    codes, count = as_codes(types, len(x))
    return class_sums(unit_rows(x), codes, count)


add_measure(Measure(name="inter_type_cosine", streams=True, aggregated=True, function=inter_type_cosine))
add_measure(
    Measure(name="intra_type_cosine", streams=True, aggregated=True, function=intra_type_cosine, remark=skipped_types)
)
