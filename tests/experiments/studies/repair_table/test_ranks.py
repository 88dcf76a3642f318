"""Ranks against SciPy, scikit-posthocs 0.17.1 and the tables of Demšar 2006."""

import numpy as np
import pytest
from scipy.stats import f, friedmanchisquare

from clip_geometry_experiments.studies.repair_table.table import Ranking, critical_difference, ranking, resampled_error

SCORES = np.random.default_rng(7).normal(size=(9, 5)) + 0.7 * np.arange(5)
SCORES = SCORES.round(1)
NEMENYI = {  # posthoc_nemenyi_friedman(SCORES) of scikit-posthocs
    "ab": 0.8991, "ac": 0.0564, "ad": 0.0373, "ae": 0.0000, "bc": 0.3800,
    "bd": 0.2971, "be": 0.0010, "cd": 0.9999, "ce": 0.2256, "de": 0.2971,
}  # fmt: skip


def test_the_critical_difference_is_the_printed_one():
    """Demšar 2006, Table 5 (a), and his example of 4 classifiers on 14 data sets."""
    q = [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]
    for k, value in enumerate(q, start=2):
        assert critical_difference(k, 1) / np.sqrt(k * (k + 1) / 6) == pytest.approx(value, abs=1.1e-3)
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    q = [1.645, 2.052, 2.291]  # level 0.10
    assert [critical_difference(k, 6, 0.1) / np.sqrt(k * (k + 1) / 36) for k in (2, 3, 4)] == pytest.approx(q, abs=1e-3)


def test_what_is_apart_is_apart_by_scikit_posthocs():
    found = ranking("abcde", SCORES)
    assert found.names == ("e", "d", "c", "b", "a") and found.mean == pytest.approx((10 / 9, 23 / 9, 24 / 9, 4, 42 / 9))
    for (one, other), p in NEMENYI.items():
        assert (abs(found.rank(one) - found.rank(other)) > found.difference) == (p < 0.05)


@pytest.mark.parametrize("digits", [0, 1, 3])
def test_the_test_of_no_difference_is_friedmans_with_ties(digits):
    """Iman and Davenport's F of SciPy's χ², which is corrected for ties."""
    scores = (np.random.default_rng(3).normal(size=(8, 6)) + 0.3 * np.arange(6)).round(digits)
    n, k = scores.shape
    chi = friedmanchisquare(*scores.T).statistic
    expected = f.sf((n - 1) * chi / (n * (k - 1) - chi), k - 1, (k - 1) * (n - 1))
    assert ranking("abcdef", scores).p == pytest.approx(expected, rel=1e-9)


def test_ties_are_the_largest_runs_within_the_difference():
    found = Ranking(tuple("abcdef"), (1.0, 1.5, 3.0, 3.4, 5.0, 9.0), 8, 0.01, 2.1)
    assert found.ties() == [(0, 2), (1, 3), (2, 4)]
    assert found.best() == ("a", "b", "c")


def test_the_error_over_overlapping_splits_is_nadeau_and_bengios():
    values = np.array([1.0, 2.0, 4.0, 5.0])
    assert resampled_error(values, 0.5) == pytest.approx(np.sqrt((1 / 4 + 0.5) * 10 / 3))


def test_the_error_covers_what_new_items_change():
    """A tie is called one: of two repairs that are equal, 5% or fewer differ; the plain error calls a third different.

    The mean of 40 of 80 items, drawn in 10 halves, against the truth, for 300 data sets."""
    from scipy.stats import t

    generator = np.random.default_rng(0)
    wrong = {"corrected": 0, "plain": 0}
    for _ in range(300):
        items = generator.normal(size=80)
        halves = np.array([generator.permutation(items)[:40].mean() for _ in range(10)])
        reach = t.ppf(0.975, 9)
        wrong["corrected"] += abs(halves.mean()) > reach * resampled_error(halves, 1.0)
        wrong["plain"] += abs(halves.mean()) > reach * halves.std(ddof=1) / np.sqrt(10)
    assert wrong["corrected"] <= 0.07 * 300 and wrong["plain"] > 0.3 * 300
