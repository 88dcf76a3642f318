import numpy as np
import pytest

from clip_geometry.geometry import cknna, cycle_knn, information_imbalance, linear_cka
from clip_geometry.registry import InputError
from support.clouds import cone, rotation
from support.oracles_agreement import cknna as dense
from support.oracles_agreement import cycle_knn as loops_of_cycles
from support.oracles_agreement import information_imbalance as oracle
from support.oracles_neighbors import hsic

SEEDS = range(3)


def sets(seed, n=60, d=6, e=9):
    """Two sets with something in common, of different dimensions."""
    rng = np.random.default_rng(seed)
    x = cone(n, d, rng)
    return x, x @ rng.normal(size=(d, e)) + 3 * rng.normal(size=(n, e)) + 1


def loops(x, y):
    """The U-statistic of Song et al. (equation 4 of theorem 3) over all quadruples of different rows."""
    k, m = x @ x.T, y @ y.T
    n, total, count = len(x), 0.0, 0
    for i in range(n):
        for j in range(n):
            for q in range(n):
                for r in range(n):
                    if len({i, j, q, r}) == 4:
                        total += k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q])
                        count += 1
    return total / count


@pytest.mark.parametrize("seed", SEEDS)
def test_the_closed_form_is_the_mean_over_all_quadruples_centered_or_not(seed):
    x, y = sets(seed, n=8)
    assert hsic(x, y) == pytest.approx(loops(x, y), rel=1e-10)
    assert loops(x + 3, y - 2) == pytest.approx(loops(x, y), rel=1e-10)
    expected = loops(x, y) / np.sqrt(loops(x, x) * loops(y, y))
    assert float(linear_cka(x, y)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("d", [3, 40])
def test_both_forms_of_the_product_agree(d):
    """30² ≤ 40² takes the n × n matrix, 30² > 3² the d × d one; appended zeros change the form and not the value."""
    x, y = sets(0, n=30, d=d, e=d)
    wide = np.concatenate([x, np.zeros((30, 400))], axis=1)
    assert float(linear_cka(wide, y)) == pytest.approx(float(linear_cka(x, y)), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-130, 1e-6, 1e6, 1e130])
def test_fourth_powers_stay_in_range(scale):
    x, y = sets(0)
    assert float(linear_cka(scale * x, y)) == pytest.approx(float(linear_cka(x, y)), rel=1e-10)


def test_one_far_row_does_not_cancel_the_others():
    """Such as the sink tokens of language models: the norms of one row exceed the rest a thousandfold."""
    x, y = sets(0)
    x[0] *= 1000
    expected = hsic(x, y) / np.sqrt(hsic(x, x) * hsic(y, y))
    assert float(linear_cka(x, y)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("degenerate", ["simplex", "all equal but one"])
def test_no_structure_is_an_error(degenerate):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 5))
    y = np.eye(12) @ rotation(12, rng) if degenerate == "simplex" else np.ones((12, 5))
    if degenerate != "simplex":
        y[4] = rng.normal(size=5)
    for a, b, name in ((x, y, "text"), (y, x, "image")):
        with pytest.raises(InputError, match=f"the 12 rows of {name} are all equal but one, or all equally far apart"):
            linear_cka(a, b)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [2, 5, 59])
def test_any_number_of_neighbors(seed, k):
    x, y = sets(seed)
    assert cknna(x, y, k=k) == pytest.approx(dense(x, y, k), rel=1e-9)
    assert cycle_knn(x, y, k=k) == loops_of_cycles(x, y, k)


def test_agrees_with_dadapy():
    """Values of MetricComparisons([x, y]).return_inf_imb_two_selected_coords(x's columns, y's, k) of dadapy 0.3.4."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(150, 4))
    y = x[:, :2] + 0.3 * rng.normal(size=(150, 2))
    for k, forth, back in ((1, 0.3008, 0.6087111111111111), (5, 0.35230222222222224, 0.5429333333333333)):
        assert information_imbalance(x, y, k=k) == pytest.approx(forth, rel=1e-9)
        assert information_imbalance(y, x, k=k) == pytest.approx(back, rel=1e-9)


def test_imbalance_of_more_rows_than_a_block():
    x, y = np.random.default_rng(0).normal(size=(2, 1100, 3))
    assert information_imbalance(x, x + y) == pytest.approx(oracle(x, x + y), rel=1e-12)


def test_neighbors_that_do_not_align_with_themselves():
    x, _ = sets(0)
    far = np.eye(12) @ rotation(12, np.random.default_rng(0))
    with pytest.raises(InputError, match="the cosines of the 3 nearest rows of text do not align with themselves"):
        cknna(x[:12], far, k=3)
    with pytest.raises(InputError, match="k = 1; expected a whole number from 2"):
        cknna(x, x, k=1)
