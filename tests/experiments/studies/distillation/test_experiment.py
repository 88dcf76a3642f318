"""The experiment: its rows, the tower it leaves, a run that is killed, and what cannot be taught."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional

from clip_geometry.data import dataset_from, load_dataset
from clip_geometry.data.scenes import HELD_OUT, class_names
from clip_geometry.encoders import load_encoder
from clip_geometry.encoders.mclip import paired_image_model
from clip_geometry.evaluate import zero_shot
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.clip_training import Place, measured_steps
from clip_geometry_experiments.studies.distillation import encode
from clip_geometry_experiments.studies.distillation.training import (
    StudentConfig,
    fresh_student,
    make_folder,
    save_student,
)
from support.distillation import LANGUAGES, PROMPTS, TINY, planned, ran
from support.killed import kill_after_a_checkpoint


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return ran(tmp_path_factory.mktemp("whole"))


def only(rows, measure, **at):
    (row,) = (row for row in rows if row["measure"] == measure and at.items() <= row["at"].items())
    return row


def folder_of(report):
    (folder,) = (report.parent / "models").iterdir()
    return folder


def tower(folder):
    return load_encoder(f"mclip:{folder}", "cpu")


def captions(section, language):
    side = load_dataset(dataset_from({**section, "language": language})).text
    return [side.load(k) for k in range(len(side))]


def trained(labels):
    """(n,) whether a class is the main object of one of the 30 scenes that are trained on."""
    seen = load_dataset(dataset_from(TINY["data"])).image.labels
    assert not set(seen) & set(HELD_OUT) and 15 < len(set(seen)) <= 30
    return np.isin(labels, seen)


# --- rows


def test_accuracies_are_those_of_the_saved_tower_and_of_the_teacher(whole):
    """Recomputed with encoders and evaluator alone: the folder by `mclip:`, pictures by the model that it names."""
    report, rows = whole
    folder = folder_of(report)
    assert paired_image_model(f"mclip:{folder}") == "scenes-clip/fresh"
    teacher, student = load_encoder("scenes-clip/fresh", "cpu"), tower(folder)
    dataset = load_dataset(dataset_from(TINY["tested"]))
    labels = dataset.image.labels
    pictures = torch.stack([teacher.preprocess(dataset.image.load(k)) for k in range(40)])
    image = torch.cat([teacher.image_features(part) for part in pictures.split(8)])
    seen = trained(labels)
    for kind, chosen in (("seen", seen), ("held out", ~seen)):
        of = {"classes": kind, "pictures": "tested"}
        for language in LANGUAGES:
            texts = [PROMPTS[language][0].format(name) for name in class_names(language)]
            prompts = student.text_features(student.tokenize(texts))
            row = only(rows, "zero_shot.top_1", tower="student", language=language, **of)
            assert row["value"] == zero_shot(image[chosen], labels[chosen], prompts)["top_1"]
            assert (row["n"], row["d"], row["null_value"]) == (chosen.sum(), 512, 1 / 80)
            assert row["standard_error"] == pytest.approx((row["value"] * (1 - row["value"]) / row["n"]) ** 0.5)
        english = teacher.text_features(teacher.tokenize([f"A picture of a {name}." for name in class_names()]))
        row = only(rows, "zero_shot.top_1", tower="teacher", **of)
        assert row["value"] == zero_shot(image[chosen], labels[chosen], english)["top_1"]
        assert row["model"] == "scenes-clip/fresh" and row["at"]["language"] == "en"


def test_states_and_the_saved_tower_are_measured_on_the_same_captions(whole):
    """float16 changes a cosine by less than 1e-4."""
    _, rows = whole
    steps = measured_steps(6, 4)
    for language in LANGUAGES:
        cosines = [row for row in rows if row["measure"] == "distillation.cosine" and row["at"]["language"] == language]
        watched, saved = sorted(cosines, key=lambda row: "trajectory" not in row)
        assert watched["steps"] == steps and len(watched["trajectory"]) == len(steps)
        assert watched["value"] == watched["trajectory"][-1] == pytest.approx(saved["value"], abs=1e-4)
        assert saved["n"] == 25 and saved["standard_error"] > 0
        unexplained, loss = (only(rows, f"distillation.{name}", language=language) for name in ("unexplained", "loss"))
        ratios = np.array(loss["trajectory"]) / np.array(unexplained["trajectory"])
        assert ratios == pytest.approx(ratios[0])  # the variance of the same captions of the teacher


def test_the_distance_to_the_teacher_falls(tmp_path):
    """Within 40 steps to less than half on the batches, and on captions that are not trained on, in every language."""
    experiment = planned(tmp_path, steps=40, measurements=2)
    trainer = experiment.trained(experiment.callback())
    states = trainer.trajectory
    assert np.mean(trainer.losses[-5:]) < 0.5 * np.mean(trainer.losses[:2])
    for language in LANGUAGES:
        before, *_, after = states[Place("distillation.loss", language)]
        assert after < 0.5 * before
        before, *_, after = states[Place("distillation.cosine", language)]
        assert after > 0.7 > before


# --- the tower


def test_the_folder_is_the_trained_student(tmp_path):
    """By `mclip:` from texts to rows, against the student in float32 as it was trained: float16 and batches of other
    lengths are all that is between."""
    experiment = planned(tmp_path)
    trainer = experiment.trained(lambda trainer: {})
    expected = {name: encode(trainer.student, texts.tokens) for name, texts in experiment.captions.items()}
    save_student(trainer.student, experiment.model_folder)
    found = tower(experiment.model_folder)
    for language, rows in expected.items():
        tokens = found.tokenize(captions(TINY["data"], language))
        again = found.text_features(tokens)
        assert tokens.truncated == 0
        assert float(functional.cosine_similarity(again, rows).min()) > 0.9999
        assert torch.allclose(again, rows, rtol=0.01, atol=0.01 * float(rows.abs().max()))
    assert found.describe()["image_model"] == "scenes-clip/fresh" and found.describe()["dim"] == {"text": 512}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_tokenizer_covers_the_language(tmp_path, language):
    """What is encoded is decoded again, in lower case: no unknown tokens, nothing cut; and padding is masked out."""
    folder = make_folder(tmp_path / "tower", StudentConfig(width=8, heads=2, hidden=8), 6, "x")
    save_student(fresh_student(folder, 6, seed=0), folder)
    encoder = tower(folder)
    section = {"name": "scenes", "split": "train", "size": 60, "captions_per_image": 5}
    texts = captions(section, language) + [PROMPTS[language][0].format(name) for name in class_names(language)]
    tokens = encoder.tokenize(texts)
    tokenizer = encoder.tokenizer
    decoded = tokenizer.batch_decode(tokens.inputs["input_ids"], skip_special_tokens=True)
    assert [text.strip() for text in decoded] == [text.lower() for text in texts] and tokens.truncated == 0
    lengths = (tokens.inputs["input_ids"] != tokenizer.pad_token_id).sum(1)
    assert torch.equal(tokens.inputs["attention_mask"].sum(1), lengths) and int(lengths.max()) <= 40
    alone = encoder.text_features(encoder.tokenize(texts[:1]))
    assert torch.allclose(alone, encoder.text_features(encoder.tokenize(texts[:50]))[:1], atol=1e-5)


# --- a run


@pytest.mark.slow
def test_a_run_that_is_killed_ends_as_if_it_had_not_been(tmp_path):
    """By SIGKILL, some time after its first checkpoint."""
    settings = TINY | {"steps": 40}
    assert 0 < kill_after_a_checkpoint(tmp_path, settings) < 40
    report, rows = ran(tmp_path, **settings)
    (tmp_path / "other").mkdir()
    again, expected = ran(tmp_path / "other", **settings)
    assert json.dumps(rows, default=dict) == json.dumps(expected, default=dict)
    one, other = (folder_of(each) / "model.safetensors" for each in (report, again))
    assert one.read_bytes() == other.read_bytes()


# --- config


def test_a_teacher_without_texts_or_pictures_is_said(tmp_path):
    folder = make_folder(tmp_path / "tower", StudentConfig(width=8, heads=2, hidden=8), 6, "x")
    save_student(fresh_student(folder, 6, seed=0), folder)
    with pytest.raises(InputError, match="has no image tower"):
        planned(tmp_path, teacher=f"mclip:{folder}")._rows()
