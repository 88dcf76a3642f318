"""Sums of exp(−t‖x_i − y_j‖²) over the pairs of different rows, in blocks, never an n × n matrix."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import squared_distances
from clip_geometry.geometry.statistics.statistic import Dealt, Statistic
from clip_geometry.rows.matrix import Rows, about, as_aligned, as_matrix, mean_row

BLOCK = 1024  # rows

Sums = Float[Tensor, "4"] | list[float]  # of some pairs, see `_sums`


class KernelSums(Statistic):
    """The mean of exp(−t‖x_i − x_j‖²) over the pairs of rows of one set, each pair once."""

    def __init__(self, x: Rows):
        x = as_matrix(x)
        self._left = self._right = about(x, mean_row(x))

    def log_mean(self, t: float, *, block_size: int = BLOCK) -> Float[Tensor, ""]:
        """Logarithm of the mean."""
        left, right, sums = self._left, self._right, []
        for first, block in zip(range(0, len(left), block_size), left.split(block_size), strict=True):
            for start in range(first if left is right else 0, len(right), block_size):
                squares = squared_distances(block, right[start : start + block_size])
                squares = _different(squares, once=left is right) if start == first else squares.flatten()
                if squares.numel():  # one row has no pairs
                    sums.append(_sums(t * squares))
        return _log_mean(sums)

    @classmethod
    def without_each(cls, *sets: Dealt) -> Iterator["KernelSums"] | None:
        """From the sums over the pairs of every two blocks. Both sets lose the same rows."""
        if any(each.streamed for each in sets):
            return None
        shared = _SumsBetweenBlocks(sets)
        return (_KernelSumsWithoutBlock(shared, block) for block in range(sets[0].blocks))


class CrossKernelSums(KernelSums):
    """The same over the rows of one set and those of the other that do not match."""

    same_as = KernelSums

    def __init__(self, x: Rows, y: Rows):
        x, y = as_aligned(x, y, ("image", "text"), streams=True)
        middle = (mean_row(x) + mean_row(y)) / 2
        self._left, self._right = about(x, middle), about(y, middle)


def _different(squares: Float[Tensor, "b c"], *, once: bool) -> Float[Tensor, " p"]:
    """The entries off the diagonal; once: above it."""
    n = len(squares)
    if once:
        return squares[*torch.triu_indices(n, n, offset=1, device=squares.device)]
    return squares[~torch.eye(n, dtype=torch.bool, device=squares.device)]


class _SumsBetweenBlocks:
    def __init__(self, sets: Sequence[Dealt]):
        self.sets = sets
        self._sums: dict[float, dict[tuple[int, int], Sums]] = {}  # by t

    @cached_property
    def _groups(self) -> list[dict[int, Tensor]]:
        """The rows of each block, about a point near all."""
        rows = [each.rows for each in self.sets]
        middle = sum(map(mean_row, rows)) / len(rows)
        block_of = self.sets[0].block_of
        return [{k: (each.double() - middle)[block_of == k] for k in block_of.unique().tolist()} for each in rows]

    def sums(self, t: float) -> dict[tuple[int, int], Sums]:
        if t not in self._sums:
            found, once = {}, len(self.sets) == 1
            for i, left in self._groups[0].items():
                for j, right in self._groups[-1].items():
                    if once and i > j:
                        continue
                    squares = squared_distances(left, right)
                    squares = _different(squares, once=once) if i == j else squares.flatten()
                    if squares.numel():
                        found[i, j] = _sums(t * squares)
            self._sums[t] = found
        return self._sums[t]


class _KernelSumsWithoutBlock(KernelSums):
    def __init__(self, shared: _SumsBetweenBlocks, block: int):
        self._shared, self._block = shared, block

    def log_mean(self, t: float, **_: Any) -> Float[Tensor, ""]:
        return _log_mean([each for pair, each in self._shared.sums(t).items() if self._block not in pair])


def _sums(exponents: Float[Tensor, " p"]) -> Float[Tensor, "4"] | list[float]:
    """Sums over the exponents e_p = t‖x_i − x_j‖² of one block: their minimum `low`, Σ exp(low − e_p), Σ (1 − exp(low −
    e_p)), which keeps its digits where it is small, and the number of pairs."""
    low = exponents.detach().amin()
    pairs = low.new_tensor(float(len(exponents)))
    logs = low - exponents
    exps = logs.exp().sum()
    if exponents.requires_grad or exponents.is_cuda:
        return torch.stack([low, exps, -logs.expm1().sum(), pairs])
    falls = -logs.expm1().sum() if exps > pairs / 2 else pairs - exps  # whose digits are all there
    # small tensors that stay alive keep glibc from reusing the megabytes that are freed around them
    return [float(each) for each in (low, exps, falls, pairs)]


def _log_mean(parts: Sequence[Float[Tensor, "4"] | list[float]]) -> Float[Tensor, ""]:
    """log of the mean of exp(−e_p) over all pairs: −low + log(mean of exp(low − e_p)).

    Where that mean is near 1, its logarithm would keep absolute digits only, so that it is taken from the falls: the
    uniformity of tight rows is exact too.
    """
    lows, exps, falls, pairs = torch.stack([torch.as_tensor(part, dtype=torch.float64) for part in parts], dim=1)
    low = lows.amin()
    lag = low - lows
    count = pairs.sum()
    mean = (exps * lag.exp()).sum() / count
    fall = (falls * lag.exp() - pairs * lag.expm1()).sum() / count
    return torch.where(mean > 0.5, torch.log1p(-fall.clamp(max=0.75)), mean.log()) - low
