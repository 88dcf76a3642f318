"""The experiment: its config, what it measures, the model it leaves, and a run that is killed."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats
from torch.nn import functional

from clip_geometry.encoders import load_encoder
from clip_geometry.encoders.hub import model_path
from clip_geometry.evaluate import zero_shot
from clip_geometry.geometry import average_cosine, isoscore, modality_gap, silhouette
from clip_geometry.registry import InputError
from clip_geometry.results import Results, read_rows
from clip_geometry_experiments.kit.clip_training import measured_steps
from clip_geometry_experiments.studies.train_clip import TrainClip
from clip_geometry_experiments.studies.train_clip.training import (
    NAMES,
    ClipCallback,
    Place,
    change_rows,
    encode,
    gap_dimensions,
    save_weights,
    zero_shot_values,
)
from support.killed import kill_after_a_checkpoint
from support.train_clip import TINY, configured, planned, ran

TESTED = {"name": "scenes", "split": "test", "seed": 3, "size": 30}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return ran(tmp_path_factory.mktemp("whole"), tested=TESTED)


def only(rows, measure, **at):
    (row,) = (row for row in rows if row["measure"] == measure and at.items() <= row["at"].items())
    return row


def folder_of(report):
    (folder,) = (report.parent / "models").iterdir()
    return folder


# --- rows


def test_the_first_state_is_that_of_the_fresh_model(whole):
    """Recomputed with the encoder that the run's own folder gives, by other code than the experiment's."""
    report, rows = whole
    encoder = load_encoder(f"local-dir:{folder_of(report)}", "cpu", fresh=True)
    image, text, labels = embedded(encoder, TINY["measured"])
    assert only(rows, "modality_gap")["trajectory"][0] == pytest.approx(float(modality_gap(image, text)), abs=1e-5)
    for modality, unit in (("image", image), ("text", text)):
        of = {name: only(rows, name, modality=modality)["trajectory"][0] for name in NAMES[5:11]}
        assert of["average_cosine"] == pytest.approx(float(average_cosine(unit)), abs=1e-5)
        assert of["isoscore"] == pytest.approx(float(isoscore(unit)), rel=1e-3)
        assert of["silhouette"] == pytest.approx(float(silhouette(unit, labels)), abs=1e-3)


def embedded(encoder, section, captions=3):
    """Unit rows of pictures and of their first captions, and labels."""
    from clip_geometry.data import dataset_from, load_dataset

    dataset = load_dataset(dataset_from({**section, "captions_per_image": captions}))
    pixels = torch.stack([encoder.preprocess(dataset.image.load(k)) for k in range(len(dataset.image))])
    texts = [dataset.text.load(captions * k) for k in range(len(dataset.image))]
    rows = encoder.image_features(pixels), encoder.text_features(encoder.tokenize(texts))
    return *(functional.normalize(each, dim=1) for each in rows), dataset.image.labels


def test_the_model_that_is_left_is_the_trained_one(whole):
    """float16 on the disk: directions agree to 1e-4, accuracy is that of the rows."""
    report, rows = whole
    folder = folder_of(report)
    encoder = load_encoder(f"local-dir:{folder}", "cpu")
    image, text, _ = embedded(encoder, TINY["measured"])
    assert float(modality_gap(image, text)) == pytest.approx(only(rows, "modality_gap")["value"], abs=1e-2)
    assert {path.name for path in folder.iterdir()} == {
        "open_clip_config.json", "open_clip_model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    image, _, labels = embedded(encoder, TESTED)
    from clip_geometry.data.scenes import HELD_OUT, class_names

    prompts = encoder.text_features(encoder.tokenize([f"a picture of a {name}." for name in class_names()]))
    seen = np.isin(labels, np.unique(planned_labels()))
    expected = zero_shot(image[seen], labels[seen], prompts)["top_1"]
    found = only(rows, "zero_shot.top_1", pictures="tested", classes="seen")
    assert found["value"] == expected and found["n"] == seen.sum() and not set(HELD_OUT) & set(planned_labels())
    assert found["standard_error"] == pytest.approx((expected * (1 - expected) / seen.sum()) ** 0.5)


def planned_labels():
    from clip_geometry.data import dataset_from, load_dataset

    return load_dataset(dataset_from(TINY["data"])).image.labels


def test_changes_and_correlations_are_of_the_trajectories(whole):
    _, rows = whole
    gap, iso = (only(rows, name, **at)["trajectory"] for name, at in (
        ("modality_gap", {}), ("isoscore", {"modality": "text"})))  # fmt: skip
    assert only(rows, "train_clip.change", of="modality_gap")["value"] == pytest.approx(gap[-1] - gap[0])
    of = {"of": "modality_gap", "with": "isoscore", "modality": "text"}
    assert only(rows, "train_clip.pearson", **of)["value"] == pytest.approx(stats.pearsonr(gap, iso).statistic)
    assert only(rows, "train_clip.spearman", **of)["value"] == pytest.approx(stats.spearmanr(gap, iso).statistic)
    curves = {Place("modality_gap"): np.ones(3), Place("isoscore", "text"): np.array([0.1, 0.3, 0.2])}
    constant = next(row for row in change_rows(configured(), curves) if row["measure"] == "train_clip.pearson")
    assert constant["value"] is None and constant["note"] == "one of them is constant or not defined"


def test_zero_shot_is_divided_by_what_was_seen():
    classes, image = torch.eye(3), torch.eye(3)[[0, 0, 1, 2]]
    found = zero_shot_values(image, classes, np.array([0, 1, 1, 0]), np.array([0]))
    assert found == {Place("zero_shot.top_1", "both", "seen"): 0.5, Place("zero_shot.top_1", "both", "held out"): 0.5}
    found = zero_shot_values(image, classes, np.array([0, 1, 1, 0]), np.array([0, 1]))
    assert found == {Place("zero_shot.top_1", "both", "seen"): 0.5}


# --- what is measured


def test_batch_statistics_are_used_but_not_kept(tmp_path):
    experiment = planned(tmp_path)
    pairs, training = experiment.pairs("measured"), experiment.trainer()
    prompts = experiment.prompts
    before = {name: value.clone() for name, value in training.model.state_dict().items()}
    running, _, _ = encode(training, pairs, prompts)
    batch, text, classes = encode(training, pairs, prompts, batch_norm="batch")
    training.model.train()
    with torch.no_grad():
        expected = training.model.encode_image(training.pixels(pairs.images(np.arange(40))))
    assert torch.allclose(batch, expected, atol=1e-5) and not torch.allclose(batch, running, atol=1e-3)
    again, same, _ = encode(planned(tmp_path).trainer(), pairs, prompts)
    assert torch.equal(again, running) and torch.equal(same, text) and classes.shape == (80, 12)
    training = planned(tmp_path).trainer()
    encode(training, pairs, prompts, batch_norm="batch")
    assert all(torch.equal(value, before[name]) for name, value in training.model.state_dict().items())


def test_a_measure_that_is_not_defined_is_nan(tmp_path):
    experiment = planned(tmp_path, measured={"name": "scenes", "split": "test", "size": 4})
    pairs = experiment.pairs("measured")
    callback = ClipCallback(pairs, experiment.prompts, names=("modality_gap", NAMES[4]))
    found = callback(experiment.trainer())
    assert np.isnan(found[Place(NAMES[4])]) and found[Place("modality_gap")] > 0  # five folds of four pictures


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("arm", ["siglip", "fixed_temperature", "istar", "cosreg", "classes"])
def test_all_arms_run(tmp_path, arm):
    measured = {"name": "scenes", "split": "test", "size": 12}
    _, rows = ran(tmp_path, arm=arm, steps=2, measurements=2, measured=measured, batch_norm="batch")
    assert {row["at"]["arm"] for row in rows} == {arm}
    assert rows[0]["model_options"] == {"batch_norm": "batch"}
    accuracies = [row["at"]["modality"] for row in rows if row["measure"] == "train_clip.accuracy"]
    assert accuracies == (["image", "text"] if arm == "classes" else [])
    assert any(row["measure"] == "train_clip.temperature" for row in rows) is (arm != "classes")


@pytest.mark.parametrize(
    ("vision", "said"),
    [
        ({"image_size": 32, "timm_model_name": "resnet_nope"}, "Unknown model"),
        ({"image_size": 32, "patch_size": 16, "layers": 1, "width": 9, "head_width": 2}, "embed_dim must be divisible"),
        ({"image_size": 32, "patch_sise": 16}, "unexpected keyword argument 'patch_sise'"),
    ],
)
def test_an_architecture_that_cannot_be_built_is_said(tmp_path, vision, said):
    with pytest.raises(InputError, match=f"open_clip cannot build .*{said}"):
        planned(tmp_path, architecture={"vision_cfg": vision}).pairs("measured")


def test_weights_beyond_float16_are_kept(tmp_path):
    model = torch.nn.Linear(2, 1)
    model.weight.data[:] = torch.tensor([[7e4, 1 / 3]])
    found = load_file(save_weights(model, tmp_path))
    assert found["weight"].dtype == torch.float32 and found["weight"][0, 0] == 7e4
    assert found["bias"].dtype == torch.float16


# --- a killed run


@pytest.mark.slow
def test_a_run_that_is_killed_ends_as_if_it_had_not_been(tmp_path):
    """By SIGKILL, some time after its first checkpoint."""
    settings = TINY | {"steps": 25, "measured": {"name": "scenes", "split": "test", "size": 12}}
    assert 0 < kill_after_a_checkpoint(tmp_path, settings) < 25
    report, rows = ran(tmp_path, **settings)
    (tmp_path / "other").mkdir()
    (again, expected) = ran(tmp_path / "other", **settings)
    assert json.dumps(rows, default=dict) == json.dumps(expected, default=dict)
    one, other = (folder_of(each) / "open_clip_model.safetensors" for each in (report, again))
    assert one.read_bytes() == other.read_bytes()


# --- config


@pytest.mark.parametrize(("steps", "measurements"), [(1, 2), (4, 4), (200, 20), (4000, 40), (10, 40), (7, 2)])
def test_measured_steps_are_first_powers_of_two_then_even(steps, measurements):
    found = measured_steps(steps, measurements)
    assert found == sorted(set(found)) and found[0] == 0 and found[-1] == steps
    assert len(found) <= max(measurements, 2 + steps.bit_length())  # no fewer than the powers of two
    gaps = np.diff(found)
    assert all(gaps[:-1][1:] >= gaps[:-1][:-1] * 0.99) or len(gaps) < 4 or len(set(gaps[len(gaps) // 2 : -1])) == 1
    if steps >= 200:
        assert found[:6] == [0, 1, 2, 4, 8, found[5]] and len(found) > 0.7 * measurements


def test_the_gap_is_carried_by_one_coordinate_or_by_all():
    image, text = torch.eye(8)[:2], torch.eye(8)[2:4]
    rows = torch.zeros(2, 8).index_fill(1, torch.tensor([0]), 1.0)
    assert gap_dimensions(rows, -rows) == pytest.approx(3 / 10)
    assert gap_dimensions(image, text) == pytest.approx(4 * 3 / 10)
    draws = [gap_dimensions(*torch.randn(2, 1, 64, generator=torch.Generator().manual_seed(k))) for k in range(300)]
    assert np.mean(draws) == pytest.approx(1, abs=0.05)


def test_an_unknown_measure_is_said_before_the_training():
    with pytest.raises(InputError, match="unknown measure 'modality_gapp'"):
        ClipCallback(None, None, ["modality_gapp"])  # pyright: ignore[reportArgumentType]


SHIPPED = {"recorded": "shipped/scenes-trained/training.jsonl", "architecture": "byobnet", "steps": 1000}


def test_the_records_of_a_training_are_shown_in_place_of_a_new_one(tmp_path):
    experiment = planned(tmp_path, **SHIPPED)
    results = Results(experiment.workspace.folder / "results.jsonl")
    for cell in experiment.cells():
        results.append(cell.key, cell.compute())
    recorded = read_rows(model_path(SHIPPED["recorded"]))
    own = ("cell", "cell_row", "cell_rows")
    assert [{key: row[key] for key in row if key not in own} for row in experiment.finished_rows()] == [
        {key: row[key] for key in row if key not in own} for row in recorded
    ]
    assert TrainClip.sentences([experiment])[0].startswith("The modality gap falls from 0.97")
    (entry,) = experiment.figures(tmp_path)
    assert entry.title == "Geometry over training"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recorded": "nowhere.jsonl"}, "the file .*nowhere.jsonl does not exist"),
        ({"steps": 6}, "is not the record of a training with steps = 6"),
    ],
)
def test_records_of_something_else_are_an_error(tmp_path, changes, said):
    with pytest.raises(InputError, match=said):
        _ = [cell.compute() for cell in planned(tmp_path, **SHIPPED | changes).cells()]
