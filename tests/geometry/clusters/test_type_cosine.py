import numpy as np
import pytest
import torch

from clip_geometry.geometry import average_cosine, inter_type_cosine, intra_type_cosine, measures
from clip_geometry.geometry.statistics.class_sums import class_sums
from clip_geometry.registry import InputError
from support.clouds import cone

SEEDS = range(5)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def zipfian(seed, n=40):
    """Rows and types of very different sizes, some of a single row."""
    rng = np.random.default_rng(seed)
    types = np.concatenate([np.zeros(n // 2), np.arange(n - n // 2) // 3 + 1, [90, 91]]).astype(int)
    return cone(n + 2, 5, rng), rng.permutation(types)


@pytest.mark.parametrize("seed", SEEDS)
def test_inter_is_the_formula_and_the_expectation_over_one_random_instance_per_type(seed):
    x, types = zipfian(seed)
    u, kinds = unit(x), np.unique(types)
    means = np.stack([u[types == t].mean(0) for t in kinds])
    count = len(kinds)
    formula = (means.sum(0) @ means.sum(0) - (means**2).sum()) / (count * (count - 1))
    value = float(inter_type_cosine(x, types))
    assert value == pytest.approx(formula, abs=1e-12)
    rng = np.random.default_rng(seed)
    draws = [float(average_cosine(np.stack([rng.choice(x[types == t]) for t in kinds]))) for _ in range(300)]
    assert abs(np.mean(draws) - value) < 4 * np.std(draws, ddof=1) / np.sqrt(len(draws))
    assert np.std(draws) < 0.1  # or the line above would hold for anything


@pytest.mark.parametrize("seed", SEEDS)
def test_intra_is_the_mean_of_the_average_cosines_of_the_types(seed):
    x, types = zipfian(seed)
    several = [t for t in np.unique(types) if (types == t).sum() > 1]
    expected = np.mean([float(average_cosine(x[types == t])) for t in several])
    assert float(intra_type_cosine(x, types)) == pytest.approx(expected, abs=1e-12)


def test_types_of_one_row_each_make_inter_the_average_cosine():
    x = cone(9, 4, np.random.default_rng(0))
    assert float(inter_type_cosine(x, list(range(9)))) == pytest.approx(float(average_cosine(x)), abs=1e-12)


def test_types_on_orthogonal_axes_are_0_between_and_1_within():
    x = np.repeat(np.diag([1.0, 2.0, 3.0]), 4, axis=0)
    types = np.repeat(["a", "b", "c"], 4)
    assert float(inter_type_cosine(x, types)) == pytest.approx(0, abs=1e-12)
    assert float(intra_type_cosine(x, types)) == pytest.approx(1, abs=1e-12)


def test_in_a_cone_both_are_high_for_labels_that_mean_nothing():
    """The caveat of intra_type_cosine: only its distance to inter_type_cosine speaks of the types."""
    rng = np.random.default_rng(0)
    x, types = rng.normal(size=(300, 8)) + 5, rng.integers(10, size=300)
    inter, intra = float(inter_type_cosine(x, types)), float(intra_type_cosine(x, types))
    assert inter > 0.9 and intra > 0.9
    assert intra - inter == pytest.approx(0, abs=0.01)


def test_a_tight_cone_keeps_its_digits():
    """Two types at angle ε: 1 − cos = ε²/2 = 5e-13 survives, where ‖Σm‖² − Σ‖m‖² would leave noise."""
    angle = 1e-6
    rows = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
    x, types = np.repeat(rows, 3, axis=0), [0, 0, 0, 1, 1, 1]
    # 1 − 5e-13 itself is a multiple of 1e-16
    assert 1 - float(inter_type_cosine(x, types)) == pytest.approx(angle**2 / 2, rel=1e-3)


def test_skipped_types_are_told():
    x, types = zipfian(0)
    remark = measures["intra_type_cosine"].remark
    assert remark is not None
    assert remark(x, types) == "2 of 10 types have a single row and are left out"
    assert remark(x[:4], [0, 0, 1, 1]) is None
    both = np.isin(types, [90, 91])
    assert float(intra_type_cosine(x, types)) == pytest.approx(
        float(intra_type_cosine(x[~both], types[~both])), abs=1e-12
    )


@pytest.mark.parametrize(
    ("measure", "types", "message"),
    [
        (intra_type_cosine, [0, 1, 2, 3], "each of the 4 rows has a type of its own; expected a type with two rows"),
        (intra_type_cosine, [0, 0, 0, 0], "all 4 labels are equal"),
        (inter_type_cosine, [0, 0, 0, 0], "all 4 labels are equal"),
        (inter_type_cosine, [0, 1, 0], "3 labels for 4 rows"),
    ],
)
def test_unusable_types(measure, types, message):
    with pytest.raises(InputError, match=message):
        measure(np.eye(4), types)


@pytest.mark.parametrize("measure", [inter_type_cosine, intra_type_cosine])
def test_gradients(measure):
    x = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda rows: measure(rows, [0, 1, 1, 0, 2, 3, 3]), (x,))


# --- the sums over classes that the types and the objectives share


def test_class_sums_agree_with_the_definition_over_several_blocks(monkeypatch):
    monkeypatch.setattr("clip_geometry.geometry.statistics.class_sums.BLOCK", 7)
    rng = np.random.default_rng(0)
    x, codes = cone(50, 4, rng), rng.integers(3, size=50)
    sums = class_sums(torch.from_numpy(x), torch.from_numpy(codes), 4)
    for omega in range(3):
        rows = x[codes == omega]
        assert sums.counts[omega] == len(rows)
        assert np.allclose(sums.sums[omega], (rows - x.mean(0)).sum(0), atol=1e-12)
        assert np.allclose(sums.mean + sums.offsets[omega], rows.mean(0), atol=1e-12)
        assert float(sums.scatters[omega]) == pytest.approx(((rows - rows.mean(0)) ** 2).sum(), rel=1e-12)
    assert sums.counts[3] == 0
    assert (sums.sums[3] == 0).all() and (sums.offsets[3] == 0).all() and sums.scatters[3] == 0
