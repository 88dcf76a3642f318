"""Values without each block from shared work are those of the rows without the block."""

import pytest
import torch

from clip_geometry.geometry import measures
from clip_geometry.geometry.silhouette import of_distances
from clip_geometry.geometry.statistics import BlockedRows, ClassDistances, Statistic
from clip_geometry.registry import InputError
from support.covering import covering_array

SHARING = [
    m for m in measures.values()
    if m.statistic and m.smooth and m.statistic.without_each.__func__ is not Statistic.without_each.__func__
]  # fmt: skip
MERGING = [m for m in SHARING if m.statistic.includes_all and not m.quadratic]
EXACT = {"rtol": 1e-8, "atol": 1e-10}  # half the digits of a singular value are lost in its square


def rows_of(n, d, seed):
    torch.manual_seed(seed)
    cloud = torch.randn(n, d, dtype=torch.float64) * torch.linspace(0.2, 2, d) + torch.linspace(-1, 1, d)
    return cloud / cloud.norm(dim=1, keepdim=True)


def blocks_of(n, blocks, seed):
    """Unequal blocks, the last one empty; some rows are never left out."""
    return torch.randint(-1, blocks - 1, (n,), generator=torch.Generator().manual_seed(seed))


def values(measure, *sets):
    shared = measure.without_each(*sets)
    assert shared is not None
    return [float(measure.pick(result)) for result in shared]


def sets_for(measure, n, d, seed):
    """(rows that lose their block, what stays aligned with them)."""
    if measure.takes == "rows":
        return [rows_of(n, d, seed)], ()
    if measure.takes == "labeled rows":
        return [rows_of(n, d, seed)], (torch.arange(n) * 3 // n,)
    return [rows_of(n, d, seed), rows_of(n, d, seed + 100) + 0.3], ()


@pytest.mark.parametrize(
    ("name", "shape", "seed"), covering_array([m.name for m in SHARING], [(60, 9), (40, 64)], range(3))
)
def test_values_without_each_block(name, shape, seed):
    measure = measures[name]
    sets, others = sets_for(measure, *shape, seed)
    block_of = blocks_of(shape[0], 5, seed)
    result = values(measure, *(BlockedRows(rows, block_of, 5) for rows in sets), *others)
    kept = [block_of != block for block in range(5)]
    expected = [float(measure(*(each[rows] for each in (*sets, *others)))) for rows in kept]
    assert result == pytest.approx(expected, rel=EXACT["rtol"], abs=EXACT["atol"])
    assert len(set(expected)) > 1


@pytest.mark.parametrize("measure", MERGING, ids=lambda each: each.name)
def test_sums_of_near_rows_keep_their_digits(measure):
    sets, others = sets_for(measure, 60, 9, 0)
    sets = [1e-5 * rows + 0.3 for rows in sets]
    result = values(measure, *(BlockedRows(rows, blocks_of(60, 5, 0), 5) for rows in sets), *others)
    assert result[4] == pytest.approx(float(measure(*sets, *others)), rel=1e-9)


@pytest.mark.parametrize("name", ["modality_silhouette", "modality_silhouette[cosine]"])
def test_two_sets_lose_blocks_of_their_own(name):
    measure = measures[name]
    image, text = rows_of(30, 5, 0), rows_of(50, 5, 1) + 0.2
    codes = blocks_of(30, 4, 2), blocks_of(50, 4, 3)
    result = values(measure, *(BlockedRows(rows, blocks, 4) for rows, blocks in zip((image, text), codes, strict=True)))
    expected = [float(measure(image[codes[0] != b], text[codes[1] != b])) for b in range(4)]
    assert result == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", ["silhouette", "silhouette[cosine]"])
def test_a_class_that_is_a_block_is_no_neighbor_without_it(name):
    measure, rows, labels = measures[name], rows_of(30, 4, 0), torch.arange(30) // 10
    result = values(measure, BlockedRows(rows, labels, 3), labels)
    expected = [float(measure(rows[labels != b], labels[labels != b])) for b in range(3)]
    assert result == pytest.approx(expected, rel=1e-10)
    two = labels.clamp(max=1)
    with pytest.raises(InputError, match="expected at least two classes"):
        values(measure, BlockedRows(rows, two, 2), two)


def test_too_few_rows_without_a_block():
    measure, rows = measures["cka"], rows_of(6, 6, 0)
    part = BlockedRows(rows, torch.arange(6) % 2, 2)
    assert measure.without_each(part, part) is None  # 3 rows are left, 4 are needed


def test_equal_rows_without_a_block():
    rows = torch.ones(12, 16, dtype=torch.float64)
    rows[0, 0] = 2
    with pytest.raises(InputError, match="equal"):
        values(measures["effective_rank"], BlockedRows(rows, torch.tensor([0, 1, 1] + 9 * [-1]), 2))


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine"])
def test_mean_distances_without_a_block_are_those_of_the_rest(metric):
    x, labels, block_of = rows_of(40, 3, 0), torch.arange(40) * 3 // 40, blocks_of(40, 4, 0)
    for block, result in enumerate(ClassDistances.without_each(BlockedRows(x, block_of, 4), labels)):
        kept = block_of != block
        expected = ClassDistances(x[kept], labels[kept]).mean(of_distances, metric)
        assert torch.allclose(result.mean(of_distances, metric), expected, rtol=1e-12, atol=0)
