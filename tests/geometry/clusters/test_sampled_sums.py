import numpy as np
import pytest
import torch

from clip_geometry.geometry.clusters import sampled_silhouette as module
from clip_geometry.geometry.distances import pairwise as distances


@pytest.mark.parametrize(("dtype", "error"), [("float64", 1e-12), ("float32", 1e-6)])
@pytest.mark.parametrize(("block", "kept"), [(1024, 2**24), (7, 2**24), (64, 30)])
def test_sums_are_those_of_the_definition(block, kept, dtype, error, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    monkeypatch.setattr(module, "KEPT", kept)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(90, 12)) + 40).to(getattr(torch, dtype))
    x[3] = x[50]
    of = torch.from_numpy(rng.permutation(90)[:40])
    groups = torch.from_numpy(rng.choice([0, 2, 3, 5, 8], size=90))
    apart = (x.double()[:, None] - x.double()[None]).square().sum(-1).sqrt()
    expected = torch.stack([apart[of][:, groups == g].sum(1) for g in range(9)])
    rows, sums = (torch.cat(parts, dim=-1) for parts in zip(*module._sums_by_class(x, of, groups, 9), strict=True))
    assert torch.equal(rows, of)
    unit = 2.0 ** torch.frexp(x.abs().max().double()).exponent  # a power of two
    assert torch.allclose(sums * unit, expected, rtol=error, atol=0)


def test_a_row_and_itself_are_no_reason_to_measure_a_block_again(monkeypatch):
    """Their product cancels, wherever among the rows compared with they are."""

    def again(*_, **__):
        raise AssertionError("products of a block were given up")

    monkeypatch.setattr(module, "BLOCK", 16)
    monkeypatch.setattr(distances, "squared_distances", again)
    x = torch.randn(90, 12, generator=torch.Generator().manual_seed(0))
    found = list(module._sums_by_class(x, torch.arange(0, 90, 3), torch.arange(90) % 2, 2))
    assert sum(len(rows) for rows, _ in found) == 30
