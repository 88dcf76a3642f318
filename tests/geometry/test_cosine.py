import math
from importlib import import_module

import numpy as np
import pytest
import torch

from clip_geometry.geometry import (
    average_cosine,
    conformity,
    conformity_std,
    inter_type_cosine,
    intra_type_cosine,
    matching_cosine,
    measures,
    min_pairwise_cosine,
    random_cosine,
)
from clip_geometry.geometry import cone as cone_of
from clip_geometry.geometry.statistics.class_sums import class_sums
from clip_geometry.registry import InputError
from support.clouds import CLOUDS, cone
from support.oracles_objectives import conformity_distances


def test_a_tight_cone_keeps_its_digits():
    """Two rows at angle ε: 1 − cos = ε²/2 = 5e-15 survives, where ‖Σu‖² − n would leave noise of 1e-16·n²."""
    angle = 1e-7
    x = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
    assert 1 - float(average_cosine(x)) == pytest.approx(angle**2 / 2, rel=0.03)


@pytest.mark.parametrize("block_size", [1, 7, 1000])
def test_minimum_does_not_depend_on_the_block(block_size, monkeypatch):
    monkeypatch.setattr(import_module("clip_geometry.geometry.cosine"), "BLOCK", block_size)
    x = cone(40, 5, np.random.default_rng(0))
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert float(min_pairwise_cosine(x)) == pytest.approx((u @ u.T).min(), abs=1e-12)


def test_equal_rows_stay_within_the_range():
    x = np.tile(np.random.default_rng(0).normal(size=7), (50, 1))
    for score in (average_cosine(x), min_pairwise_cosine(x), matching_cosine(x, 3 * x), random_cosine(x, x)):
        assert 1 - 1e-12 < float(score) <= 1


def test_minimum_inside_one_block_is_seen():
    x = np.abs(cone(40, 4, np.random.default_rng(0))) + 1
    x[1] = -x[0]
    assert float(min_pairwise_cosine(x)) == pytest.approx(-1, abs=1e-12)


def circle(angle, n=60):
    """n rows at `angle` (radians) around the first axis, of different lengths."""
    turn = np.arange(n) * 2 * np.pi / n
    rows = np.stack([np.full(n, np.cos(angle)), np.sin(angle) * np.cos(turn), np.sin(angle) * np.sin(turn)], axis=1)
    return rows * np.linspace(1, 5, n)[:, None]


@pytest.mark.parametrize("degrees", [1e-5, 0.3, 25.0, 80.0])
def test_half_angle_is_the_angle_of_the_circle(degrees):
    result = cone_of(circle(math.radians(degrees)))
    assert np.abs(result.axis - [1, 0, 0]).max() < 1e-9
    for angle in (result.half_angle, result.half_angle_99):
        assert float(angle) == pytest.approx(degrees, rel=1e-9)
    for cosine in (result.mean_cosine, result.min_cosine):
        assert float(cosine) == pytest.approx(math.cos(math.radians(degrees)), abs=1e-12)


def test_quantile_angle_ignores_one_outlier_in_a_thousand():
    rows = np.concatenate([circle(0.1, 999), [[0.0, 1.0, 0.0]]])
    result = cone_of(rows)
    cosines = rows @ result.axis / np.linalg.norm(rows, axis=1)
    assert float(result.half_angle) > 80
    assert float(result.half_angle_99) == pytest.approx(math.degrees(math.acos(np.quantile(cosines, 0.01))), rel=1e-9)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_rows_agree_with_the_definition(cloud):
    x = CLOUDS[cloud](60, np.random.default_rng(0))
    assert np.abs(1 - conformity(x) - conformity_distances(x)).max() < 1e-12


def test_a_tight_cone_keeps_the_digits_of_the_spread():
    """Angles 0, ε, 3ε with ε = 1e-6: the spread of 1 − cos is of order 1e-12, below what conformities near 1 hold."""
    angles = 1e-6 * np.array([0.0, 1.0, 3.0])
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    squares = (angles[:, None] - angles) ** 2 / 2  # 1 − cos to order ε⁴
    assert float(conformity_std(x)) == pytest.approx(np.std(squares.sum(1) / 2), rel=1e-6)


def zipfian(seed, n=40):
    """Rows and types of very different sizes, some of a single row."""
    rng = np.random.default_rng(seed)
    types = np.concatenate([np.zeros(n // 2), np.arange(n - n // 2) // 3 + 1, [90, 91]]).astype(int)
    return cone(n + 2, 5, rng), rng.permutation(types)


def test_types_in_a_tight_cone_keep_their_digits():
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


PAIRS = np.random.default_rng(0).normal(size=(20, 3))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: cone_of(np.array([[1.0, 2.0], [-2.0, -4.0]])), "so there is no cone axis"),
        (lambda: cone_of(np.concatenate([PAIRS, -PAIRS / 3 + 1e-11])), "so there is no cone axis"),
        (lambda: conformity(np.eye(2)[:1]), "1 row; expected at least 2"),
        (lambda: conformity(np.diag([1.0, 0])), r"zero row \(row 1\)"),
        (lambda: conformity_std(np.eye(2)), "2 rows; expected at least 3"),
        (lambda: intra_type_cosine(np.eye(4), [0, 1, 2, 3]), "each of the 4 rows has a type of its own"),
        (lambda: inter_type_cosine(np.eye(4), [0, 0, 0, 0]), "all 4 labels are equal"),
        (lambda: inter_type_cosine(np.eye(4), [0, 1, 0]), "3 labels for 4 rows"),
    ],
)
def test_errors(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


def test_orthogonal_and_opposite_rows():
    assert float(average_cosine(np.eye(5))) == pytest.approx(0, abs=1e-12)
    assert float(average_cosine(np.array([[1.0, 0], [-3.0, 0]]))) == pytest.approx(-1)
    # a regular simplex: the most negative average there is, −1/(n − 1)
    assert float(average_cosine(np.eye(5) - 0.2)) == pytest.approx(-1 / 4)


def test_an_unusual_row_conforms_least():
    x = cone(40, 6, np.random.default_rng(0), offset=8.0)
    x[17] = -x.mean(0)
    values = conformity(x)
    assert int(values.argmin()) == 17
    assert float(values[17]) < 0 < float(np.delete(values, 17).min())


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


SEEDS = range(5)


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
