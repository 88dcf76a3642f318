import numpy as np
import pytest

from clip_geometry.geometry import cknna, cycle_knn, information_imbalance, linear_cka, mutual_knn
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


@pytest.mark.parametrize("seed", SEEDS)
def test_rotated_shifted_and_scaled_rows_agree_fully(seed):
    rng = np.random.default_rng(seed)
    x = cone(40, 6, rng)
    y = np.concatenate([2.5 * x, np.zeros((40, 3))], axis=1) @ rotation(9, rng) + rng.normal(size=9)
    assert float(linear_cka(x, y)) == pytest.approx(1, abs=1e-12)
    y = np.concatenate([2.5 * x, np.zeros((40, 3))], axis=1) @ rotation(9, rng)
    assert float(mutual_knn(x, y)) == 1


@pytest.mark.parametrize(("n", "d"), [(30, 4), (30, 300)])
def test_independent_sets_agree_by_chance_only(n, d):
    """The unbiased estimate has mean 0 however few rows there are, where the biased one tends to 1 as d/n grows."""
    values, biased, shared = [], [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(n, d)), rng.normal(size=(n, d))
        values.append(float(linear_cka(x, y)))
        a, b = x - x.mean(0), y - y.mean(0)
        biased.append(np.linalg.norm(a.T @ b) ** 2 / (np.linalg.norm(a.T @ a) * np.linalg.norm(b.T @ b)))
        shared.append(float(mutual_knn(x, y, k=5)))
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(40)
    assert np.mean(biased) > (0.08 if d == 4 else 0.8)
    assert np.mean(shared) == pytest.approx(5 / (n - 1), abs=4 * np.std(shared) / np.sqrt(40))


@pytest.mark.parametrize("k", [1, 4, 59])
def test_known_overlaps(k):
    """On a line of directions, neighbors are ranks: reversing it keeps them, swapping its halves keeps most."""
    angles = np.sort(np.random.default_rng(0).uniform(0, 1, size=60))
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert float(mutual_knn(x, x[:, ::-1].copy(), k=k)) == 1
    y = x[np.random.default_rng(1).permutation(60)]
    result = [{*np.argsort(np.abs(angles - a))[1 : k + 1]} for a in angles]
    order = np.random.default_rng(1).permutation(60)
    shuffled = [{*np.argsort(np.abs(angles[order] - a))[1 : k + 1]} for a in angles[order]]
    expected = np.mean([len(a & b) / k for a, b in zip(result, shuffled, strict=True)])
    assert float(mutual_knn(x, y, k=k)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_all_neighbors_it_is_cka_of_the_unit_rows(seed):
    x, y = sets(seed)
    unit = [z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y)]
    assert cknna(x, y, k=59) == pytest.approx(linear_cka(*unit), rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_neighbors_of_rotated_rows_agree_fully(seed):
    rng = np.random.default_rng(seed)
    x = cone(40, 6, rng)
    y = 2.5 * x @ rotation(6, rng)
    assert cknna(x, y) == pytest.approx(1, abs=1e-12)
    assert cycle_knn(x, y, k=1) == loops_of_cycles(x, y, 1) < 1  # a nearest neighbor need not have one in return


@pytest.mark.parametrize("seed", SEEDS)
def test_a_set_and_its_projection(seed):
    """All columns say where neighbors are in two of them better than the two say of all (Glielmo et al., figure 1)."""
    x = np.random.default_rng(seed).normal(size=(400, 6))
    assert information_imbalance(x, x[:, :2]) < 0.7 * information_imbalance(x[:, :2], x)
    assert information_imbalance(x, x @ np.diag([3.0] * 6)) == pytest.approx(2 / 400, rel=1e-12)
