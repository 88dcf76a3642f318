"""Nearest neighbors and copies are exact: the same indices and the same bits as all differences would give."""

import numpy as np
import pytest
import torch

from clip_geometry.geometry.distances import nearest as neighbors
from clip_geometry.geometry.distances.nearest import MANY, keeping_lists, nearest, nearest_both_ways
from clip_geometry.geometry.distances.pairwise import distinct_rows
from clip_geometry.registry import InputError
from support.covering import covering_array

N = 300


def gaussian(n, d, seed=0):
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def clusters(spread):
    return gaussian(4, 6, 1)[torch.arange(N) % 4] + spread * gaussian(N, 6)


CLOUDS = {
    "plain": lambda: gaussian(N, 6),
    "float32 of many dimensions": lambda: gaussian(N, 512).float(),
    "bfloat16, with ties": lambda: gaussian(N, 3).bfloat16(),
    "mean 1000 times the spread": lambda: gaussian(N, 6) + 1000 * gaussian(1, 6, 1),
    "tight clusters": lambda: clusters(1e-4),
    "clusters tighter than float64 products": lambda: clusters(1e-9),
    "copies": lambda: gaussian(N // 3, 6).repeat_interleave(3, dim=0),
    "more copies than candidates": lambda: gaussian(5, 6)[torch.arange(N) % 5],
    "all rows equal": lambda: torch.ones(N, 6, dtype=torch.float64),
    "a lattice, all ties": lambda: torch.cartesian_prod(*[torch.arange(7.0)] * 3)[:N],
    "scale 1e-100": lambda: 1e-100 * gaussian(N, 6),
    "scale 1e100": lambda: 1e100 * gaussian(N, 6),
    "an outlier": lambda: torch.cat([gaussian(N - 1, 6), 1e15 * gaussian(1, 6, 1)]),
    "a cluster below the range of float32 products": lambda: (
        torch.cat([torch.eye(6), -torch.eye(6)]).double()[torch.arange(N) % 12] * (torch.arange(N) < 12)[:, None]
        + 1e-25 * gaussian(N, 6)
    ),
}


def definition(x, k, y=None):
    others = x if y is None else y
    squares = torch.stack([(row - others.double()).square().sum(1) for row in x.double()])
    if y is None:
        squares.fill_diagonal_(torch.inf)
    squares, indices = squares.sort(dim=1, stable=True)
    return squares[:, :k].sqrt(), indices[:, :k]


def assert_same(found, expected):
    assert torch.equal(found[1], expected[1])
    # sums of the same differences, in another order at most
    assert torch.allclose(found[0], expected[0], rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("cloud", "k", "square"), covering_array(CLOUDS, [1, 2, 10, 100, N - 1], [neighbors.SQUARE, (64, 33)])
)
def test_nearest_rows_are_those_of_all_differences(cloud, k, square, monkeypatch):
    """Of a set in itself, in another, and of each of two in the other."""
    monkeypatch.setattr(neighbors, "SQUARE", square)
    x = CLOUDS[cloud]()
    assert_same(nearest(x, k), definition(x, k))
    some, others, k = x[:50], x[50:], min(k, N - 50)
    expected = definition(some, k, others)
    assert_same(nearest(some, k, y=others), expected)
    of_some, of_others = nearest_both_ways(some, others, k)
    assert_same(of_some, expected)
    assert_same(of_others, definition(others, min(k, 50), some))


def test_blocks_do_not_change_the_result(monkeypatch):
    x = torch.cat([gaussian(200, 5), clusters(1e-9)[:, :5]])
    expected = definition(x, 7)
    both_ways = definition(x, 7, x[:90]), definition(x[:90], 7, x)
    for queries, columns, possible in [(1, 500, 1), (64, 33, 1000), (500, 16, 2**22), (7, 256, 600)]:
        monkeypatch.setattr(neighbors, "QUERIES", queries)
        monkeypatch.setattr(neighbors, "SQUARE", (queries, columns))
        monkeypatch.setattr(neighbors, "COLUMNS", columns)
        monkeypatch.setattr(neighbors, "POSSIBLE", possible)
        assert_same(nearest(x, 7), expected)
        for result, wanted in zip(nearest_both_ways(x, x[:90], 7), both_ways, strict=True):
            assert_same(result, wanted)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_nearer_rows_are_counted_as_by_all_differences(cloud, monkeypatch):
    monkeypatch.setattr(neighbors, "COLUMNS", 256)
    x = CLOUDS[cloud]().double()
    x = x / x.abs().amax()
    squares = (x[:, None] - x[None]).square().sum(-1)
    for near in (nearest(x, 3)[1][:, 2], torch.arange(N).roll(1)):
        limits = (1 - 1e-11) * squares.gather(1, near[:, None])
        nearer = (squares < limits).fill_diagonal_(False)
        result = neighbors.count_nearer(x, None, limits[:, 0], lambda i, j, limits=limits: squares[i, j] < limits[i, 0])
        assert torch.equal(result, nearer.sum(1))


def test_a_list_is_searched_once_for_equal_rows_and_again_for_changed_ones(monkeypatch):
    searched, search = [], neighbors._nearest
    monkeypatch.setattr(neighbors, "_nearest", lambda x, k, y: searched.append(k) or search(x, k, y))
    x = gaussian(MANY, 3, seed=7)
    with keeping_lists():
        expected = nearest(x, 5)
        assert_same(nearest(x.clone(), 3), [each[:, :3] for each in expected])
        assert searched == [5]
        expected[0].zero_()
        assert nearest(x, 5)[0].all()
        x[0] += 1
        assert_same(nearest(x, 6), definition(x, 6))
        assert_same(nearest(x.float(), 6), definition(x.float(), 6))
        assert searched == [5, 6, 6]
    nearest(x, 6)
    assert searched == [5, 6, 6, 6]  # nothing is kept once the sets are measured


def proofs(x, dtype, k=2):
    return neighbors._by_products(neighbors._Bounds(x, None, dtype), torch.arange(len(x)), k).proved


def test_products_prove_what_they_can_and_nothing_else():
    assert proofs(gaussian(N, 6), torch.float32).all()
    assert not proofs(clusters(1e-4), torch.float32).any()  # distances² of 1e-8 and noise of 1e-6
    assert proofs(clusters(1e-4), torch.float64).all()
    assert not proofs(clusters(1e-9), torch.float64).any()
    assert not proofs(CLOUDS["all rows equal"](), torch.float64).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bounds_are_below_the_distances_and_close(dtype):
    for name, cloud in CLOUDS.items():
        x = cloud()
        bounds = neighbors._Bounds(x, None, dtype)
        rows = torch.arange(N)
        lower = bounds.block(bounds.left(rows), 0, N, rows).double()
        exact = bounds.scaled((x.double()[:, None] - x.double()[None]).square().sum(-1))
        assert lower.diagonal().isinf().all()
        excess = (exact - lower).fill_diagonal_(0)
        assert (excess >= 0).all(), name
        assert (excess <= 2 * bounds.epsilon * 4 + 1e-30).all(), name  # ε(‖c_i‖ + ‖c_j‖)², twice, at most 1 each


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_coarser_products_are_not_trusted(precision):
    """TF32 and bfloat16 products have errors that the bounds do not know; so has autocast."""
    x = gaussian(N, 64).float()
    expected = definition(x, 5)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(precision)
        assert_same(nearest(x, 5), expected)
    finally:
        torch.set_float32_matmul_precision(before)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same(nearest(x, 5), expected)


def test_no_queries_have_no_neighbors():
    distances, indices = nearest(torch.empty(0, 3), 2, y=gaussian(9, 3))
    assert distances.shape == indices.shape == (0, 2)


def test_the_result_carries_no_gradient():
    assert not nearest(gaussian(9, 3).requires_grad_(), 2)[0].requires_grad


@pytest.mark.parametrize("k", [0, -1, 9])
def test_impossible_k(k):
    with pytest.raises(InputError, match=f"k = {k}; expected a number of nearest rows from 1 to 8"):
        nearest(gaussian(9, 3), k)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_copies_are_found_wherever_they_stand(dtype, seed):
    rng = np.random.default_rng(seed)
    x = (gaussian(40, 8, seed) + 1000).to(dtype)
    x = x[torch.from_numpy(rng.integers(0, 40, size=200))]
    kept = distinct_rows(x)
    expected = np.unique(x.double().numpy(), axis=0)
    assert np.array_equal(np.unique(x[kept].double().numpy(), axis=0), expected)
    assert int(kept.sum()) == len(expected)


def test_copies_up_to_a_tolerance():
    x = gaussian(50, 8)
    shaken = torch.cat([x, x + 1e-15 * gaussian(50, 8, 1), x + 1e-15 * gaussian(50, 8, 2)])
    assert int(distinct_rows(shaken).sum()) > 100  # some differ in their last digits only by nothing
    assert int(distinct_rows(shaken, tolerance=1e-13).sum()) == 50
    assert int(distinct_rows(x, tolerance=1e-13).sum()) == 50


def test_different_rows_with_one_projection_are_kept(monkeypatch):
    """Rows whose keys agree are compared with all others of the run, not only with the next."""
    from clip_geometry.geometry.distances import pairwise

    monkeypatch.setattr(pairwise, "_projections", lambda x, _: (torch.zeros(len(x)), torch.zeros(len(x))))
    x = gaussian(20, 3).repeat(3, 1)
    assert int(distinct_rows(x).sum()) == 20
