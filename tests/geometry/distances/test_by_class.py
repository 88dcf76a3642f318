"""Own and nearest class in blocks: the definition, each pair once, and little memory."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from clip_geometry.geometry.distances.by_class import mean_distances
from support.clouds import cone


class Operations(TorchDispatchMode):
    """Counts entries of products and the largest tensor."""

    def __enter__(self):
        self.products, self.largest = 0, 0
        return super().__enter__()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        name = operation._schema.name.removeprefix("aten::")
        if isinstance(result, torch.Tensor):
            self.products += result.numel() if name == "addmm" else 0
            self.largest = max(self.largest, result.numel())
        return result


def given(n, k, *, d=4, seed=0, dtype=torch.float64):
    """One class has half of the rows, the others are small; some have a single row."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(k), np.where(rng.random(n - k) < 0.5, k // 2, rng.integers(k, size=n - k))])
    return torch.from_numpy(cone(n, d, rng)).to(dtype), torch.from_numpy(rng.permutation(codes))


def definition(x, codes, k):
    distances = torch.from_numpy(np.linalg.norm(x[:, None] - x[None], axis=-1))
    sums = torch.stack([distances[:, codes == c].sum(1) for c in range(k)], dim=1)
    counts = torch.bincount(codes)
    own = sums.gather(1, codes[:, None])[:, 0] / (counts[codes] - 1).clamp(min=1)
    return own, (sums / counts).scatter(1, codes[:, None], torch.inf).amin(1)


@pytest.mark.slow
@pytest.mark.parametrize("block_size", [1, 7, 20, 64, 1024])
@pytest.mark.parametrize("k", [2, 9, 40])
def test_means_in_blocks_are_those_of_the_definition(k, block_size):
    x, codes = given(100, k)
    result = torch.stack(mean_distances(x, codes, k, block_size=block_size))
    expected = torch.stack(definition(x, codes, k))
    unit = expected[1, 0] / result[1, 0]
    assert float(torch.log2(unit)) == pytest.approx(round(float(torch.log2(unit))), abs=1e-12)  # a power of two
    assert torch.allclose(result * unit, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("k", [2, 40])
def test_every_pair_is_taken_once(k):
    n, block_size = 300, 32
    x, codes = given(n, k)
    with Operations() as operations:
        mean_distances(x, codes, k, block_size=block_size)
    assert n * (n - 1) / 2 <= operations.products < n * (n + block_size) / 2


@pytest.mark.parametrize("k", [2, 150])
def test_no_matrix_of_all_rows_or_all_classes(k):
    n, d, block_size = 900, 4, 16
    x, codes = given(n, k, d=d)
    with Operations() as operations:
        mean_distances(x, codes, k, block_size=block_size)
    assert operations.largest <= max(n * x.shape[1], block_size**2)  # a copy of x, and blocks: not n k, not n²


def test_copies_are_at_distance_0_exactly():
    x, codes = given(60, 5)
    x = x[torch.arange(60) // 2]
    codes = codes[torch.arange(60) // 2]
    codes[7] = (codes[6] + 1) % 5  # a copy in another class
    own, nearest = mean_distances(x, codes, 5)
    expected = definition(x, codes, 5)
    for result, exact in ((own, expected[0]), (nearest, expected[1])):
        assert torch.equal(result == 0, exact == 0)
