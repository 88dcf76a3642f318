"""Verdicts: a planted effect is found, none is none, what one seed carries is said; ranks are over settings."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from clip_geometry.registry import InputError
from clip_geometry_experiments.studies.train_clip.interventions import (
    StudyClaim,
    Training,
    effects,
    interval,
    judge,
    trainings,
    verdict,
)
from support.generated import site_module
from support.train_clip import planned

page = site_module("claims")
OBJECTIVES = ("ClipLoss", "SigLIP", "ClipLoss at 0.02", "ClipLoss at 0.2")
NUMBERS = ("x both last", "y both tested", "z both last", "flat both last")


def grid(values, seeds=4, noise=0.01, **only):
    """Trainings of a full grid. values: settings → the numbers without noise."""
    rng = np.random.default_rng(7)
    found = []
    for seed, objective, dimension, share in product(range(seeds), OBJECTIVES, (16, 128), (0.0, 0.3)):
        given = values(objective, dimension, share, seed)
        numbers = {key: given.get(key[0], 0.0) + noise * rng.normal() for key in NUMBERS[:3]} | {NUMBERS[3]: 2.0}
        found.append(Training(objective, dimension, share, 0.75, seed, numbers))
    return found


def claim(expects="above", bound=0.0, smallest=0.05, **test):
    return StudyClaim(name="planted", says="", source="", test=test, expects=expects, bound=bound, smallest=smallest)


NOISE = {"kind": "contrast", "of": NUMBERS[0], "factor": "noise", "high": 0.3, "low": 0.0}


@pytest.mark.parametrize(
    ("expects", "found"), [("above", "holds"), ("below", "does not hold"), ("equal", "does not hold")]
)
def test_a_planted_effect_is_found(expects, found):
    judged = judge(claim(expects, **NOISE), grid(lambda o, d, share, s: {"x": share + d / 100}))
    assert judged.verdict == found and judged.survives
    assert judged.low < 0.3 < judged.high and judged.high - judged.low < 0.05  # the dimension cancels in pairs
    assert judged.p[found] < 0.001


@pytest.mark.parametrize(
    ("smallest", "expects", "found"),
    [(0.05, "above", "does not hold"), (0.0001, "above", "tie"), (0.05, "equal", "holds"), (0.0001, "equal", "tie")],
)
def test_no_effect_is_none_or_stays_open(smallest, expects, found):
    judged = judge(claim(expects, smallest=smallest, **NOISE), grid(lambda *_: {}))
    assert judged.verdict == found


def test_a_verdict_that_one_seed_decides_says_so():
    """Three seeds agree; the fourth is far off, and without it the claim holds."""
    found = grid(lambda o, d, share, seed: {"x": share * (-1 if seed == 2 else 1)})
    judged = judge(claim(**NOISE), found)
    assert judged.verdict == "tie" and not judged.survives
    assert judged.without == {0: "tie", 1: "tie", 2: "holds", 3: "tie"}
    assert set(judged.effects) == {0, 1, 2, 3} and judged.effects[2] < 0 < judged.effects[0]


def test_the_interval_is_students():
    values = [0.31, 0.28, 0.35, 0.3]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert interval(values) == pytest.approx((np.mean(values), low, high))
    assert interval([0.3])[1:] == (-np.inf, np.inf) and verdict(claim(**NOISE), *interval([0.3])) == "tie"


@pytest.mark.parametrize("kind", ["relation", "stronger"])
def test_the_interval_over_settings_is_that_of_drawn_settings(kind):
    """Against draws one by one: settings within a stratum, with replacement, with all of their seeds."""
    found = grid(lambda o, d, share, s: {"x": share + OBJECTIVES.index(o), "y": d + 3 * share}, noise=1.0, seeds=2)
    test = claim(
        **{"kind": kind, "of": NUMBERS[0], "with": NUMBERS[1], "than": NUMBERS[2], "within": ("dimension",)}
    ).test
    rng, drawn = np.random.default_rng(1), []
    strata = [sorted({each.setting for each in found if each.dimension == d}) for d in (16, 128)]
    for _ in range(200):
        chosen = [stratum[k] for stratum in strata for k in rng.integers(8, size=8)]
        rows = [each for setting in chosen for each in found if each.setting == setting]
        drawn.append(np.mean(list(effects(test, rows).values())))
    low, high = page.over_settings(test, found, draws=2000)
    assert (low, high) == pytest.approx(np.quantile(drawn, (0.025, 0.975)), abs=0.15) and low < np.mean(drawn) < high
    assert high - low > 0.2
    constant = test.model_copy(update={"of": NUMBERS[3], "than": ""})
    assert page.over_settings(constant, found, draws=5) == (0.0, 0.0)


def test_a_test_without_trainings_is_an_error():
    with pytest.raises(InputError, match="seed 0 has no trainings that decide contrast of x both last"):
        judge(claim(**NOISE | {"high": 0.9}), grid(lambda *_: {}))


def test_holm_tests_each_verdict_for_all_claims():
    weak = [0.05, 0.3, 0.2, 0.45]  # one-sided p = 0.03
    strong = {seed: 0.3 + seed / 1000 for seed in range(4)}

    def of(name, values, expects="above"):
        found = grid(lambda o, d, share, seed: {"x": values[seed]}, noise=0.0)
        given = claim(expects, kind="level", of=NUMBERS[0], smallest=0.0)
        return judge(given.model_copy(update={"name": name}), found)

    judged = [of("strong", strong), of("weak", weak), of("refuted", strong, "below")]
    assert [each.verdict for each in judged] == ["holds", "tie", "does not hold"]
    assert judged[1].p["holds"] == pytest.approx(stats.ttest_1samp(weak, 0, alternative="greater").pvalue)
    assert judged[0].p["holds"] == judged[2].p["does not hold"] and page.holm(judged) == {"strong", "refuted"}
    few = [0.07, 0.3, 0.2, 0.43]  # p = 0.023, of three 0.017 is needed
    barely = [of("barely", few), of("barely not", few, "below"), judged[1]]
    assert [each.verdict for each in barely[:2]] == ["holds", "does not hold"] and page.holm(barely) == set()
    # the strong one is the first of its family, so that 0.025 is enough for the next: each verdict has its own steps
    assert page.holm([judged[0], barely[0], barely[1]]) == {"strong", "barely"}


@pytest.mark.parametrize("expects", ["above", "below", "equal"])
def test_p_values_and_verdicts_agree(expects):
    """A verdict's p is below half of 5% where it is decided; for equality that does not hold it is of both ends."""
    generator = np.random.default_rng(5)
    decided = set()
    for mean in (-0.3, -0.05, 0.0, 0.05, 0.3):
        values = mean + 0.03 * generator.normal(size=4)
        found = grid(lambda o, d, share, seed, values=values: {"x": values[seed]}, noise=0.0)
        judged = judge(claim(expects, kind="level", of=NUMBERS[0], smallest=0.1), found)
        decided.add(judged.verdict)
        if judged.verdict != "tie":
            assert judged.p[judged.verdict] < (0.05 if expects == "equal" else 0.025), (mean, judged)
        else:
            assert judged.p["does not hold"] > 0.025 and (judged.p["holds"] > 0.025 or abs(judged.mean) < 0.1)
    assert {"holds", "does not hold"} <= decided


# --- which measure goes with which task


def test_rank_correlations_are_over_settings_and_see_what_a_line_at_a_floor_does_not():
    """A task that follows the measure, but is near 0 in most settings."""
    order = {(o, d, share): k for k, (o, d, share) in enumerate(product(OBJECTIVES, (16, 128), (0.0, 0.3)))}
    found = grid(lambda *key: {"x": order[key[:3]], "y": np.exp(order[key[:3]] - 15.0)}, noise=1e-9)
    judged = page.related(found, NUMBERS[0], NUMBERS[1])
    numbers = {}
    for each in found:
        numbers.setdefault(each.setting, []).append([each.values[key] for key in NUMBERS[:2]])
    x, y = np.mean(list(numbers.values()), axis=1).T
    assert judged.rho == pytest.approx(stats.spearmanr(x, y.round(9)).statistic, abs=1e-12)
    assert judged.rho > 0.99 and judged.p < 0.001 and stats.pearsonr(x, y).statistic ** 2 < 0.4


def test_a_measure_without_relation_is_within_its_null():
    judged = page.related(grid(lambda o, d, share, s: {"y": share}, noise=0.05), NUMBERS[0], NUMBERS[1])
    assert judged.p > 0.05 and judged.low < 0 < judged.high


# --- the claims themselves, and a run


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    tested = {"name": "scenes", "split": "test", "seed": 3, "size": 30}
    measures = ["modality_gap", "average_cosine", "train_clip.gap_dimensions"]
    common = {"tasks": True, "tested": tested, "measures": measures, "measurements": 2, "steps": 2}
    folder, found = tmp_path_factory.mktemp("grid"), []
    for changes in ({}, {"caption_noise": 0.5}, {"arm": "fixed_temperature", "temperature": 0.2, "seed": 1}):
        (cell,) = planned(folder, **common, **changes).cells()
        found += [{**row, "cell": cell.key} for row in cell.compute()]
    return found


def test_the_rows_of_a_run_become_trainings(rows):
    found = trainings(rows)
    assert [(*each.setting, each.seed) for each in found] == [
        ("ClipLoss", 12, 0.0, 0.25, 0), ("ClipLoss", 12, 0.5, 0.25, 0), ("ClipLoss at 0.2", 12, 0.0, 0.25, 1)
    ]  # fmt: skip
    first = found[0].values
    gap = next(row for row in rows if row["measure"] == "modality_gap")
    assert [first[f"modality_gap both {state}"] for state in ("first", "last")] == gap["trajectory"]
    tested = [
        row
        for row in rows
        if row["cell"] == rows[0]["cell"] and row["measure"] == "zero_shot.top_1" and "trajectory" not in row
    ]
    own = [row for row in tested if row["pipeline"] == ["normalize"]]
    assert sum(row["n"] for row in own) == 30 and len(own) == 2 and len(tested) == 4
    assert first["zero_shot.top_1 both tested"] == pytest.approx(sum(row["value"] * row["n"] for row in own) / 30)
    assert {"retrieval.image_to_text.r_at_10 both centered", "linear_probe.top_1 image tested"} <= first.keys()
    assert found[0].values["modality_gap both first"] == found[1].values["modality_gap both first"]
    assert found[0].values["modality_gap both last"] != found[1].values["modality_gap both last"]  # by the noise
    assert found[2].values["train_clip.temperature both last"] == pytest.approx(0.2)
    fitted = {(row["measure"], tuple(row["pipeline"])): row["fitted_on"] for row in rows if "pictures" in row["at"]}
    assert fitted["retrieval.image_to_text.r_at_10", ("normalize",)] is None
    assert fitted["retrieval.image_to_text.r_at_10", ("normalize", "center")] == "measured"
    assert fitted["linear_probe.top_1", ("normalize",)] == "measured"
