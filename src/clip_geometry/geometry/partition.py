"""Isotropy by the partition function: Z(v) = Σ_i exp⟨v, w_i⟩, how much it varies with the direction v."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import Value, in_kind
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.geometry.statistics.partition import Partition, log_partition, right_singular_vectors
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import one_of
from clip_geometry.rows.matrix import Rows, as_matrix, as_rows, mean_row

if TYPE_CHECKING:
    Convention: TypeAlias = Literal["invariant", "canonical", "rows"]
else:  # an unknown one is our sentence, not a type checker's
    Convention = Any


class PartitionIsotropy(NamedTuple):
    i1: Value
    i2: Value


class SignConventions(NamedTuple):
    """invariant: over E ∪ −E. canonical: each eigenvector on the side of the mean."""

    invariant: PartitionIsotropy
    canonical: PartitionIsotropy


@in_kind
def partition_isotropy(x: Rows, *, convention: Convention = "invariant") -> PartitionIsotropy:
    """Isotropy I1 and I2 by the partition function (Mu & Viswanath 2018; Wang et al. 2020), rows as given.

    Z(v) = Σ_i exp⟨v, w_i⟩ over a set E of directions, the eigenvectors of xᵀx (uncentered): i1 = min_E Z/max_E Z in (0,
    1], 1 is isotropic; i2 = std_E Z/mean_E Z ≥ 0 (population), 0 is isotropic. Both depend on the scale: on unit rows
    I1 ≥ e⁻². An I2 below about 1e-12 is rounding.

    Args:
        x: Rows, (n, d), n ≥ 2.
        convention: Eigenvectors have no sign. "invariant": E ∪ −E. "canonical": each v with ⟨v, mean⟩ ≥ 0; undetermined
            where |⟨v, mean⟩| ≤ 1e-10 × the root mean square of the row lengths, as after centering. "rows": the rows of
            the matrix of canonical eigenvectors (ascending eigenvalues) instead of its columns, which reproduces
            published values and says nothing beyond ‖mean‖/√d; arbitrary where the rank is below d. None is unique
            where eigenvalues repeat (whitened data). With d = 1 the last two have one direction: 1 and 0.

    Returns:
        A `PartitionIsotropy`: i1 and i2, floats (for tensors 0-d float64 tensors).

    Raises:
        InputError: The rows are not usable, or the convention is unknown.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> found = cg.partition_isotropy(x)
        >>> round(found.i1, 4), round(found.i2, 3)
        (0.004, 1.959)
    """
    convention = one_of(convention, "convention", (*SignConventions._fields, "rows"))
    return partition_by_rows(x) if convention == "rows" else getattr(partition_by_sign(x), convention)


@in_kind
def partition_by_sign(x: Rows | Partition) -> SignConventions:
    """partition_isotropy in both conventions of signs, from one decomposition."""
    found = Partition.of(x)
    canonical = torch.where(found.along < 0, found.backward, found.forward)
    return SignConventions(_isotropy(torch.cat([found.forward, found.backward])), _isotropy(canonical))


@in_kind
def partition_by_rows(x: Rows) -> PartitionIsotropy:
    """partition_isotropy over the rows of the canonical eigenvector matrix."""
    x = as_matrix(x)
    vectors = right_singular_vectors(x)
    canonical = torch.where(mean_row(x) @ vectors < 0, -vectors, vectors)
    return _isotropy(log_partition(x, canonical.T))


@in_kind
def partition_over(x: Rows, directions: Rows) -> PartitionIsotropy:
    """Isotropy I1 and I2 over given directions instead of the eigenvectors.

    Over a basis unrelated to the data, I2 is near ‖mean‖/√d, whatever else the rows do.

    Args:
        x: Rows, (n, d), n ≥ 2.
        directions: Directions as rows, (m, d), m ≥ 1.

    Returns:
        A `PartitionIsotropy`: i1 and i2, floats (for tensors 0-d float64 tensors).

    Raises:
        InputError: The dimensions differ.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.partition_over(x, np.eye(8)).i2, 3)
        0.13
    """
    x, directions = as_matrix(x), as_rows(directions, name="directions", least=1)
    if x.shape[1] != directions.shape[1]:
        raise InputError(f"directions have dimension {directions.shape[1]} and x has {x.shape[1]}; expected the same")
    return _isotropy(log_partition(x, directions.double().T))


def _isotropy(log_z: Float[Tensor, " m"]) -> PartitionIsotropy:
    z = (log_z - log_z.max()).exp()
    return PartitionIsotropy(z.min(), z.std(correction=0) / z.mean())


_I1 = Measure(
    name="isotropy_i1", streams=True, function=partition_by_sign, statistic=Partition, attribute="invariant.i1"
)
_I2 = replace(_I1, name="isotropy_i2", attribute="invariant.i2")


def _arbitrary(x: Rows) -> str | None:
    n, d = as_matrix(x).shape
    return f"{n} rows in {d} dimensions leave the basis arbitrary: other machines and threads differ" if n < d else None


_ROWS: Any = {"function": partition_by_rows, "statistic": None, "streams": True, "remark": _arbitrary}
add_measure(_I1, variant(_I1, "canonical", attribute="canonical.i1"), variant(_I1, "rows", attribute="i1", **_ROWS))
add_measure(_I2, variant(_I2, "canonical", attribute="canonical.i2"), variant(_I2, "rows", attribute="i2", **_ROWS))
