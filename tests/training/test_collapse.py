"""The alarm: fires in planted collapses long before accuracy suffers, and not in healthy trainings."""

import json
import math
from itertools import groupby
from pathlib import Path

import pytest

from clip_geometry.registry import InputError
from clip_geometry.training import CollapseAlarm, CollapseWarning, Threshold

TRAININGS = Path(__file__).parents[2] / "docs" / "training"
WELL = [20.0, 20.5, 19.5, 20.2] * 3


def alarmed(values, name="effective_rank/image", **options):
    """The alarm after each measurement."""
    alarm = CollapseAlarm(**{"settle": 4, "patience": 3, **options})
    return alarm, [alarm.update({name: value}, step) for step, value in enumerate(values)]


# --- recorded trainings


def recorded(training):
    path = TRAININGS.with_name("live") / "collapse.jsonl"
    if not path.exists():
        pytest.skip("docs/ is not part of an installed package")
    return [row for row in map(json.loads, path.read_text().splitlines()) if row["training"] == training]


def fired(row):
    """Steps at which the alarm goes on."""
    alarm, steps = CollapseAlarm(), []
    for k in range(len(row["accuracy"])):
        was = alarm.on
        if alarm.update({name: values[k] for name, values in row["numbers"].items()}, k * row["every"]) and not was:
            steps.append(alarm.since)
    return steps


def halved(row):
    """The step from which on accuracy stays below half of its best value; None if it does not."""
    below = [value < max(row["accuracy"]) / 2 for value in row["accuracy"]]
    well = max(k for k, each in enumerate(below) if not each)
    return (well + 1) * row["every"] if below[-1] else None


def test_it_never_fires_in_ten_healthy_trainings():
    rows = recorded("healthy")
    assert sorted(row["seed"] for row in rows) == list(range(10))
    assert [fired(row) for row in rows] == [[]] * 10
    alarm = CollapseAlarm()
    for k in range(len(rows[0]["accuracy"])):
        alarm.update({name: values[k] for name, values in rows[0]["numbers"].items()}, k)
    assert all(each.baseline for each in alarm._signals.values()) and len(alarm._signals) == 9  # all were watched


@pytest.mark.parametrize("training", ["columns", "directions"])
def test_it_fires_100_steps_before_accuracy_has_halved_in_a_dying_projection(training):
    rows = recorded(training)
    assert rows
    for row in rows:
        (first, *_), half = fired(row), halved(row)
        assert row["begin"] < first
        assert half is not None and first <= half - 100


def test_it_fires_at_once_if_the_temperature_is_driven_to_0():
    """All rows gather in a cone (average cosine 0.99), in which float32 still tells pairs apart: accuracy stays."""
    rows = recorded("temperature")
    assert rows
    for row in rows:
        (first, *_) = fired(row)
        assert row["begin"] < first <= row["begin"] + 100
        half = halved(row)
        assert half is None or first <= half - 100
        assert row["numbers"]["average_cosine/image"][-1] > 0.95


def test_a_temperature_that_rises_is_no_collapse():
    for row in recorded("scale"):
        assert fired(row) == [] and halved(row) is None


@pytest.mark.parametrize(
    "name", ["train_scenes.captions", "train_scenes_arms", "train_scenes_arms.seed1", "train_scenes_arms.seed2"]
)
def test_it_does_not_fire_in_the_trainings_of_six_losses(name):
    """They were recorded long before there was an alarm, at about thirty evenly spaced states after the first."""
    path = TRAININGS / f"{name}.jsonl"
    if not path.exists():
        pytest.skip("docs/ is not part of an installed package")
    rows = [row for row in map(json.loads, path.read_text().splitlines()) if "trajectory" in row]
    rows = sorted(rows, key=lambda row: row["at"]["arm"])
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


# --- trainings of a second or two


def tiny(folder, seed, harm=lambda trainer: None):
    """(trainer, monitor) after 160 steps of a training of the smallest model, measured every fourth step."""
    from clip_geometry.training import GeometryMonitor
    from clip_geometry_experiments.studies.train_clip.measuring import encode
    from support import train_clip

    data = {"name": "scenes", "split": "train", "classes": "seen", "size": 200, "captions_per_image": 3}
    measured = {"name": "scenes", "split": "test", "size": 80}
    experiment = train_clip.planned(folder, steps=160, seed=seed, data=data, measured=measured)
    pairs, prompts, trainer = experiment.pairs("measured"), experiment.prompts, experiment.trainer()

    def embed(trainer):
        image, text, _ = encode(trainer, pairs, prompts, batch_norm="batch")
        return {"image": image, "text": text}

    monitor = GeometryMonitor(every=4, embed=embed)
    while trainer.number < trainer.steps:
        trainer.step()
        harm(trainer)
        monitor.step(trainer.number, trainer)
    return trainer, monitor


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.weekly) for seed in range(2, 10))])
def test_a_healthy_training_raises_no_alarm(tmp_path, seed):
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    _, monitor = tiny(tmp_path, seed)  # a CollapseWarning would be an error
    assert not monitor.collapsed
    assert any(each.baseline is not None for each in monitor.alarm._signals.values())


@pytest.mark.slow
def test_a_temperature_that_is_driven_to_0_raises_it(tmp_path):
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")

    def cool(trainer):
        if trainer.number >= 80:
            trainer.model.logit_scale.data.fill_(2.6 + 0.1 * (trainer.number - 80))

    with pytest.warns(CollapseWarning, match="uniformity"):
        _, monitor = tiny(tmp_path, 0, cool)
    assert monitor.collapsed and 80 < monitor.alarm.since <= 130


# --- its rules


def test_a_fall_during_warm_up_is_none():
    alarm, on = alarmed([70, 40, 25, 17, 13, 12, 11.8, 11.6, 11.5, 11.4, 11.5])
    assert not any(on)
    assert alarm._signals["effective_rank/image"].baseline == pytest.approx(11.6, abs=0.3)


def test_it_takes_patience_and_has_hysteresis():
    fall = [*WELL, 13, 13, 16, 13, 13, 13, 15, 16, 15, 18, 18, 15, 18, 18, 18, 18]
    alarm, on = alarmed(fall)
    first = len(WELL)
    assert on.index(True) == first + 5  # the third in a row below 0.65 of 20.2
    assert on[first + 5 :] == [True] * 9 + [False] * 2  # 15 and 16 are above 0.65, but not 0.8 of it; three above are
    assert alarm.since == first + 5 and alarm.reason == (
        "collapse at step 17: effective_rank/image is 13, 64% of its baseline 20.2"
    )


def test_a_rise_of_the_gap_and_an_improvement_that_becomes_the_baseline():
    alarm, on = alarmed(
        [0.4, 0.4, 0.41, 0.4, 0.2, 0.2, 0.2, 0.39, 0.39, 0.39, 0.41, 0.42, 0.42], "relative_modality_gap"
    )
    assert on.index(True) == 12 and alarm.reason.endswith("is 0.42, 210% of its baseline 0.2")
    assert not any(alarmed([0.01] * 8 + [0.15] * 9, "relative_modality_gap")[1])  # 15 times, but of nearly nothing


def test_uniformity_is_watched_by_its_magnitude():
    assert alarmed([-3.0] * 6 + [-2.0] * 3, "uniformity/text")[1][-1]
    assert not any(alarmed([-3.0] * 6 + [-2.2] * 9, "uniformity/text")[1])


def test_what_is_undefined_has_collapsed():
    assert alarmed([*WELL, math.nan, math.nan, math.nan])[1][-1]
    assert not any(alarmed([math.nan] * 3 + [20.0] * 20)[1])  # a fresh model may have equal rows
    assert alarmed([math.nan] * 8)[1][-1]  # for ever


def test_a_model_that_was_never_well_is_noticed():
    alarm, on = alarmed([60, 30, 1.6, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5])
    assert on[-1] and alarm.reason.endswith("is 1.5, 50% of its baseline 3")


def test_any_modality_is_enough_and_names_it():
    alarm = CollapseAlarm(settle=3, patience=2)
    for step, rank in enumerate([9.0, 9.0, 9.0, 4.0, 4.0]):
        alarm.update({"effective_rank/image": 9.0, "effective_rank/text": rank, "hubness/text": rank}, step)
    assert alarm.on and "effective_rank/text is 4" in alarm.reason and "image" not in alarm.reason


@pytest.mark.parametrize(("enter", "leave"), [(0.8, 0.6), (0.5, 1.2), (1.2, 1.5), (0, 0.5), (1, 1)])
def test_thresholds_that_make_no_hysteresis(enter, leave):
    with pytest.raises(InputError, match="enter ≤ leave < 1 for a fall, 1 < leave ≤ enter for a rise"):
        Threshold("isoscore", enter, leave)


def test_other_thresholds_are_a_sentence():
    with pytest.raises(InputError, match="enter = 'a'; expected a share of the baseline"):
        Threshold("isoscore", "a", 2)
    with pytest.raises(InputError, match="unknown measure 'effective_rnk'; did you mean 'effective_rank'"):
        Threshold("effective_rnk", 0.5, 0.7)
    with pytest.raises(InputError, match="measure = 'effective_rank/image'; expected it without a modality"):
        Threshold("effective_rank/image", 0.5, 0.7)
    with pytest.raises(InputError, match="thresholds are of isoscore, isoscore; expected each measure once"):
        CollapseAlarm([Threshold("isoscore", 0.5, 0.7), Threshold("isoscore", 0.6, 0.7)])
    with pytest.raises(InputError, match="thresholds are of none; expected each measure once"):
        CollapseAlarm([])
    with pytest.raises(InputError, match=r"thresholds have 'isoscore'; expected each as Threshold"):
        CollapseAlarm(["isoscore"])
