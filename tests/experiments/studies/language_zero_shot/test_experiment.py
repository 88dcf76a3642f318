"""Accuracy by prompts of each language is zero-shot accuracy with that language's prompts, by hand."""

import numpy as np
import pytest

from clip_geometry import zero_shot
from clip_geometry.registry import InputError
from clip_geometry.results import Results
from clip_geometry_experiments.run.runner import RunFolder, plan
from clip_geometry_experiments.studies.language_zero_shot.figures import language_figure, tell

VALUES = {
    "name": "c",
    "experiment": "language_zero_shot",
    "model": {"model": "scenes-clip/fresh"},
    "text": {"model": "scenes-clip/fresh", "seed": 1},
    "probe": {"name": "scenes", "split": "test", "size": 40},
    "trained": {"name": "scenes", "split": "train", "classes": "seen", "size": 400},
    "prompts": {"en": "A picture of a {}.", "ru": "Изображение: {}."},
    "batch_size": 40,
}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    ((kind, config),) = plan(VALUES, "c")
    folder = tmp_path_factory.mktemp("runs") / "c"
    folder.mkdir()
    found = kind(config, RunFolder(folder))
    for cell in found.cells():
        Results(folder / "results.jsonl").append(cell.key, cell.compute())
    return found


def test_each_language_is_scored_by_its_own_prompts(experiment):
    config, workspace = experiment.config, experiment.workspace
    pictures = workspace.embeddings(config.model, config.probe, limit=None, batch_size=40)["image"]
    labels = np.asarray(pictures.labels)
    held_out = np.isin(labels, (0, 4, 11, 15, 22, 26, 33, 37, 44, 48, 55, 59, 60, 66, 71, 77))  # scenes' own
    found = {(row["at"]["language"], row["at"]["classes"]): row for row in experiment.finished_rows()}
    assert set(found) == {(language, kind) for language in ("en", "ru") for kind in ("seen", "held out")}
    for language in ("en", "ru"):
        data = config.prompted(language)
        texts = workspace.embeddings(config.text, data, limit=None, batch_size=40, only="text")["text"]
        classes = np.asarray(texts.vectors)[np.argsort(texts.labels)]
        for kind, chosen in (("seen", ~held_out), ("held out", held_out)):
            expected = zero_shot(np.asarray(pictures.vectors)[chosen], labels[chosen], classes)["top_1"]
            row = found[language, kind]
            assert row["value"] == pytest.approx(expected) and row["n"] == chosen.sum() and row["null_value"] == 1 / 80
            assert "language" not in row["data_options"]


def test_without_trained_classes_all_are_one(experiment):
    ((kind, config),) = plan({key: value for key, value in VALUES.items() if key != "trained"}, "c")
    (cell, _) = kind(config, experiment.workspace).cells()
    (row,) = cell.compute()
    assert row["n"] == 40 and "classes" not in row["at"]


def test_a_language_that_the_data_lack_is_named():
    with pytest.raises(InputError, match="'es' is not one of en, de, fr, ru"):
        plan({**VALUES, "prompts": {"es": "Una imagen: {}."}}, "c")


def rows():
    values = {"en": (0.999, 0.98), "ru": (0.995, 0.88)}
    return [
        {
            "value": value,
            "standard_error": 0.01,
            "n": n,
            "null_value": 0.0125,
            "at": {"language": name, "classes": kind},
        }
        for name, both in values.items()
        for kind, value, n in zip(("seen", "held out"), both, (828, 172), strict=True)
    ]


def test_what_is_told():
    seen, held_out = tell(rows())
    assert seen.startswith(
        "English and Russian prompts classify 99.9 ± 1.0% and 99.5 ± 1.0% of 828 unseen images of seen"
    )
    assert seen.endswith("correctly (chance 1.25%).")
    assert "98.0 ± 1.0% and 88.0 ± 1.0% of 172 unseen images of held-out classes correctly." in held_out


def test_equal_shares_are_told_once():
    alike = [{**row, "value": 0.999} for row in rows()[::2]]
    assert tell(alike)[0].startswith("English and Russian prompts each classify 99.9 ± 1.0% of 828")
    assert tell(alike[:1])[0].startswith("English prompts classify 99.9 ± 1.0% of 828")


def test_every_number_is_drawn_beside_its_language():
    (axes,) = language_figure(rows()).axes
    drawn = {container.get_label(): container.lines[0].get_xdata().tolist() for container in axes.containers}
    assert drawn == {"seen classes": [0.999, 0.995], "held-out classes": [0.98, 0.88]}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["English", "Russian"]
