"""The gap as optimal transport sees it: a shift of the means, and what is left once both means are taken off."""

from collections.abc import Iterator
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry._core.arguments import DRAWS, Flag, Integer, flag, seed_number, whole_number
from clip_geometry.geometry._core.kinds import in_kind
from clip_geometry.geometry._core.left_out import LeftOut
from clip_geometry.geometry._core.rows import Rows, as_two_sets, mean_row, total
from clip_geometry.geometry.measure import Measure, add_measure, variant
from clip_geometry.registry import InputError

DIRECTIONS = 512
PROJECTED = 2**22  # numbers at a time: 32 MB
ROUNDING = 1e-28  # of the mean square of all entries: sets that are this near are equal but for last digits


@in_kind
def sliced_wasserstein(
    image: Rows, text: Rows, *, center: Flag = False, directions: Integer = DIRECTIONS, seed: Integer = 0
) -> Float[Tensor, ""]:
    """Sliced 2-Wasserstein distance: √ mean W₂² of the two sets projected on random directions, rows as given.

    W₂² of projections is the mean squared difference of their quantiles, and splits exactly into the squared difference
    of the means and W₂² about the means. The means' part is taken over all directions, ‖mean(image) − mean(text)‖²/d,
    the rest over orthonormal random ones. At least 0. O((n + m)d · directions). Source: Bonneel et al. 2015.

    Args:
        image: Rows, (n, d), n ≥ 2.
        text: Rows, (m, d), m ≥ 2.
        center: Subtract the mean of each set from it first: the rest alone.
        directions: Number of directions; d at a time are orthonormal.
        seed: Seed of the directions.

    Returns:
        The distance, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The dimensions differ, or there are no directions.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.sliced_wasserstein(image, text + 1), 3)
        1.056
        >>> round(cg.sliced_wasserstein(image, text + 1, center=True), 3)
        0.18
    """
    shift, rest, _ = _parts(image, text, directions, seed)
    return rest.sqrt() if flag(center, "center") else (shift + rest).sqrt()


@in_kind
def gap_shift_share(
    image: Rows, text: Rows, *, directions: Integer = DIRECTIONS, seed: Integer = 0
) -> Float[Tensor, ""]:
    """Share of the gap that is a shift of the means: ‖mean(image) − mean(text)‖²/d over `sliced_wasserstein`².

    In [0, 1]: 1 where one set is the other, shifted; 0 where the means agree. One minus it is the distributional
    remainder, which centering leaves. The split is that of Liu et al. 2026 into centroid and distribution gap, after
    the abstract; the distance behind it is ours.

    Args:
        image: Rows, (n, d), n ≥ 2.
        text: Rows, (m, d), m ≥ 2.
        directions: Number of directions; d at a time are orthonormal.
        seed: Seed of the directions.

    Returns:
        The share, a float (for tensors a 0-d float64 tensor).

    Raises:
        InputError: The dimensions differ, there are no directions, or the two sets are equal (0/0).

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> round(cg.gap_shift_share(image, text + 1), 3), round(cg.gap_shift_share(image, 3 * text), 3)
        (0.971, 0.018)
    """
    shift, rest, size = _parts(image, text, directions, seed)
    if shift + rest <= ROUNDING * size:
        raise InputError("image and text are the same set of rows; there is no gap to divide (0/0)")
    return shift / (shift + rest)


def _parts(
    image: Rows, text: Rows, directions: Integer, seed: Integer
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""]]:
    """The means' part of the squared distance, the rest, and the mean square of all entries."""
    count, seed = whole_number(directions, "directions", most=DRAWS), seed_number(seed)
    image, text = as_two_sets(image, text, ("image", "text"))
    means = mean_row(image), mean_row(text)
    x, y = image.double() - means[0], text.double() - means[1]
    axes = random_directions(x.shape[1], count, seed).to(x.device)
    parts = axes.split(max(1, PROJECTED // (len(x) + len(y))), dim=1)
    ordered = (((x @ part).sort(dim=0).values, (y @ part).sort(dim=0).values) for part in parts)
    rest = total(_squared_wasserstein(*both).sum() for both in ordered) / count
    squares = [rows.square().mean() + mean.square().mean() for rows, mean in ((x, means[0]), (y, means[1]))]
    return (means[0] - means[1]).square().mean(), rest, torch.stack(squares).mean()


def _left_out(
    image: LeftOut, text: LeftOut, *, center: bool = False, directions: int = DIRECTIONS, seed: int = 0
) -> Iterator[Tensor]:
    """sliced_wasserstein without each block."""
    shifts, rests = _parts_without_each(image, text, directions, seed)
    return iter((rests if center else shifts + rests).sqrt())


def _share_left_out(image: LeftOut, text: LeftOut, *, directions: int = DIRECTIONS, seed: int = 0) -> Iterator[Tensor]:
    """gap_shift_share without each block."""
    shifts, rests = _parts_without_each(image, text, directions, seed)
    return iter(shifts / (shifts + rests))


def _parts_without_each(
    image: LeftOut, text: LeftOut, count: int, seed: int
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    """The means' part of the squared distance and the rest, without each block: rows are projected and sorted once."""
    key = ("sliced_wasserstein", text, count, seed)
    if key not in image.shared:
        axes = random_directions(image.rows.shape[1], count, seed).to(image.rows.device)
        rests = image.means.new_zeros(image.blocks)
        for part in axes.split(max(1, PROJECTED // (len(image) + len(text))), dim=1):
            without_each = zip(*(_sorted_without_each(each, part) for each in (image, text)), strict=True)
            rests = rests + torch.stack([_squared_wasserstein(x, y).sum() for x, y in without_each]) / count
        image.shared[key] = (image.means - text.means).square().mean(1), rests
    return image.shared[key]


def _sorted_without_each(rows: LeftOut, axes: Float[Tensor, "d l"]) -> Iterator[Float[Tensor, "m l"]]:
    """The projections of each subset about its mean, ascending."""
    base = mean_row(rows.rows)
    values, order = ((rows.rows.double() - base) @ axes).T.sort(dim=1)
    for block, mean in enumerate((rows.means - base) @ axes):
        yield (values[rows.kept(block)[order]].view(len(values), -1) - mean[:, None]).T


@lru_cache(maxsize=4)  # the jackknife asks for them again and again
def random_directions(d: int, count: int, seed: int) -> Float[Tensor, "d l"]:
    """Unit vectors, uniform on the sphere, d at a time orthonormal."""
    generator = torch.Generator().manual_seed(seed)
    counts = [min(d, count - start) for start in range(0, count, d)]
    drawn = (torch.randn(d, some, generator=generator, dtype=torch.float64) for some in counts)
    return torch.cat([torch.linalg.qr(each).Q for each in drawn], dim=1)


def _squared_wasserstein(x: Float[Tensor, "n l"], y: Float[Tensor, "m l"]) -> Float[Tensor, " l"]:
    """W₂² of each column, in ascending order: the mean squared difference of the quantile functions."""
    n, m = len(x), len(y)
    if n == m:
        return (x - y).square().mean(0)
    # in units of 1/(nm) both quantile functions are constant between these ends
    ends = torch.cat([m * torch.arange(1, n + 1), n * torch.arange(1, m + 1)]).unique().to(x.device)
    lengths = ends.diff(prepend=ends.new_zeros(1)).double() / (n * m)
    return lengths @ (x[(ends - 1) // m] - y[(ends - 1) // n]).square()


_SLICED = Measure(name="sliced_wasserstein", function=sliced_wasserstein, left_out=_left_out)
add_measure(_SLICED, variant(_SLICED, "centered", options={"center": True}))
add_measure(Measure(name="gap_shift_share", function=gap_shift_share, left_out=_share_left_out))
