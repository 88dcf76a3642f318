"""Streamed rows give what the rows in memory give: read in order, a bounded number of times, few blocks at a time."""

import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

from clip_geometry import Moments
from clip_geometry.embeddings import chosen_rows
from clip_geometry.geometry import isoscore, measures
from clip_geometry.geometry.statistics.class_sums import class_sums
from clip_geometry.geometry.statistics.moments import moments_of_groups
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import as_rows, mean_row, require_spread, unit_rows
from clip_geometry.rows.streamed import StreamedRows, cat, gaussian_rows, release
from support.clouds import MEASURES, cone

N, D = 9000, 12  # several blocks of every size that is read but the largest
# passes over each set: what a measure may read, whatever n is
PASSES = {"cka": 11, "isotropy_i1": 3, "isotropy_i2": 3, "relative_modality_gap": 3}
# the means of the classes, their variances, the distances; before, for directions, the lengths
PASSES |= {"silhouette": 4, "modality_silhouette": 4}


class Source:
    """Rows that count how they are read, and how many blocks of them are alive."""

    def __init__(self, rows):
        self.rows, self.shape = torch.from_numpy(rows), rows.shape
        self.spans, self.alive, self.most = [], 0, 0

    def __getitem__(self, rows):
        block = self.rows[rows].clone()
        if isinstance(rows, slice) and len(block) > 1:
            self.spans.append((rows.start, rows.stop))
            self.alive += 1
            self.most = max(self.most, self.alive)
            weakref.finalize(block, self._gone)
        return block

    def _gone(self):
        self.alive -= 1


def sets_of(measure, n=N):
    rng = np.random.default_rng(0)
    x, y = (cone(n, D, rng).astype(np.float16) for _ in range(2))
    y = (0.5 * x + y).astype(np.float16)
    labels = rng.integers(0, 5, n)
    return (x, y) if measure.inputs.across else (x, labels) if measure.takes == "labeled rows" else (x,)


def streamed(sets):
    """The sets with StreamedRows in place of the matrices, and their sources."""
    sources = [Source(part) for part in sets if part.ndim == 2]
    rest = [part for part in sets if part.ndim == 1]
    return [*(StreamedRows.of(source) for source in sources), *rest], sources


LINEAR = [name for name, m in MEASURES.items() if m.streams and not m.quadratic]
QUADRATIC = [name for name, m in MEASURES.items() if m.streams and m.quadratic]


@pytest.mark.parametrize("name", LINEAR)
def test_a_measure_that_streams_reads_in_order_a_few_times_and_keeps_few_blocks(name):
    measure = measures[name]
    sets = sets_of(measure)
    arguments, sources = streamed(sets)
    result = float(measure(*arguments))
    assert result == pytest.approx(float(measure(*sets)), rel=1e-9, abs=1e-12)
    for source in sources:
        assert sum(stop - start for start, stop in source.spans) <= (PASSES.get(name.partition("[")[0], 2) + 0.1) * N
        assert source.most <= 2
        starts = {start for start, _ in source.spans}
        # every block begins where another ends, or where a pass begins
        assert starts <= {0, *(stop for _, stop in source.spans)}


@pytest.mark.parametrize("name", QUADRATIC)
def test_measures_of_all_pairs_stream_blockwise(name):
    measure = measures[name]
    sets = sets_of(measure, n=3000)  # more than one block of queries
    arguments, sources = streamed(sets)
    assert float(measure(*arguments)) == pytest.approx(float(measure(*sets)), rel=1e-9)
    assert all(source.most <= 3 for source in sources)


@pytest.mark.parametrize("name", [name for name, m in MEASURES.items() if not m.streams])
def test_the_others_say_that_they_need_the_rows_in_memory(name):
    sets = sets_of(measures[name], n=300)
    arguments, _ = streamed(sets)
    with pytest.raises(InputError, match=r"rows of (x|image) are streamed, but all are needed in memory here"):
        measures[name](*arguments)


def test_which_measures_stream():
    assert len(LINEAR) > 20
    assert {"isoscore", "average_cosine", "intra_type_cosine", "modality_gap", "cka"} <= set(LINEAR)


def relative(found, expected, scale=None):
    return float((found - expected).norm() / (expected.norm() if scale is None else scale))


def require_moments(x):
    result, expected = Moments.of(StreamedRows.of(x)), Moments.of(x)
    assert relative(result.M2, expected.M2) < 1e-6
    assert relative(result.T, expected.T, float(expected.Q) ** 0.75 * expected.n**0.25) < 1e-6
    assert relative(result.Q, expected.Q) < 1e-6
    return result, expected


@pytest.mark.parametrize("offset", [0, 1000])
@pytest.mark.parametrize("d", [300, 512])
def test_moments_of_float16_rows_by_float32_products(d, offset):
    """The oracle is the float64 two-pass on the same rows. An offset of 1000 × the spread leaves each column a few
    values, whose rounding errors would add up."""
    rng = np.random.default_rng(0)
    x = (cone(20_000, d, rng) + offset * rng.normal(size=d)).astype(np.float16)
    result, expected = require_moments(x)
    assert relative(result.mean, expected.mean) < 1e-14
    assert relative(result.M2, expected.M2) > 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("alike", [False, True])
def test_moments_of_columns_of_two_values(seed, alike):
    """Equal products round alike, so that their errors add up instead of cancelling: the worst case of the bound."""
    rng = np.random.default_rng(seed)
    low, high = rng.random(2)
    x = np.where(rng.random((8192, 1 if alike else 256)) < 0.5, low, high) * (rng.random(256) if alike else 1)
    x = x.astype(np.float16)
    require_moments(x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-30, 1, 1e30])
def test_moments_at_the_ends_of_the_range(scale, dtype):
    x = (scale * cone(3000, 256, np.random.default_rng(0))).astype(dtype)
    result, expected = Moments.of(StreamedRows.of(x)), Moments.of(x)
    tolerance = 1e-6 if dtype is np.float32 else 1e-12
    assert relative(result.M2 / scale**2, expected.M2 / scale**2) < tolerance
    assert relative(result.Q / scale**4, expected.Q / scale**4) < tolerance


def test_unit_rows_of_float16_rows_far_from_the_origin():
    rng = np.random.default_rng(0)
    x = (cone(9000, 256, rng) + 50 * rng.normal(size=256)).astype(np.float16)
    rows = unit_rows(StreamedRows.of(x))
    assert rows.stored == torch.float16  # and so by float32 products
    result, expected = Moments.of(rows), Moments.of(unit_rows(torch.from_numpy(x)))
    assert 0 < relative(result.M2, expected.M2) < 1e-6


def test_threads_change_nothing_but_rounding():
    x = cone(9000, 300, np.random.default_rng(0)).astype(np.float16)
    before = torch.get_num_threads()
    try:
        result = []
        for count in (1, 3):
            torch.set_num_threads(count)
            result.append((Moments.of(StreamedRows.of(x)), mean_row(StreamedRows.of(x))))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(before)
    (one, mean), (several, other) = result
    assert relative(several.M2, one.M2) < 1e-6
    assert relative(other, mean) < 1e-14


def test_moments_of_groups_are_those_of_their_rows():
    rng = np.random.default_rng(0)
    x, codes = cone(5000, 7, rng), torch.from_numpy(rng.integers(0, 3, 5000))
    rows = StreamedRows.of(x)
    for code, result in enumerate(moments_of_groups(rows, codes, 3)):
        expected = Moments.of(x[codes.numpy() == code])
        assert result.n == expected.n
        assert relative(result.M2, expected.M2) < 1e-12
    assert relative(rows.known["moments"].M2, Moments.of(x).M2) < 1e-12


def test_class_sums_far_from_the_origin():
    """One class is empty, another a single row."""
    rng = np.random.default_rng(0)
    x, codes = cone(5000, 7, rng) + 1e6, torch.from_numpy(rng.integers(0, 3, 5000))
    codes[17] = 4
    for result, expected in zip(
        class_sums(StreamedRows.of(x), codes, 5), class_sums(as_rows(x), codes, 5), strict=True
    ):
        assert torch.allclose(result, expected, rtol=1e-9, atol=1e-6)  # sums of 1000 rows of size 1e6 in float64


def test_equal_rows_are_an_error_in_any_precision():
    for d, dtype in ((3, np.float64), (300, np.float16)):
        with pytest.raises(InputError, match="all 5000 rows of x are equal"):
            isoscore(StreamedRows.of(np.full((5000, d), 0.1, dtype)))
        with pytest.raises(InputError, match="are equal"):
            require_spread(StreamedRows.of(np.full((5000, d), 0.1, dtype)))


@pytest.mark.parametrize("rows", [slice(4990, 5003), torch.tensor([4999, 7]), torch.arange(9000) == 4999])
def test_bad_values_are_found_as_they_are_read_and_named_by_their_row(rows):
    x = cone(9000, 4, np.random.default_rng(0))
    x[4999, 2] = np.nan
    parts = cat([StreamedRows.of(x[:3000], name="image"), StreamedRows.of(x[3000:], name="image")])
    assert len(parts[:4999]) == 4999
    with pytest.raises(InputError, match="image has NaN or infinity in row 4999"):
        parts[rows]
    with pytest.raises(InputError, match="image has NaN or infinity in row 4999"):
        Moments.of(parts)


def test_rows_that_were_skipped_are_not_taken_for_checked():
    x = cone(9000, 4, np.random.default_rng(0))
    x[4999, 2] = np.nan
    rows = StreamedRows.of(x)
    assert len(rows[6000:7000]) == 1000
    with pytest.raises(InputError, match="NaN or infinity in row 4999"):
        rows[4000:5000]


def test_zero_rows_are_named_by_their_row():
    x = cone(9000, 4, np.random.default_rng(0))
    x[5001] = 0
    with pytest.raises(InputError, match=r"zero row \(row 5001\)"):
        measures["average_cosine"](StreamedRows.of(x))
    with pytest.raises(InputError, match=r"zero row \(row 5001\)"):
        unit_rows(StreamedRows.of(x))[torch.tensor([3, 5001])]


def test_rows_that_are_taken_and_joined():
    x = cone(50, 4, np.random.default_rng(0)).astype(np.float16)
    both = cat([StreamedRows.of(x[:20]), StreamedRows.of(x[20:].astype(np.float32))])
    assert both.dtype == torch.float32
    order = torch.from_numpy(np.random.default_rng(1).permutation(50))
    expected = torch.from_numpy(x).float()
    assert torch.equal(both[:], expected)
    assert torch.equal(both[15:25], expected[15:25])
    assert torch.equal(both[3:7], expected[3:7]) and both[3:7].dtype == torch.float32
    assert torch.equal(both.take(order)[:], expected[order])
    assert torch.equal(both[order], expected[order])
    assert torch.equal(both.take(order)[3], expected[order][3])


@pytest.mark.parametrize(
    "rows",
    [
        slice(None, None, 3),
        slice(40, 4, -7),
        slice(9, 9),
        slice(9, 2),
        slice(9, 9, 2),
        slice(-4, 90),
        -1,
        np.int64(-50),
        np.zeros(0, dtype=int),
        [49, -1, 0],
        np.arange(50) % 7 == 2,
    ],
    ids=str,
)
def test_rows_are_chosen_as_numpy_chooses_them(rows):
    x = cone(50, 4, np.random.default_rng(0)).astype(np.float16)
    both = cat([StreamedRows.of(x[:20]), StreamedRows.of(x[20:])])
    shifted = both.map(lambda block, numbers: block.double() + torch.as_tensor(list(numbers))[:, None], 4)
    numbered = x.astype(float) + np.arange(50)[:, None]
    for given, expected in ((StreamedRows.of(x), x), (both, x), (shifted, numbered)):
        assert np.array_equal(given[rows].numpy(), expected[rows])


@pytest.mark.parametrize("rows", [50, -51, [3, 50], [-51]])
def test_rows_that_are_not_there_are_an_error(rows):
    """They were what the memory happened to hold."""
    both = cat([StreamedRows.of(cone(25, 4, np.random.default_rng(k))) for k in range(2)])
    with pytest.raises(IndexError, match=r"row -?5[01] is out of range; expected one of 50 rows"):
        both[rows]
    with pytest.raises(IndexError, match=r"a mask of shape \(49,\) was given for 50 rows"):
        both[torch.ones(49, dtype=torch.bool)]


def test_arrays_in_orders_that_torch_does_not_have():
    x = cone(50, 4, np.random.default_rng(0)).astype(np.float32)
    for array in (x[::-1], x.astype(">f4"), np.asfortranarray(x)):
        rows = StreamedRows.of(array)
        assert rows.dtype == torch.float32
        assert np.array_equal(rows[3:9].numpy(), array[3:9])
        assert np.array_equal(rows[[8, 3]].numpy(), array[[8, 3]])


def test_joined_rows_hold_the_numbers_of_all():
    """float16 and bfloat16 are equally long, and neither holds the other."""
    parts = [torch.full((2, 3), 1.001, dtype=torch.float16), torch.full((2, 3), 1e20, dtype=torch.bfloat16)]
    both = cat([StreamedRows.of(part) for part in parts])
    assert both.dtype == both.stored == torch.float32
    assert torch.equal(both[:], torch.cat([part.float() for part in parts]))


def resident(path):
    """kB of the file that are mapped into this process."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    result = [k for k, line in enumerate(lines) if line.endswith(str(path))]
    return sum(int(next(line for line in lines[k:] if line.startswith("Rss:")).split()[1]) for k in result)


@pytest.mark.skipif(not Path("/proc/self/smaps").is_file(), reason="only Linux says what is resident")
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_pass_leaves_no_pages_in_the_process(tmp_path, order):
    """Rows of 8 MB; of arrays in Fortran's order each block lies everywhere in the file."""
    np.save(tmp_path / "rows.npy", np.asarray(np.random.default_rng(0).normal(size=(8192, 128)), order=order))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert float(mapped.sum()) != 0 and resident(tmp_path / "rows.npy") > 8000
    rows = StreamedRows.of(mapped)
    for block in rows.split(1000):
        assert len(block) and resident(tmp_path / "rows.npy") < 100
    assert len(rows[[5, 8000]]) == 2 and resident(tmp_path / "rows.npy") < 100
    chosen = chosen_rows(mapped, np.arange(0, 8192, 3))
    assert np.array_equal(StreamedRows.of(chosen)[10:2000].numpy(), np.asarray(chosen)[10:2000])
    assert len(StreamedRows.of(chosen)[:2000]) == 2000 and resident(tmp_path / "rows.npy") < 100


def test_a_memory_map_leaves_no_pages_behind(tmp_path):
    rows = np.random.default_rng(0).normal(size=(5000, 64)).astype(np.float16)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    result = StreamedRows.of(mapped[100:])  # a part of a map lies elsewhere in it
    assert torch.equal(result[17:4000], torch.from_numpy(rows[117:4100]))
    assert torch.equal(result[torch.tensor([5, 4899])], torch.from_numpy(rows[[105, 4999]]))
    changed = np.load(tmp_path / "rows.npy", mmap_mode="c")
    changed[:] = 1
    release(changed)  # what is written lies nowhere else, and is kept
    assert (changed == 1).all()


@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_noise_of_a_scale_that_float32_does_not_hold(scale):
    noise, plain = gaussian_rows((5000, 3), 1, scale), gaussian_rows((5000, 3), 1)
    expected = plain[0:5000].double() * scale
    assert torch.allclose(noise[0:5000] / scale, expected / scale, rtol=1e-12)
    assert torch.equal(noise[[7, 4999]], noise[0:5000][[7, 4999]])


def test_noise_is_the_same_whenever_it_is_asked_for():
    noise, other = gaussian_rows((9000, 5), 1, 2.0), gaussian_rows((9000, 5), 2, 2.0)
    every = noise[0:9000]
    assert torch.equal(noise[4090:4100], every[4090:4100])
    assert torch.equal(noise[torch.tensor([8999, 0, 4096])], every[[8999, 0, 4096]])
    assert float(every.std()) == pytest.approx(2, rel=0.02)  # 45 000 numbers: 1/√90 000 = 0.3 %
    assert len(every.unique(dim=0)) == 9000  # no block comes twice
    assert len(torch.cat([every, other[0:9000]]).unique(dim=0)) == 18_000  # nor for another seed
    for seed in (other, gaussian_rows((9000, 5), 0, 2.0)):
        assert abs(float((every * seed[0:9000]).mean())) < 0.1  # 4 × 1/√45 000 = .02


def test_rows_put_together_keep_the_engine_that_makes_their_passes():
    asked = []
    parts = [StreamedRows.of(np.ones((3, 2))).aggregated_by(lambda x, *job: asked.append(len(x))) for _ in range(2)]
    cat(parts).map(lambda block, _: block, 2).aggregate(int, max, max, 4)
    assert asked == [6]


@pytest.mark.parametrize("n", [1, 511, 3000, 5000])
def test_threads_map_the_same_parts_in_the_same_places(n):
    """Products of different numbers of rows may differ in their last digits, so threads must not change the parts."""
    x = StreamedRows.of(np.arange(2.0 * n).reshape(n, 2))
    before = torch.get_num_threads()
    parts = {}
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            calls = parts[threads] = []

            def doubled(block, numbers, calls=calls):
                calls.append((numbers[0], len(block)))
                return 2 * block

            assert torch.equal(x.map(doubled, 2)[:], 2 * x[:])
    finally:
        torch.set_num_threads(before)
    assert sorted(parts[1]) == sorted(parts[2]) == sorted(parts[3])
