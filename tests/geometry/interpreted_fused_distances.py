"""The kernel in Triton's interpreter against the definition; run by test_fused_distances.py, TRITON_INTERPRET=1."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_samples as sklearn_samples
from triton.runtime import interpreter

from clip_geometry.geometry import silhouette, silhouette_samples
from clip_geometry.geometry._kernels import fused_distances
from clip_geometry.geometry._kernels.fused_distances import Tiles, fused_mean_distances
from clip_geometry.registry import InputError
from geometry.clusters.test_silhouette import CLOUDS, classes_of
from support.oracles import silhouette as oracle

# of a distance: float32 sums of d products; rows rounded to 11 bits; to 8
ERRORS = {"fp16x3": 1e-6, "tf32x3": 1e-6, "ieee": 1e-6, "tf32": 2**-11, "fp16": 2**-11, "bf16": 2**-8}
UNEVEN = [70, 32, 1, 31, 2, 64, 1, 1, 13]  # with tiles of 32 or 16: beginnings and ends on edges, within, many in one


def sorted_rows(sizes, d, seed=0):
    """Rows of overlapping classes, with entries up to 1, sorted by class; their codes, and where classes begin."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(len(sizes)), sizes)
    rows = rng.normal(size=(len(sizes), d))[codes] + rng.normal(size=(len(codes), d))
    rows = torch.from_numpy(rows / np.abs(rows).max()).float()
    return rows, torch.from_numpy(codes), [0, *np.cumsum(sizes).tolist()]


def definition(rows, codes, bounds):
    rows = rows.double()
    apart = (rows[:, None] - rows[None]).square().sum(-1).sqrt()
    sums = torch.stack([apart[:, a:b].sum(1) for a, b in pairwise(bounds)], dim=1)
    means = sums / torch.tensor(bounds).diff()
    return sums.gather(1, codes[:, None])[:, 0], means.scatter(1, codes[:, None], torch.inf).amin(1)


@pytest.mark.parametrize(
    ("sizes", "d", "tiles"),
    [
        (UNEVEN, 21, Tiles(32, 32, 16, 4, 1)),
        (UNEVEN, 21, Tiles(16, 32, 32, 4, 1)),
        (UNEVEN, 21, Tiles(64, 16, 16, 4, 1)),
        ([100, 5], 24, Tiles(32, 16, 16, 4, 1)),
        ([2] * 40, 16, Tiles(16, 32, 16, 4, 1)),
        ([3, 2], 1, None),
    ],
)
def test_sums_are_those_of_the_definition(sizes, d, tiles):
    given = sorted_rows(sizes, d)
    found, expected = fused_mean_distances(*given, tiles=tiles), definition(*given)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=0)


@pytest.mark.parametrize("products", ERRORS)
def test_each_kind_of_products_has_its_error_and_no_less(products):
    given = sorted_rows(UNEVEN, 64)
    found, expected = fused_mean_distances(*given, products=products), definition(*given)
    bound = ERRORS[products]
    for one, other in zip(found, expected, strict=True):
        error = (one - other).abs().max() / other.mean()
        assert error < bound
        assert bound < 1e-5 or error > bound / 100  # it does round, and the bound says something


def _cutting_off(builder, a, b, c, *_):
    """Tensor cores: of each sum of 16 products and what was there the first 24 bits, towards 0."""
    total, a, b = c.data.astype("float64"), a.data.astype("float64"), b.data.astype("float64")
    for k in range(0, a.shape[1], 16):
        mantissa, exponent = np.frexp(total + a[:, k : k + 16] @ b[k : k + 16])
        total = np.ldexp(np.trunc(mantissa * 2**24) / 2**24, exponent)
    return interpreter.TensorHandle(total.astype("float32"), c.dtype.scalar)


def test_sums_that_tensor_cores_cut_off_stay_short(monkeypatch):
    """Two classes far from the middle of all, whose products have one sign: 96 sums cut off, one after the other, make
    distances between them 4e-6 too long, and distances within, which are taken about their own centres, not at all."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(5), 12)
    rows = 2 * rng.normal(size=(4, 512))[np.array([0, 0, 1, 2, 3])][codes] + rng.normal(size=(60, 512))
    rows, codes = torch.from_numpy(rows / np.abs(rows).max()).float(), torch.from_numpy(codes)
    bounds = list(range(0, 61, 12))
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", _cutting_off)
    expected = definition(rows, codes, bounds)
    for one, other in zip(
        fused_mean_distances(rows, codes, bounds, tiles=Tiles(64, 64, 32, 4, 1)), expected, strict=True
    ):
        assert torch.allclose(one, other, rtol=1e-6, atol=0)


def test_differences_in_many_dimensions_stay_in_range():
    """Two outlying rows as far apart as rows can be, whose products do not fit float16."""
    rng = np.random.default_rng(0)
    x = 1e-3 * rng.normal(size=(9, 2048))
    x[3], x[4] = 1.9, -1.9
    x, labels = torch.from_numpy(x).float(), np.arange(9) % 2
    expected = silhouette_samples(x.double(), labels)
    assert torch.allclose(silhouette_samples(x, labels, products="fp16x3"), expected, rtol=0, atol=3e-6)


def test_rounding_moves_rows_and_nothing_cancels():
    """Rows of 11 bits are multiplied exactly: "tf32" and "fp16" are then as good as the rest."""
    rows, codes, bounds = sorted_rows([40, 25, 3], 32)
    rows = (rows * 2**9).round() / 2**9
    rows[:: len(rows) // 9] = 0  # so that centres are short as well
    expected = definition(rows, codes, bounds)
    for products in ("tf32", "fp16"):
        for one, other in zip(fused_mean_distances(rows, codes, bounds, products=products), expected, strict=True):
            assert torch.allclose(one, other, rtol=1e-6, atol=0)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_silhouette_is_that_of_differences_where_products_cancel(cloud):
    """The bound of the same clouds on a CPU; scaled rows, since the oracle's squares may leave the range."""
    n, d, k = 110, 40, 5
    rng = np.random.default_rng(n)
    labels = classes_of(n, k, rng)
    x = CLOUDS[cloud](n, d, labels, rng).astype("float32")
    expected = oracle(x.astype("float64") / np.abs(x).max(), labels, "euclidean")
    assert abs(float(silhouette(x, labels, products="fp16x3")) - expected) < 1e-6


def _tight_beside_a_giant(rng, labels):
    """Squares of the differences of tight rows leave float32 where entries up to 1 are multiplied."""
    x = rng.normal(size=(4, 20))[rng.integers(4, size=len(labels))] + 1e-3 * rng.normal(size=(len(labels), 20))
    x[5] *= 1e25
    return x


def _tiny_classes(rng, labels):
    """A few rows near the centre of all, to which float16 leaves few digits."""
    tiny = (labels < 3)[:, None]
    return np.where(tiny, 1e-8, 1) * (rng.normal(size=(5, 20))[labels] * tiny + rng.normal(size=(len(labels), 20)))


@pytest.mark.parametrize("cloud", [_tight_beside_a_giant, _tiny_classes])
def test_rows_of_very_different_scale(cloud):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3, 4], [5, 5, 5, 27, 28])
    x = cloud(rng, labels).astype("float32")
    expected = oracle(x.astype("float64") / np.abs(x).max(), labels, "euclidean")
    assert abs(float(silhouette(x, labels, products="fp16x3")) - expected) < 1e-6


@pytest.mark.parametrize(("offset", "cancels"), [(0, False), (1000, False), (None, True)])
def test_differences_are_taken_where_products_cancel_and_nowhere_else(offset, cancels, monkeypatch):
    """Rows without values to take differences of: NaN comes out where they are needed. Far from the origin they are
    not, since products are about a centre; None: two tight classes that touch."""
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 2
    x = rng.normal(size=(90, 30)) + (offset or 0)
    if cancels:
        x[:2] = x[:1] + 1e-3 * x[:2]
    launch = fused_distances._launch
    monkeypatch.setattr(
        fused_distances, "_launch", lambda given, exact, *rest, **how: launch(given, exact * torch.nan, *rest, **how)
    )
    found = silhouette_samples(torch.from_numpy(x).float(), labels, products="fp16x3")
    assert found.isnan().any() == cancels


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rows_of_any_single_precision(dtype):
    rng = np.random.default_rng(0)
    labels = classes_of(100, 7, rng)
    x = torch.from_numpy(rng.normal(size=(7, 20))[labels] + rng.normal(size=(100, 20)) + 30).to(dtype)
    found = silhouette_samples(x, labels, products="fp16x3")
    assert found.dtype == torch.float64
    assert np.abs(found.numpy() - sklearn_samples(x.double().numpy(), labels)).max() < 1e-6


def test_copies_are_at_distance_0_exactly():
    rows, codes, bounds = sorted_rows([20, 20, 3], 24)
    rows[:20] = rows[0]
    rows[20:30] = rows[0]
    own, nearest = fused_mean_distances(rows, codes, bounds)
    expected = definition(rows, codes, bounds)
    assert (own[:20] == 0).all() and (own[20:] > 0).all()
    assert torch.allclose(nearest, expected[1], rtol=1e-6)
    rows[20:40] = rows[0]
    assert (fused_mean_distances(rows, codes, bounds)[1][:40] == 0).all()


def test_the_same_rows_have_the_same_bits():
    given = sorted_rows(UNEVEN, 40)
    first, second = fused_mean_distances(*given), fused_mean_distances(*given)
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))


def test_the_own_class_is_left_out_between_classes():
    """Of a class of half the rows: of its tiles half of the columns."""
    _, codes, bounds = sorted_rows([320, 160, 160], 1)
    tiles = Tiles(32, 32, 16, 4, 1)
    spans = fused_distances._spans(codes, bounds, tiles, within=False)
    walked = spans[:, 1] - spans[:, 0] - (spans[:, 3] - spans[:, 2])
    assert walked.tolist() == [320] * 10 + [480] * 10
    within = fused_distances._spans(codes, bounds, tiles, within=True)
    assert (within[:, 1] - within[:, 0]).tolist() == [320] * 10 + [160] * 10


@pytest.mark.parametrize("products", ["fp16x3", "fp16"])
def test_silhouettes_of_products_are_those_of_scikit_learn(products):
    rng = np.random.default_rng(0)
    labels = classes_of(80, 4, rng)
    x = torch.from_numpy(rng.normal(size=(4, 16))[labels] + rng.normal(size=(80, 16))).float()
    samples = silhouette_samples(x, labels, products=products)
    error = np.abs(samples.numpy() - sklearn_samples(x.double(), labels)).max()
    assert error < 1e-6 if products == "fp16x3" else 1e-6 < error < 1e-2
    assert float(silhouette(x, labels, products=products)) == float(samples.mean())


@pytest.mark.parametrize(("dtype", "gradient", "what"), [("float64", False, "float64 rows"), ("float32", True, "grad")])
def test_rows_that_the_kernel_does_not_take(dtype, gradient, what):
    x = torch.eye(6, dtype=getattr(torch, dtype)).requires_grad_(gradient)
    with pytest.raises(InputError, match=rf"products 'tf32' were asked for of .*{what}.*; expected float32 rows"):
        silhouette(x, [0, 1, 0, 1, 0, 1], products="tf32")
