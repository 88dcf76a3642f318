"""Energy distance: how far two sets of rows are from one distribution, with their means or about them."""

from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.arguments import Flag, flag
from clip_geometry.geometry._core.distances import distances
from clip_geometry.geometry._core.kinds import in_kind
from clip_geometry.geometry._core.left_out import LeftOut
from clip_geometry.geometry._core.rows import Matrix, Rows, about, as_two_matrices, mean_row, total
from clip_geometry.geometry.measure import Measure, add_measure, variant

BLOCK = 1024  # rows: 8 MB of float64 distances


@in_kind
def energy_distance(image: Rows, text: Rows, *, center: Flag = False) -> Float[Tensor, ""]:
    """Energy distance of two sets: 2 mean‖x − y‖ − mean‖x − x'‖ − mean‖y − y'‖, rows as given.

    The means run over all pairs of rows, a row and itself included, so that it is the distance of the two empirical
    distributions: at least 0, and 0 only where they are equal. With center=True each set is taken about its own mean,
    which leaves what no shift can mend. O(nmd), in blocks. Source: Székely & Rizzo 2013.

    Args:
        image: Rows, (n, d), n ≥ 2.
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
    image, text = as_two_matrices(image, text, ("image", "text"))
    x_mean, y_mean = mean_row(image), mean_row(text)
    if not center:  # about one point near both, where products do not cancel
        x_mean = y_mean = (x_mean + y_mean) / 2
    x, y = about(image, x_mean), about(text, y_mean)
    between = total(distances(a, b).sum() for a in x.split(BLOCK) for b in y.split(BLOCK)) / (len(x) * len(y))
    return (2 * between - _mean_within(x) - _mean_within(y)).clamp(min=0)


def _mean_within(x: Float[Matrix, "n d"]) -> Float[Tensor, ""]:
    """Over all n² pairs, each of different rows measured once."""

    def sums() -> Iterator[Tensor]:
        for start, block in zip(range(0, len(x), BLOCK), x.split(BLOCK), strict=True):
            yield distances(block, block).sum()
            for later in range(start + BLOCK, len(x), BLOCK):
                yield 2 * distances(block, x[later : later + BLOCK]).sum()

    return total(sums()) / len(x) ** 2


def _left_out(image: LeftOut, text: LeftOut, **_) -> Iterator[Tensor]:
    """energy_distance without each block, from the distances of all rows."""
    middle = (mean_row(image.rows) + mean_row(text.rows)) / 2
    x, y = image.rows.double() - middle, text.rows.double() - middle

    def means(a: Tensor, of_a: LeftOut, b: Tensor, of_b: LeftOut) -> Float[Tensor, " blocks"]:
        parts = zip(a.split(BLOCK), of_a.weights.split(BLOCK, dim=1), strict=True)
        sums = total((kept.T * (distances(part, b) @ of_b.weights.T)).sum(0) for part, kept in parts)
        return sums / (of_a.counts * of_b.counts)

    apart = 2 * means(x, image, y, text) - means(x, image, x, image) - means(y, text, y, text)
    return iter(apart.clamp(min=0))


_ENERGY = Measure(name="energy_distance", streams=True, function=energy_distance, left_out=_left_out)
add_measure(
    _ENERGY,
    variant(
        _ENERGY,
        "centered",
        options={"center": True},
        left_out=None,  # every block left out moves the means
    ),
)
