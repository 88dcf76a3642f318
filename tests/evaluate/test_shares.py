"""Shares: the effect of each item against the definition, known intervals, and coverage on structured populations."""

import numpy as np
import pytest
import torch
from scipy.stats import beta, binom, binomtest

from clip_geometry.evaluate.base import Effects, Share
from clip_geometry.evaluate.retrieval import retrieval
from clip_geometry.geometry import measures
from support.structured import KINDS, drawn

WAY = "image_to_text.r_at_1"


def of_ones(hits, n, items=None):
    values = (torch.arange(n) < hits).double()
    return Share(values, torch.arange(n) if items is None else items)


@pytest.mark.parametrize(("hits", "n"), [(5, 20), (84, 99), (0, 50), (50, 50), (995, 1000)])
def test_independent_queries_have_wilsons_interval(hits, n):
    """With n − 1 in place of n, as a variance over n items has; both differ by 1/(2n)."""
    share = of_ones(hits, n)
    expected = binomtest(hits, n).proportion_ci(method="wilson")
    expected = expected.low, expected.high
    assert share.interval == pytest.approx(expected, abs=0.3 / n)
    assert share.interval[0] <= share.value <= share.interval[1] and share.standard_error > 0


@pytest.mark.parametrize("n", [100, 300, 2000])
def test_the_exact_coverage_of_independent_queries(n):
    """From the binomial distribution: 0.92 to 0.98 where three hits or more are expected.

    Below, at least 0.92, and up to 1: as the expected number tends to 0 the count is 0 in every sample, so whether one
    interval holds the truth decides, and the coverage of every interval that depends on the count alone tends to 0 or
    1. Such intervals are no more than 6% wider than those of Clopper & Pearson, which hold in at least 95%.
    """
    counts = np.arange(80)
    low, high = np.array([of_ones(int(hits), n).interval for hits in counts]).T
    exact = np.nan_to_num(beta.ppf(0.025, counts, n - counts + 1)), beta.ppf(0.975, counts + 1, n - counts)
    for expected in np.geomspace(0.01, 20, 2000):
        chance = binom.pmf(counts, n, expected / n)
        covered = chance[(low <= expected / n) & (expected / n <= high)].sum()
        assert 0.92 <= covered <= (0.98 if expected >= 3 else 1)
        assert chance @ (high - low) <= 1.06 * chance @ (exact[1] - exact[0])


def test_copies_of_queries_are_not_more_data():
    """Every item asks five times with the same result: the interval is that of the items."""
    once, five = of_ones(30, 40), Share(of_ones(30, 40).values.repeat(5), torch.arange(40).repeat(5))
    assert five.interval == pytest.approx(once.interval, rel=1e-12)
    all_right = Share(torch.ones(200), torch.arange(40).repeat(5))
    assert all_right.interval == pytest.approx(of_ones(40, 40).interval, rel=1e-12)


def test_one_row_in_the_way_of_many_widens_the_interval():
    items = torch.arange(100)
    missed = torch.arange(30)
    effects = Effects(missed, torch.full((30,), 99), torch.ones(30, dtype=torch.float64))
    values = (items >= 30).double()
    hub, none = Share(values, items, effects), Share(values, items)
    assert hub.variance > 3 * none.variance
    many = Effects(missed, items[:30] + 50, torch.ones(30, dtype=torch.float64))  # 30 rows, each in the way of one
    assert Share(values, items, many).variance == pytest.approx(none.variance, rel=0.35)


@pytest.mark.parametrize("index", ["cross", "mixed"])
@pytest.mark.parametrize("captions", [1, 3])
def test_effects_are_those_of_leaving_the_item_out(index, captions):
    """Every number of `retrieval` after each item's rows are removed, from the effects and by the definition."""
    rng = np.random.default_rng(captions)
    n = 24
    of = rng.permutation(np.arange(n).repeat(captions))
    image = rng.normal(size=(n, 5))
    text = image[of] + 1.2 * rng.normal(size=(n * captions, 5)) + 0.5
    pairs = np.stack([of, np.arange(n * captions)])
    numbers = torch.arange(n), torch.from_numpy(of)
    shares = measures[f"retrieval.{WAY}"].shares(image, text, pairs, items=numbers, index=index)
    whole = retrieval(image, text, pairs, index=index)
    assert {key: share.value for key, share in shares.items()} == pytest.approx(
        {key: value for key, value in whole.items() if "median" not in key}, rel=1e-12
    )
    changed = 0
    for item in range(n):
        kept = of != item
        fewer = np.searchsorted(np.delete(np.arange(n), item), of[kept])
        rest = retrieval(np.delete(image, item, 0), text[kept], np.stack([fewer, np.arange(kept.sum())]), index=index)
        for key, share in shares.items():
            here = share.effects.items == item
            gone = share.items == item
            moved = share.effects.changes[here].sum()
            assert not gone[share.effects.queries[here]].any()
            result = float(share.values[~gone].sum() + moved) / int((~gone).sum())
            assert result == pytest.approx(rest[key], abs=1e-12), (key, item)
            changed += int(here.sum())
    assert changed > 30


@pytest.mark.usefixtures("no_type_checker")
@pytest.mark.parametrize(
    ("kind", "noise", "n"),
    [
        *(("clusters", 1.0, 100), ("hubs", 0.5, 100), ("hubs", 6.0, 100)),
        *(
            pytest.param(kind, noise, n, marks=[pytest.mark.slow, pytest.mark.weekly])
            for kind in KINDS
            for noise in (0.5, 2.0, 8.0)
            for n in (300, 1000)
        ),
    ],
)
def test_the_interval_covers_recall_near_0_and_1_and_with_hubs(kind, noise, n):
    """The mean over all draws, the expected value at this n, lies in 90 to 98% of the intervals.

    A share of 80 draws is uncertain by 2.4%, two of which are added on both sides. Where fewer than three misses or
    hits are expected, most draws have the same few values, and the coverage may exceed 98%: see the exact one above.
    Where five are, the standard errors are the deviations of the shares, each of which is uncertain by 8%: in the
    median of the numbers of an index a factor of 1.4 is seen.
    """
    draws = {100: 80, 300: 200, 1000: 60}[n]
    result = {}
    for seed in range(draws):
        image, text, _ = drawn(kind, n, np.random.default_rng([seed, n]), noise)
        for index in ("cross", "mixed"):
            for key, share in measures[f"retrieval.{WAY}"].shares(image, text, index=index).items():
                if key.endswith(("r_at_1", "r_at_10", "same_modality_at_10")):
                    estimate = share.value, share.standard_error, *share.interval
                    result.setdefault((index, key), []).append(estimate)
    slack = 2 * np.sqrt(0.95 * 0.05 / draws)
    ratios = {"cross": [], "mixed": []}
    for key, rows in result.items():
        value, error, low, high = np.array(rows).T
        true = value.mean()
        covered = np.mean((low <= true) & (true <= high))
        few = n * min(true, 1 - true) < 3
        assert 0.90 - slack <= covered <= (1 if few else 0.98 + slack), (key, true, covered)
        if n == 100 and n * min(true, 1 - true) >= 5:
            ratios[key[0]].append(np.sqrt(np.square(error).mean()) / value.std(ddof=1))
    assert all(0.85 < np.median(each) < 1.3 for each in ratios.values() if each), ratios
