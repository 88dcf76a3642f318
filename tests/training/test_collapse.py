"""The alarm: goes on in planted collapses long before accuracy suffers, and not in healthy trainings."""

import json
import math
from itertools import groupby
from pathlib import Path

import pytest

from clip_geometry.registry import InputError
from clip_geometry.training import CollapseAlarm

DOCS = Path(__file__).parents[2] / "docs"
WELL = [20.0, 20.5, 19.5, 20.2] * 3
NAN = math.nan


def recorded(path):
    path = DOCS / path
    if not path.exists():
        pytest.skip("docs/ is not part of an installed package")
    return [json.loads(line) for line in path.read_text().splitlines()]


def replayed(row):
    """The alarm after a recorded training, and the steps at which it went on."""
    alarm, steps = CollapseAlarm(), []
    for k in range(len(row["accuracy"])):
        was = alarm.on
        if alarm.update({name: values[k] for name, values in row["numbers"].items()}, k * row["every"]) and not was:
            steps.append(alarm.since)
    return alarm, steps


def halved(row):
    """The step from which on accuracy stays below half of its best value; None if it does not."""
    below = [value < max(row["accuracy"]) / 2 for value in row["accuracy"]]
    well = max(k for k, each in enumerate(below) if not each)
    return (well + 1) * row["every"] if below[-1] else None


@pytest.mark.parametrize(
    ("training", "count", "within"),
    [
        ("healthy", 10, None),
        ("scale", 1, None),  # a temperature that rises
        ("columns", 1, 600),
        ("directions", 1, 600),
        ("temperature", 1, 100),  # driven to 0: all rows gather in a cone, in which float32 still tells pairs apart
    ],
)
def test_recorded_trainings(training, count, within):
    """It goes on only where a collapse was planted, soon after and 100 steps before accuracy has halved."""
    rows = [row for row in recorded("live/collapse.jsonl") if row["training"] == training]
    assert len(rows) >= count
    for row in rows:
        alarm, steps = replayed(row)
        assert all(signal.baseline for signal in alarm._signals.values()) and len(alarm._signals) >= 7
        if within is None:
            assert steps == []
        else:
            assert row["begin"] < steps[0] <= row["begin"] + within
            assert steps[0] <= (halved(row) or math.inf) - 100


@pytest.mark.parametrize(
    "name", ["train_scenes.captions", "train_scenes_arms", "train_scenes_arms.seed1", "train_scenes_arms.seed2"]
)
def test_it_does_not_fire_in_the_trainings_of_six_losses(name):
    """They were recorded long before there was an alarm, at about thirty evenly spaced states after the first."""
    rows = [row for row in recorded(f"training/{name}.jsonl") if "trajectory" in row]
    rows.sort(key=lambda row: row["at"]["arm"])
    watched = 0
    for _, arm in groupby(rows, key=lambda row: row["at"]["arm"]):
        group = [row for row in arm if row["measure"] in CollapseAlarm().thresholds]
        curves = {
            row["measure"] + (f"/{row['at']['modality']}" if row["at"]["modality"] != "both" else ""): row["trajectory"]
            for row in group
        }
        alarm, steps = CollapseAlarm(settle=5), group[0]["steps"]
        width = steps[-2] - steps[-3]
        for k in (k for k, step in enumerate(steps) if step % width == 0):
            assert not alarm.update({measure: values[k] for measure, values in curves.items()}, k), alarm.reason
        watched += sum(each.baseline is not None for each in alarm._signals.values())
    assert watched > 2


RANK, GAP, UNIFORMITY = "effective_rank/image", "relative_modality_gap", "uniformity/text"


@pytest.mark.parametrize(
    ("name", "values", "on"),
    [
        pytest.param(RANK, [70, 40, 25, 17, 13, 12, 11.8, 11.6, 11.5, 11.4, 11.5], [], id="a fall during warm-up"),
        # three in a row below 0.65 of 20.2 = 13.1, and three above
        pytest.param(RANK, [*WELL, 13, 13, 16, 13, 13, 13, 15, 13, 15, 15, 15, 15], range(17, 22), id="patience"),
        pytest.param(GAP, [0.4, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.3, 0.41, 0.42, 0.42], [10], id="a rise from the best"),
        pytest.param(GAP, [0.01] * 8 + [0.15] * 9, [], id="15 times, but of nearly nothing"),
        pytest.param(UNIFORMITY, [-3.0] * 6 + [-2.0] * 3, [8], id="magnitudes"),
        pytest.param(UNIFORMITY, [-3.0] * 6 + [-2.2] * 9, [], id="smaller magnitudes within the threshold"),
        pytest.param(RANK, [*WELL, NAN, NAN, NAN], [14], id="undefined"),
        pytest.param(RANK, [NAN] * 3 + [20.0] * 20, [], id="a fresh model may have equal rows"),
        pytest.param(RANK, [NAN] * 7, [6], id="undefined for ever"),
        pytest.param(RANK, [60, 30, 1.6, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5], [8], id="never well"),
    ],
)
def test_rules(name, values, on):
    alarm = CollapseAlarm(settle=4, patience=3)
    assert [step for step, value in enumerate(values) if alarm.update({name: value}, step)] == [*on]


def test_the_reason_names_the_signals_and_their_baselines():
    alarm = CollapseAlarm({"effective_rank": 0.65}, settle=3, patience=2)
    for step, rank in enumerate([9.0, 9.0, 9.0, 4.5, 4.5]):
        alarm.update({"effective_rank/image": 9.0, "effective_rank/text": rank, "isoscore/text": rank / 100}, step)
    assert alarm.on and alarm.since == 4
    assert alarm.reason == "collapse at step 4: effective_rank/text is 4.5, 50% of its baseline 9"


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ({"effective_rnk": 0.5}, "unknown measure 'effective_rnk'; did you mean 'effective_rank'"),
        ({"effective_rank/image": 0.5}, "unknown measure"),
        ({"isoscore": "a"}, "the threshold of isoscore = 'a'; expected a share of the baseline, above 0 and not 1"),
        ({"isoscore": 1.0}, "the threshold of isoscore = 1.0; expected a share"),
        ({}, "thresholds = {}; expected measure → share of the baseline"),
        (["isoscore"], "expected measure → share of the baseline"),
    ],
)
def test_wrong_thresholds_are_a_sentence(thresholds, message):
    with pytest.raises(InputError, match=message):
        CollapseAlarm(thresholds)
