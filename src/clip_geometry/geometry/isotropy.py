"""Isotropy of the rows, measured by the partition function and by tests with a p-value."""

from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import Value, in_kind
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.geometry.statistics.moments import as_moments
from clip_geometry.geometry.statistics.spectrum import Partition, log_partition, right_singular_vectors
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Literal, one_of
from clip_geometry.rows.matrix import Rows, as_matrix, as_rows, mean_row, unit_rows

Convention: TypeAlias = Literal["invariant", "canonical", "rows"]


class PartitionIsotropy(NamedTuple):
    """Result of `partition_isotropy` and `partition_over`: two isotropies of the partition function.

    The partition function is Z(v) = Σ_i exp⟨v, w_i⟩ for a direction v and the rows w_i. If the rows are isotropic, it
    is the same for all directions.

    Attributes:
        i1: Smallest divided by largest Z over the directions, in (0, 1]; 1 is isotropic.
        i2: Standard deviation divided by mean of Z over the directions, at least 0; 0 is isotropic.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> isotropic = np.concatenate([np.eye(3), -np.eye(3)])
        >>> result = cg.geometry.partition_isotropy(isotropic)
        >>> round(result.i1, 3), round(result.i2, 3)
        (1.0, 0.0)
    """

    i1: Value
    i2: Value


class SignConventions(NamedTuple):
    """Isotropy under both conventions for the signs of the eigenvectors.

    "invariant" uses E ∪ −E. "canonical" orients each eigenvector toward the mean.
    """

    invariant: PartitionIsotropy
    canonical: PartitionIsotropy


@in_kind
def partition_isotropy(x: Rows, *, convention: Convention = "invariant") -> PartitionIsotropy:
    """Return I1 and I2, two isotropies of the partition function (Mu & Viswanath 2018; Wang et al. 2020).

    The partition function is Z(v) = Σ_i exp⟨v, w_i⟩, where w_i are the rows as given. It is computed for a set E of
    directions v: the eigenvectors of the uncentered xᵀx. i1 = min Z/max Z lies in (0, 1]; 1 is isotropic. i2 = std
    Z/mean Z (ddof 0) is at least 0; 0 is isotropic. Both depend on the scale of the rows: on unit rows i1 ≥ e⁻². Values
    of i2 below about 1e-12 are rounding error.

    Args:
        x: Rows, (n, d), n ≥ 2.
        convention: Which sign each eigenvector has, which the eigendecomposition leaves open. "invariant": both signs,
            E ∪ −E. "canonical": the sign with ⟨v, mean⟩ ≥ 0, which is arbitrary if |⟨v, mean⟩| ≤ 1e-10 × the root mean
            square of the row lengths, as after centering. "rows": reproduces published values, which used the rows of
            the eigenvector matrix (canonical signs, ascending eigenvalues) instead of its columns; the result depends
            almost only on ‖mean‖/√d, and is arbitrary if the rank is below d. If eigenvalues repeat, as for whitened
            rows, the result of every convention is arbitrary. For d = 1, "canonical" and "rows" have one direction, so
            i1 = 1 and i2 = 0.

    Returns:
        A `PartitionIsotropy` with i1 and i2, as floats, or as 0-d float64 tensors for tensor input.

    Raises:
        InputError: There are fewer than two rows, an entry is NaN or infinite, or the convention is unknown.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> result = cg.geometry.partition_isotropy(x)
        >>> round(result.i1, 4), round(result.i2, 3)
        (0.004, 1.959)
    """
    convention = one_of(convention, "convention", (*SignConventions._fields, "rows"))
    return partition_by_rows(x) if convention == "rows" else getattr(partition_by_sign(x), convention)


@in_kind
def partition_by_sign(x: Rows | Partition) -> SignConventions:
    """Return the partition isotropy under both sign conventions, from one decomposition."""
    partition = Partition.of(x)
    canonical = torch.where(partition.along < 0, partition.backward, partition.forward)
    return SignConventions(_isotropy(torch.cat([partition.forward, partition.backward])), _isotropy(canonical))


@in_kind
def partition_by_rows(x: Rows) -> PartitionIsotropy:
    """Return the partition isotropy over the rows of the matrix of canonical eigenvectors."""
    x = as_matrix(x)
    vectors = right_singular_vectors(x)
    canonical = torch.where(mean_row(x) @ vectors < 0, -vectors, vectors)
    return _isotropy(log_partition(x, canonical.T))


@in_kind
def partition_over(x: Rows, directions: Rows) -> PartitionIsotropy:
    """Return the isotropies I1 and I2 of `partition_isotropy` for given directions instead of the eigenvectors.

    If the directions are an orthonormal basis that is unrelated to the data, I2 is about ‖mean‖/√d, whatever the
    distribution of the rows about their mean.

    Args:
        x: Rows, (n, d), n ≥ 2.
        directions: Directions v as rows, (m, d), m ≥ 1.

    Returns:
        A `PartitionIsotropy` with i1 and i2, as floats, or as 0-d float64 tensors for tensor input.

    Raises:
        InputError: The dimensions differ.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8)) + 1
        >>> round(cg.geometry.partition_over(x, np.eye(8)).i2, 3)
        0.13
    """
    x = as_matrix(x)
    directions = as_rows(directions, name="directions", least=1)
    if x.shape[1] != directions.shape[1]:
        raise InputError(
            f"directions have dimension {directions.shape[1]} and x has {x.shape[1]}; expected the same dimension"
        )
    return _isotropy(log_partition(x, directions.double().T))


def _isotropy(log_z: Float[Tensor, " m"]) -> PartitionIsotropy:
    z = (log_z - log_z.max()).exp()
    return PartitionIsotropy(z.min(), z.std(correction=0) / z.mean())


def _remark_on_basis(x: Rows) -> str | None:
    """Return the remark that the basis is arbitrary if there are fewer rows than dimensions."""
    n, d = as_matrix(x).shape
    if n >= d:
        return None
    return f"{n} rows in {d} dimensions leave the basis arbitrary, so other machines and threads give other values"


class IsotropyTest(NamedTuple):
    """Result of `rayleigh_test`, `bingham_test` and `sphericity_test`.

    Args:
        z: Number of standard deviations by which the test statistic exceeds its mean for isotropic rows.
        p_value: Probability of a z at least this large for isotropic rows; small values speak against isotropy.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> result = cg.geometry.rayleigh_test(np.random.default_rng(0).normal(size=(100, 8)) + 0.3)
        >>> round(result.z, 1), result.p_value < 0.001
        (12.1, True)
    """

    z: Value
    p_value: Value


@in_kind
def rayleigh_test(x: Rows) -> IsotropyTest:
    """Test whether the directions of the rows have a common mean (Rayleigh test).

    The null hypothesis is that the directions are uniform on the sphere. The statistic is n‖ū‖², where ū is the mean of
    the unit rows. For uniform directions it has mean 1 and variance 2(n − 1)/(nd). The p-value comes from a shifted and
    scaled χ² distribution with the same first three moments (Pearson's curve). For large n it agrees with the classical
    χ²_d test; it also holds for n < d. The cost is O(nd). Source: Mardia & Jupp 2000, section 10.4.

    Args:
        x: Rows, (n, d), n ≥ 3, d ≥ 2, none of them zero.

    Returns:
        An `IsotropyTest` with z and p_value, as floats, or as 0-d float64 tensors for tensor input.

    Raises:
        InputError: A row is zero, or n or d is too small.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> noise, shifted = cg.geometry.rayleigh_test(x), cg.geometry.rayleigh_test(x + 0.3)
        >>> round(noise.p_value, 2), round(shifted.z, 1)
        (0.89, 12.1)
    """
    unit = unit_rows(as_matrix(x, least=3, least_d=2))
    n, d = unit.shape
    # the joint third moment of three different pairs of rows is nonzero only around a triangle, where it is 1/d²
    return _upper_tail(
        n * mean_row(unit).square().sum() - 1, 2 * (n - 1) / (n * d), 8 * (n - 1) * (n - 2) / (n * d) ** 2
    )


@in_kind
def bingham_test(x: Rows) -> IsotropyTest:
    """Test whether the rows lie along some axes more than along others, whatever their sign (Bingham test).

    The null hypothesis is that the directions are uniform on the sphere. The statistic is n tr T² − (n − 1)/d − 1,
    where T is the mean of u uᵀ over the unit rows u. For uniform directions it has mean 0 and variance 4(n − 1)(d −
    1)/(nd²(d + 2)). The p-value is computed as in `rayleigh_test`; for large n it agrees with the classical χ² test
    with (d − 1)(d + 2)/2 degrees of freedom.

    The test also detects rows that point both ways along an axis, whose mean is zero, so that the Rayleigh test misses
    them. The cost is O(nd min(n, d)). Source: Bingham 1974; Mardia & Jupp 2000, section 10.7.

    Args:
        x: Rows, (n, d), n ≥ 3, d ≥ 2, none of them zero.

    Returns:
        An `IsotropyTest` with z and p_value, as floats, or as 0-d float64 tensors for tensor input.

    Raises:
        InputError: A row is zero, or n or d is too small.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> noise, stretched = cg.geometry.bingham_test(x), cg.geometry.bingham_test(x * [2, 1, 1, 1, 1, 1, 1, 1])
        >>> round(noise.p_value, 2), round(stretched.z, 1)
        (0.35, 7.5)
    """
    unit = unit_rows(as_rows(x, least=3, least_d=2))
    n, d = unit.shape
    products = unit.T @ unit if d <= n else unit @ unit.T
    sixth = 15 / (d * (d + 2) * (d + 4)) - 9 / (d**2 * (d + 2)) + 2 / d**3  # E(cos² − 1/d)³
    triangle = (d - 1) * (d + 2) / 2 * (2 / (d * (d + 2))) ** 3
    third = 4 * (n - 1) / n**2 * (sixth + 2 * (n - 2) * triangle)
    return _upper_tail(
        products.square().sum() / n - 1 - (n - 1) / d, 4 * (n - 1) * (d - 1) / (n * d**2 * (d + 2)), third
    )


@in_kind
def sphericity_test(x: Rows) -> IsotropyTest:
    """Test whether Gaussian rows have the same variance in all directions about their mean (John's test).

    The statistic is tr S²/(tr S)², where S is the covariance; z is its standardized value, with the exact mean and
    variance for isotropic Gaussian rows. The p-value comes from a shifted and scaled χ² distribution with m(m + 1)/2 −
    1 degrees of freedom, m = min(n − 1, d). For large n it agrees with John's χ² test, and for large n and d with the
    normal limit of Ledoit & Wolf; it also holds for n < d. Rows of equal length, such as unit rows, are not Gaussian:
    use `bingham_test` for them. The cost is O(nd min(n, d)).

    Args:
        x: Rows, (n, d), n ≥ 3, d ≥ 2.

    Returns:
        An `IsotropyTest` with z and p_value, as floats, or as 0-d float64 tensors for tensor input.

    Raises:
        InputError: All rows are equal, or n or d is too small.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> noise, stretched = cg.geometry.sphericity_test(x), cg.geometry.sphericity_test(x * [2, 1, 1, 1, 1, 1, 1, 1])
        >>> round(noise.p_value, 2), round(stretched.z, 1)
        (0.24, 11.4)
    """
    x = as_rows(x, least=3, least_d=2)
    products = as_moments(x.double() / x.abs().amax().clamp(min=1e-300)).M2  # scaled so that squares stay in range
    n, d = len(x) - 1, x.shape[1]
    size = n * d
    # from the moments of the traces of a Wishart matrix and of its square; in integers, so that the small difference is
    # exact
    square = 4 * size * (2 * n**2 + 2 * d**2 + 5 * (n * d + n + d + 1)) + (size * (n + d + 1)) ** 2
    fourth = size * (size + 2) * (size + 4) * (size + 6)
    variance = (square * (size + 2) ** 2 - fourth * (n + d + 1) ** 2) / (fourth * (size + 2) ** 2)
    degrees = min(n, d) * (min(n, d) + 1) / 2 - 1
    excess = products.square().sum() / products.trace().square() - (n + d + 1) / (size + 2)
    return _upper_tail(excess, variance, variance**1.5 * (8 / degrees) ** 0.5)


def _upper_tail(excess: Float[Tensor, ""], variance: float, third: float) -> IsotropyTest:
    """Return the upper tail of a centered statistic, from the scaled χ² with the same variance and third moment."""
    z = excess / variance**0.5
    degrees = 8 * variance**3 / third**2
    quantile = (degrees + z * (2 * degrees) ** 0.5).clamp(min=0)
    return IsotropyTest(z, torch.special.gammaincc(quantile.new_tensor(degrees / 2), quantile.detach() / 2))


_I1 = Measure(
    name="isotropy_i1", streams=True, function=partition_by_sign, statistic=Partition, attribute="invariant.i1"
)
_I2 = replace(_I1, name="isotropy_i2", attribute="invariant.i2")
_ROWS: Any = {"function": partition_by_rows, "statistic": None, "streams": True, "remark": _remark_on_basis}
add_measure(_I1, variant(_I1, "canonical", attribute="canonical.i1"), variant(_I1, "rows", attribute="i1", **_ROWS))
add_measure(_I2, variant(_I2, "canonical", attribute="canonical.i2"), variant(_I2, "rows", attribute="i2", **_ROWS))
add_measure(
    Measure("rayleigh", rayleigh_test, attribute="z", streams=True),
    Measure("bingham", bingham_test, attribute="z"),
    Measure("sphericity", sphericity_test, attribute="z"),
)
