"""The GPU's kernel: its cases in Triton's interpreter, what it multiplies, that it compiles, and who takes it.

Triton is either interpreted or not, from its import on. So functions named `case_…`, which launch the kernel, run in a
process of their own, which one test starts.
"""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_samples as sklearn_samples

from clip_geometry.geometry import silhouette_samples
from clip_geometry.geometry.distances import by_class
from clip_geometry.geometry.distances.by_class import WORTH_IT, takes_kernel
from geometry.test_silhouette import CLOUDS, classes_of
from support.oracles import silhouette as oracle

triton = pytest.importorskip("triton", reason="the kernel is a Triton one")
from triton.runtime import interpreter  # noqa: E402

from clip_geometry.geometry.distances import _fused as fused_distances  # noqa: E402

TESTS = Path(__file__).parents[1]
SHAPE = (64, 32)  # of 50 rows of 20
COMPILED = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from clip_geometry.geometry.distances._fused import _tiles, distance_sums, lift_of

tiles = _tiles()
types = {"high": "*fp16", "low": "*fp16", "norms": "*fp32", "exact": "*fp32", "units": "*fp32", "codes": "*i32",
         "bounds": "*i32", "spans": "*i32", "out": "*fp64",
         "classes": "i32", "share": "fp32", "least": "fp32", "d": "i32"}
constants = {"BLOCK_M": tiles.rows, "BLOCK_N": tiles.columns, "BLOCK_K": tiles.dimensions,
             "WITHIN": False, "LIFT": lift_of(512)}
aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(types) if "*" in types[name] or name == "d"}
source = ASTSource(distance_sums, {**types, **dict.fromkeys(constants, "constexpr")}, constants, aligned)
options = {"num_warps": tiles.warps, "num_stages": tiles.stages}
compiled = compile(source, target=GPUTarget("cuda", 90, 32), options=options)
print(compiled.metadata.shared, compiled.asm["ttir"], compiled.asm["ttgir"], compiled.asm["ptx"])
"""


def run(*command, tmp_path, **environment):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": str(tmp_path), **environment}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)


@pytest.mark.slow
def test_the_kernel_in_the_interpreter(tmp_path):
    options = ("-q", "-p", "no:cacheprovider", "-o", "python_functions=case_*", "--noconftest", "--rootdir", str(TESTS))
    ran = run("-m", "pytest", *options, __file__, tmp_path=tmp_path, TRITON_INTERPRET="1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^\d\d passed", ran.stdout, re.M)


def test_the_kernel_compiles_for_the_tensor_cores_of_hopper(tmp_path):
    """Without a GPU: the interpreter checks no types and no shared memory."""
    ran = run("-c", COMPILED, tmp_path=tmp_path, TRITON_INTERPRET="0")
    assert ran.returncode == 0, ran.stderr
    assert ".target sm_90a" in ran.stdout
    assert "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16" in ran.stdout
    assert int(ran.stdout.split()[0]) <= 99 * 1024  # of any GPU from Ampere on
    # where the rows of a tile begin, and those of its columns: a million rows of 4096 are more than 2³¹ entries
    assert len(re.findall(r"arith\.muli .* : i64", ran.stdout.partition("ttg.")[0])) == 2
    # each chain of three products begins at 0, and the tensor cores add nothing to the sum of all
    products = re.findall(r"(%\S+) = ttng\.warp_group_dot \S+ \S+ (%\S+) ", ran.stdout)
    assert len(products) == 3 and products[0][1].startswith("%cst")


class OnGpu:
    """Rows that say they are on a GPU."""

    is_cuda, device, requires_grad = True, torch.device("cuda"), False

    def __init__(self, n=WORTH_IT, dtype=torch.float32):
        self.n, self.dtype = n, dtype

    def __len__(self):
        return self.n


@pytest.mark.parametrize(
    ("capability", "cuda", "given", "possible"),
    [
        ((9, 0), "13.0", {}, True),
        ((8, 0), "13.0", {"dtype": torch.float16}, True),
        ((7, 5), "13.0", {}, False),  # Triton's least
        ((9, 0), None, {}, False),  # AMD's
        ((9, 0), "13.0", {"n": WORTH_IT - 1}, False),
        ((9, 0), "13.0", {"dtype": torch.float64}, False),
    ],
)
def test_large_float32_sets_on_a_gpu_take_the_kernel(capability, cuda, given, possible, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    decide = getattr(takes_kernel, "__wrapped__", takes_kernel)  # without the check of types
    assert decide(OnGpu(**given)) == possible


def test_without_triton_rows_are_measured_as_elsewhere(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(by_class, "find_spec", lambda _: None)
    assert not getattr(takes_kernel, "__wrapped__", takes_kernel)(OnGpu())


# --- what the kernel multiplies: in range, about a near point, and with the lengths of what is multiplied


def given(*, factor=1.0, outlier=1.0):
    """Rows of two classes, their centres, and their operands."""
    generator = torch.Generator().manual_seed(0)
    rows = factor * torch.randn(50, 20, generator=generator)
    rows[7] *= outlier
    which = torch.arange(50) // 25
    centres = fused_distances.class_centres(rows, [0, 25, 50])
    return rows - centres[which], fused_distances.operands(rows, centres, which, SHAPE)


@pytest.mark.parametrize("factor", [1e-37, 1e-4, 1.0])
def test_rows_are_rounded_once_and_lengths_are_those_of_what_is_multiplied(factor):
    """Those of the rows before they were rounded would not cancel against the products."""
    rows, result = given(factor=factor)
    kept, scaled = result.high.double() + result.low.double(), rows.double() * result.scale[:50, None]
    assert torch.equal(result.norms, kept.square().sum(1).float())
    assert not kept[50:].any() and not kept[:, 20:].any()
    error = (kept[:50, :20] - scaled).abs()
    assert (error <= 2.0**-22 * scaled.abs() + 2.0**-25).all()  # half of float16's last place
    assert error.any()


def test_a_row_that_does_not_fit_has_no_length_and_the_others_keep_theirs():
    rows, result = given(outlier=200.0)
    fits = (rows * result.scale[:50, None]).abs().amax(1) < fused_distances.LARGEST
    assert (~fits).nonzero().flatten().tolist() == [7]
    assert result.norms.isnan().nonzero().flatten().tolist() == [7]
    assert result.high.isfinite().all() and not result.high[7].any()


# --- the kernel in the interpreter against the definition

CANCELLING = ["mean 1000 times the spread", "scale 1e-36", "tight clusters in all classes", "a row very far away"]
CANCELLING += ["a huge class", "two tight points with different labels", "heavy tails"]
UNEVEN = [38, 26, 1, 31, 2, 1, 13]  # with tiles of 32 or 16: beginnings and ends on edges, within, many in one


def sorted_rows(sizes, d, seed=0):
    """Rows of overlapping classes, with entries up to 1, sorted by class; their codes, and where classes begin."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(len(sizes)), sizes)
    rows = rng.normal(size=(len(sizes), d))[codes] + rng.normal(size=(len(codes), d))
    rows = torch.from_numpy(rows / np.abs(rows).max()).float()
    return rows, torch.from_numpy(codes), [0, *np.cumsum(sizes).tolist()]


def of_kernel(x, labels, monkeypatch):
    """Silhouettes of rows on a CPU by the interpreted kernel."""
    monkeypatch.setattr(by_class, "takes_kernel", lambda _: True)
    return silhouette_samples(torch.as_tensor(x), labels)


def definition(rows, codes, bounds):
    rows = rows.double()
    apart = (rows[:, None] - rows[None]).square().sum(-1).sqrt()
    sums = torch.stack([apart[:, a:b].sum(1) for a, b in pairwise(bounds)], dim=1)
    means = sums / torch.tensor(bounds).diff()
    return sums.gather(1, codes[:, None])[:, 0], means.scatter(1, codes[:, None], torch.inf).amin(1)


@pytest.mark.parametrize(
    ("sizes", "d", "tiles"),
    [
        (UNEVEN, 21, fused_distances.Tiles(32, 32, 16, 4, 1)),
        (UNEVEN, 21, fused_distances.Tiles(16, 32, 32, 4, 1)),
        (UNEVEN, 21, fused_distances.Tiles(64, 16, 16, 4, 1)),
        ([100, 5], 24, fused_distances.Tiles(32, 16, 16, 4, 1)),
        ([2] * 20, 16, fused_distances.Tiles(16, 32, 16, 4, 1)),
        ([3, 2], 1, None),
    ],
)
def case_sums_are_those_of_the_definition(sizes, d, tiles):
    given = sorted_rows(sizes, d)
    result, expected = fused_distances.fused_mean_distances(*given, tiles=tiles), definition(*given)
    for one, other in zip(result, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=0)


def _cutting_off(builder, a, b, c, *_):
    """Tensor cores: of each sum of 16 products and what was there the first 24 bits, towards 0."""
    total, a, b = c.data.astype("float64"), a.data.astype("float64"), b.data.astype("float64")
    for k in range(0, a.shape[1], 16):
        mantissa, exponent = np.frexp(total + a[:, k : k + 16] @ b[k : k + 16])
        total = np.ldexp(np.trunc(mantissa * 2**24) / 2**24, exponent)
    return interpreter.TensorHandle(total.astype("float32"), c.dtype.scalar)


def case_sums_that_tensor_cores_cut_off_stay_short(monkeypatch):
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
        fused_distances.fused_mean_distances(rows, codes, bounds, tiles=fused_distances.Tiles(64, 64, 32, 4, 1)),
        expected,
        strict=True,
    ):
        assert torch.allclose(one, other, rtol=1e-6, atol=0)


def case_differences_in_many_dimensions_stay_in_range(monkeypatch):
    """Two outlying rows as far apart as rows can be, whose products do not fit float16."""
    rng = np.random.default_rng(0)
    x = 1e-3 * rng.normal(size=(9, 2048))
    x[3], x[4] = 1.9, -1.9
    x, labels = torch.from_numpy(x).float(), np.arange(9) % 2
    expected = silhouette_samples(x.double(), labels)
    assert torch.allclose(of_kernel(x, labels, monkeypatch), expected, rtol=0, atol=3e-6)


@pytest.mark.parametrize("cloud", CANCELLING)
def case_silhouette_is_that_of_differences_where_products_cancel(cloud, monkeypatch):
    """The bound of the same clouds on a CPU; scaled rows, since the oracle's squares may leave the range."""
    n, d, k = 60, 24, 5
    rng = np.random.default_rng(n)
    labels = classes_of(n, k, rng)
    x = CLOUDS[cloud](n, d, labels, rng).astype("float32")
    expected = oracle(x.astype("float64") / np.abs(x).max(), labels, "euclidean")
    assert abs(float(of_kernel(x, labels, monkeypatch).mean()) - expected) < 1e-6


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
def case_rows_of_very_different_scale(cloud, monkeypatch):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3, 4], [5, 5, 5, 27, 28])
    x = cloud(rng, labels).astype("float32")
    expected = oracle(x.astype("float64") / np.abs(x).max(), labels, "euclidean")
    assert abs(float(of_kernel(x, labels, monkeypatch).mean()) - expected) < 1e-6


@pytest.mark.parametrize(("offset", "cancels"), [(0, False), (1000, False), (None, True)])
def case_differences_are_taken_where_products_cancel_and_nowhere_else(offset, cancels, monkeypatch):
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
    result = of_kernel(x, labels, monkeypatch)
    assert result.isnan().any() == cancels


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def case_rows_of_any_single_precision(dtype, monkeypatch):
    rng = np.random.default_rng(0)
    labels = classes_of(100, 7, rng)
    x = torch.from_numpy(rng.normal(size=(7, 20))[labels] + rng.normal(size=(100, 20)) + 30).to(dtype)
    result = of_kernel(x, labels, monkeypatch)
    assert result.dtype == torch.float64
    assert np.abs(result.numpy() - sklearn_samples(x.double().numpy(), labels)).max() < 1e-6


def case_copies_are_at_distance_0_exactly():
    rows, codes, bounds = sorted_rows([20, 20, 3], 24)
    rows[:20] = rows[0]
    rows[20:30] = rows[0]
    own, nearest = fused_distances.fused_mean_distances(rows, codes, bounds)
    expected = definition(rows, codes, bounds)
    assert (own[:20] == 0).all() and (own[20:] > 0).all()
    assert torch.allclose(nearest, expected[1], rtol=1e-6)
    rows[20:40] = rows[0]
    assert (fused_distances.fused_mean_distances(rows, codes, bounds)[1][:40] == 0).all()


def case_the_same_rows_have_the_same_bits():
    given = sorted_rows([40, 25, 3], 40)
    first, second = (fused_distances.fused_mean_distances(*given) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))


def case_the_own_class_is_left_out_between_classes():
    """Of a class of half the rows: of its tiles half of the columns."""
    _, codes, bounds = sorted_rows([320, 160, 160], 1)
    tiles = fused_distances.Tiles(32, 32, 16, 4, 1)
    spans = fused_distances._spans(codes, bounds, tiles, within=False)
    walked = spans[:, 1] - spans[:, 0] - (spans[:, 3] - spans[:, 2])
    assert walked.tolist() == [320] * 10 + [480] * 10
    within = fused_distances._spans(codes, bounds, tiles, within=True)
    assert (within[:, 1] - within[:, 0]).tolist() == [320] * 10 + [160] * 10
