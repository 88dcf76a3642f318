"""Energy distance: how far two sets of rows are from one distribution, with their means or about them."""

from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.geometry.statistics.distance_means import DistanceMeans
from clip_geometry.rows.arguments import Flag, flag
from clip_geometry.rows.matrix import Rows


@in_kind
def energy_distance(
    image: Rows | DistanceMeans, text: Rows | None = None, *, center: Flag = False
) -> Float[Tensor, ""]:
    """Energy distance of two sets: 2 mean‖x − y‖ − mean‖x − x'‖ − mean‖y − y'‖, rows as given.

    The means run over all pairs of rows, a row and itself included, so that it is the distance of the two empirical
    distributions: at least 0, and 0 only where they are equal. With center=True each set is taken about its own mean,
    which leaves what no shift can mend. O(nmd), in blocks. Source: Székely & Rizzo 2013.

    Args:
        image: Rows, (n, d), n ≥ 2; or `DistanceMeans` alone.
        text: Rows, (m, d), m ≥ 2.
        center: Subtract the mean of each set from it first.

    Returns:
        The distance, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The dimensions differ.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.energy_distance(image, text + 1), 3), round(cg.energy_distance(image, text + 1, center=True), 3)
        (1.949, 0.04)
    """
    center = flag(center, "center")
    found = DistanceMeans.of(image, text).means(center=center)
    return (2 * found.between - found.image - found.text).clamp(min=0)


_ENERGY = Measure(name="energy_distance", function=energy_distance, statistic=DistanceMeans, streams=True)
add_measure(_ENERGY, variant(_ENERGY, "centered", options={"center": True}))
