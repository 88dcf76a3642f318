import numpy as np
import pytest

from clip_geometry.geometry import information_imbalance
from clip_geometry.registry import InputError
from support.oracles_agreement import information_imbalance as oracle

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_set_and_its_projection(seed):
    """All columns say where neighbors are in two of them better than the two say of all (Glielmo et al., figure 1)."""
    x = np.random.default_rng(seed).normal(size=(400, 6))
    assert information_imbalance(x, x[:, :2]) < 0.7 * information_imbalance(x[:, :2], x)
    assert information_imbalance(x, x @ np.diag([3.0] * 6)) == pytest.approx(2 / 400, rel=1e-12)


def test_independent_sets_have_one_on_average():
    values = [information_imbalance(*np.random.default_rng(seed).normal(size=(2, 60, 5))) for seed in range(60)]
    assert np.mean(values) == pytest.approx(1, abs=4 * np.std(values) / np.sqrt(60))
    assert np.std(values) > 0.01


def test_agrees_with_dadapy():
    """Values of MetricComparisons([x, y]).return_inf_imb_two_selected_coords(x's columns, y's, k) of dadapy 0.3.4."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(150, 4))
    y = x[:, :2] + 0.3 * rng.normal(size=(150, 2))
    for k, forth, back in ((1, 0.3008, 0.6087111111111111), (5, 0.35230222222222224, 0.5429333333333333)):
        assert information_imbalance(x, y, k=k) == pytest.approx(forth, rel=1e-9)
        assert information_imbalance(y, x, k=k) == pytest.approx(back, rel=1e-9)


@pytest.mark.parametrize("k", [2, 7])
def test_several_neighbors(k):
    x, y = np.random.default_rng(0).normal(size=(2, 50, 4))
    assert information_imbalance(x, x + y, k=k) == pytest.approx(oracle(x, x + y, k), rel=1e-12)


def test_more_rows_than_a_block():
    x, y = np.random.default_rng(0).normal(size=(2, 1100, 3))
    assert information_imbalance(x, x + y) == pytest.approx(oracle(x, x + y), rel=1e-12)


def test_equal_rows_have_no_neighbors():
    x = np.random.default_rng(0).normal(size=(12, 5))
    for sets, name in (((x, np.ones((12, 2))), "text"), ((np.ones((12, 2)), x), "image")):
        with pytest.raises(InputError, match=f"all 12 rows of {name} are equal"):
            information_imbalance(*sets)
    with pytest.raises(InputError, match="image has 12 rows; expected at least 13 for k = 12"):
        information_imbalance(x, x, k=12)
