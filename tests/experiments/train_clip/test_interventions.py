"""Verdicts: a planted effect is found, none is none, what one seed carries is said; R² is of settings not fitted."""

from itertools import product

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

from clip_geometry.experiments.train_clip.interventions import (
    Claim,
    Training,
    claims,
    effects,
    holm,
    interval,
    judge,
    over_settings,
    predict,
    summary,
    trainings,
    verdict,
)
from clip_geometry.registry import InputError
from support.train_clip import planned

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
    return Claim(name="planted", says="", source="", test=test, expects=expects, bound=bound, smallest=smallest)


NOISE = {"kind": "contrast", "of": NUMBERS[0], "factor": "noise", "high": 0.3, "low": 0.0}


@pytest.mark.parametrize(
    ("expects", "found"), [("above", "holds"), ("below", "does not hold"), ("equal", "does not hold")]
)
def test_a_planted_effect_is_found(expects, found):
    judged = judge(claim(expects, **NOISE), grid(lambda o, d, share, s: {"x": share + d / 100}))
    assert judged.verdict == found and judged.survives
    assert judged.low < 0.3 < judged.high and judged.high - judged.low < 0.05  # the dimension cancels in pairs
    assert (judged.p < 0.001) == (expects == "above")


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
    assert interval([0.3])[1:] == (-np.inf, np.inf) and verdict(claim(**NOISE), [0.3]) == "tie"


def test_levels_changes_and_correlations_are_of_a_seed():
    found = grid(lambda o, d, share, s: {"x": share + OBJECTIVES.index(o), "y": d + 3 * share, "z": -share}, noise=0.0)

    def of(**test):
        return set(effects(claim(**test).test, found).values())

    level = {"kind": "level", "of": NUMBERS[0]}
    assert of(**level) == {1.65} and of(**level, where={"objective": "ClipLoss at 0.2"}) == {3.15}
    assert list(of(kind="change", of=NUMBERS[0], less=NUMBERS[2])) == pytest.approx([1.8])
    relation = {"kind": "relation", "of": NUMBERS[0], "with": NUMBERS[1], "within": ("dimension",)}
    x, y = ([share + k for k in range(4) for share in (0, 0.3)], [0, 0.9] * 4)
    expected = stats.spearmanr(x, y).statistic
    assert list(of(**relation)) == pytest.approx([expected])
    assert of(**relation | {"of": NUMBERS[3]}) == {0.0}
    stronger = relation | {"kind": "stronger", "of": NUMBERS[2], "than": NUMBERS[0]}
    assert list(of(**stronger)) == pytest.approx([1 - expected])


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
    low, high = over_settings(test, found, draws=2000)
    assert (low, high) == pytest.approx(np.quantile(drawn, (0.025, 0.975)), abs=0.15) and low < np.mean(drawn) < high
    assert high - low > 0.2
    constant = test.model_copy(update={"of": NUMBERS[3], "than": ""})
    assert over_settings(constant, found, draws=5) == (0.0, 0.0)


def test_other_shares_of_class_captions_are_for_their_own_test():
    found = grid(lambda *_: {"x": 1.0}, noise=0.0)
    found += [Training("ClipLoss", 16, 0.0, 0.5, seed, {NUMBERS[0]: 3.0}) for seed in range(4)]
    captions = {"kind": "contrast", "of": NUMBERS[0], "factor": "class_captions", "high": 0.75, "low": 0.5}
    assert set(effects(claim(**captions).test, found).values()) == {-2.0}
    assert set(effects(claim(kind="level", of=NUMBERS[0]).test, found).values()) == {1.0}


def test_a_test_without_trainings_is_an_error():
    with pytest.raises(InputError, match="seed 0 has no trainings that decide contrast of x both last"):
        judge(claim(**NOISE | {"high": 0.9}), grid(lambda *_: {}))


def test_holm_keeps_fewer_than_hold():
    weak = [0.05, 0.3, 0.2, 0.45]  # p = 0.03
    strong = {seed: 0.3 + seed / 1000 for seed in range(4)}

    def of(name, values):
        found = grid(lambda o, d, share, seed: {"x": values[seed]}, noise=0.0)
        given = claim(kind="level", of=NUMBERS[0], smallest=0.0)
        return judge(given.model_copy(update={"name": name}), found)

    judged = [of("strong", strong), of("weak", weak), of("weaker", weak)]
    assert [each.verdict for each in judged] == ["holds", "tie", "tie"]
    assert judged[1].p == pytest.approx(stats.ttest_1samp(weak, 0, alternative="greater").pvalue)
    assert holm(judged) == {"strong"}
    barely = of("barely", [0.07, 0.3, 0.2, 0.43])  # p = 0.023, of three 0.017 is needed
    assert barely.verdict == "holds" and holm([barely, *judged[1:]]) == set()


# --- which measure predicts which task


def test_r2_is_that_of_scikit_learn_leaving_settings_out():
    found = grid(lambda o, d, share, s: {"x": share + d / 128, "y": 2 * share + d / 100}, noise=0.2)
    judged = predict(found, NUMBERS[0], NUMBERS[1], draws=100)
    x, y = (np.array([each.values[key] for each in found]) for key in NUMBERS[:2])
    groups = [str(each.setting) for each in found]
    left = cross_val_predict(LinearRegression(), x[:, None], y, groups=groups, cv=LeaveOneGroupOut())
    means = cross_val_predict(LinearRegression(), np.zeros((len(y), 1)), y, groups=groups, cv=LeaveOneGroupOut())
    assert judged.r2 == pytest.approx(1 - ((y - left) ** 2).sum() / ((y - means) ** 2).sum(), abs=1e-9)
    assert judged.low < judged.r2 < judged.high and judged.null < 0.4 < judged.r2


def test_a_measure_without_relation_is_within_its_null_value():
    found = grid(lambda o, d, share, s: {"y": share}, noise=0.05)
    judged = predict(found, NUMBERS[0], NUMBERS[1], draws=100)
    assert judged.r2 < judged.null and judged.low < 0
    constant = predict(found, NUMBERS[3], NUMBERS[1], draws=10)
    assert constant.r2 == pytest.approx(0, abs=1e-9)


# --- the claims themselves, and a run


def test_claims_are_of_papers_and_name_their_test():
    names = [each.name for each in claims()]
    assert len(names) == len(set(names)) >= 12
    assert all("arXiv:" in each.source or "JMLR" in each.source or "docs/" in each.source for each in claims())
    assert {each.test.kind for each in claims()} == {"level", "change", "contrast", "relation", "stronger"}


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


def test_a_report_says_which_claims_its_rows_decide(rows):
    sentences = summary(rows)
    decided = {claim.says for claim in claims() if any(claim.says in each for each in sentences)}
    assert len(decided) == len(sentences) - 1 and "The same, of texts." in decided
    assert not any("SigLIP" in each or "cone-text" in each for each in sentences)
    assert (
        sentences[0]
        == f"{len(decided)} published claims, tested over 2 seeds: in these models " + sentences[0].split("models ")[1]
    )
    assert all(each.startswith(("Holds in these", "Does not hold in these", "Stays open: ")) for each in sentences[1:])
    assert all("95% interval over seeds" in each for each in sentences[1:])
    (one, first, *_) = summary(row for row in rows if row["seed"] == 0)
    assert (
        one.endswith("one seed decides none.") and first.startswith("Stays open: The repr") and "interval" not in first
    )
