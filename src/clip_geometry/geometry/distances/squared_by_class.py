"""Mean squared distance of every row to its own class and to the nearest other one, from the classes' means: O(ndK)."""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.distances.pairwise import single_is_exact, squared_distances
from clip_geometry.rows.matrix import Matrix, in_one_piece, unit_blocks

SIZE = 512  # rows a block: 2 MB of float64 at d = 512 stay in the cache from one step to the next


def mean_squared_distances(
    x: Float[Matrix, "n d"], codes: Int[Tensor, " n"], k: int, *, unit: bool = False
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Mean squared distance of each row to the others of its class (0 for the only row) and to the nearest other class.

    Over a class of n rows with mean μ and variance V = mean ‖x_j − μ‖² the mean of ‖x − x_j‖² is ‖x − μ‖² + V, and
    n/(n − 1) times that over the others of its own. unit: of the rows' directions, where it is twice the mean of
    1 − cos; a zero row is an InputError. codes: 0..k − 1, each at least once, k ≥ 2. Float64; beside x the memory is
    that of the means and of a few blocks.
    """
    blocks = _Directions(x, codes) if unit else _RowBlocks(x, codes)
    counts = torch.bincount(codes, minlength=k).double()
    # about a row of each class, so that equal rows are exactly their mean: 0/0 stays 0/0
    first = torch.full_like(counts, len(codes), dtype=torch.long)
    first = first.scatter_reduce(0, codes, torch.arange(len(codes), device=codes.device), "amin")
    bases = blocks.rows(first)
    sums = torch.zeros_like(bases)
    for block, classes in blocks:
        sums = sums.index_add(0, classes, block - bases[classes])
    means = bases + sums / counts[:, None]
    own = in_one_piece(((block - means[classes]).square().sum(1) for block, classes in blocks), len(x))
    variances = own.new_zeros(k).index_add(0, codes, own) / counts
    origin = means.detach().mean(0)
    # unit rows have the range that float32 products want
    single = unit and x.dtype != torch.float64 and not x.requires_grad and single_is_exact(x.device)
    nearest = (
        (squared_distances(block, means, centre=origin, single=single) + variances)
        .scatter(1, classes[:, None], torch.inf)
        .amin(1)
        for block, classes in blocks
    )
    counts = counts[codes]
    return (own + variances[codes]) * counts / (counts - 1).clamp(min=1), in_one_piece(nearest, len(x))


class _RowBlocks:
    """Rows in float64 and their classes, block by block, as often as asked for."""

    def __init__(self, x: Float[Matrix, "n d"], codes: Int[Tensor, " n"]):
        self.x, self.codes = x, codes

    def rows(self, index: slice | Int[Tensor, " b"]) -> Float[Tensor, "b d"]:
        return self.x[index].double()

    def __iter__(self) -> Iterator[tuple[Float[Tensor, "b d"], Int[Tensor, " b"]]]:
        for start in range(0, len(self.x), SIZE):
            part = slice(start, start + SIZE)
            yield self.rows(part), self.codes[part]


class _Directions(_RowBlocks):
    """The same of the rows made unit length, which are not kept."""

    def __init__(self, x: Float[Matrix, "n d"], codes: Int[Tensor, " n"]):
        super().__init__(x, codes)
        self.lengths = in_one_piece((_lengths(part) for part in x.split(SIZE)), len(x))
        if (self.lengths == 0).any():
            for _ in unit_blocks(x):  # says which row
                pass

    def rows(self, index: slice | Int[Tensor, " b"]) -> Float[Tensor, "b d"]:
        return super().rows(index) / self.lengths[index]


def _lengths(x: Float[Tensor, "b d"]) -> Float[Tensor, "b 1"]:
    if x.dtype != torch.float64:
        return torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=torch.float64)
    largest = x.detach().abs().amax(1, keepdim=True)  # its square may leave the range
    return largest * (x / torch.where(largest > 0, largest, 1)).norm(dim=1, keepdim=True)
