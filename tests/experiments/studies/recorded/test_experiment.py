"""Rows of a training from a file are shown as they are."""

import json

import pytest

from clip_geometry.encoders.hub import folder_of
from clip_geometry.registry import InputError
from clip_geometry.results import Results, lines_of
from clip_geometry_experiments.run.runner import plan, run

STEPS = [0, 1, 10]
OF = {"model_options": {}, "dataset": "scenes", "data_options": {"size": 8}, "split": "test", "pipeline": ["normalize"],
      "seed": 0, "model": "trained here", "n": 8, "d": 4, "standard_error": None}  # fmt: skip
ROWS = [
    {**OF, "measure": "modality_gap", "value": 0.25, "at": {"arm": "clip", "modality": "both", "step": 10},
     "trajectory": [0.9, 0.5, 0.25], "steps": STEPS},
    {**OF, "measure": "train_clip.change", "value": -0.65, "at": {"arm": "clip", "of": "modality_gap"}},
]  # fmt: skip


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "training.jsonl"
    path.write_text(lines_of("a", ROWS))
    return path


def shown(tmp_path, rows, **more):
    config = tmp_path / "shown.yaml"
    config.write_text(json.dumps({"name": "shown", "experiment": "recorded", "rows": str(rows), **more}))
    return run(config, {}, runs=tmp_path / "runs")


def test_the_rows_are_those_of_the_file(tmp_path, recorded):
    report = shown(tmp_path, recorded)
    found = Results(report.parent / "results.jsonl").read()
    own = {"cell", "cell_row", "cell_rows"}
    assert [{key: value for key, value in row.items() if key not in own} for row in found] == ROWS
    html = report.read_text()
    assert "The gap falls from 0.90" in html or "The gap goes from 0.90 to 0.25." in html
    assert (report.parent / "figures" / "train_clip.svg").is_file()


def test_the_table_may_show_some_of_them(tmp_path, recorded):
    assert "−0.65" in shown(tmp_path, recorded).read_text()
    assert "−0.65" not in shown(tmp_path, recorded, measures=["modality_gap"]).read_text()


def test_a_run_folder_is_its_results(tmp_path, recorded):
    (tmp_path / "run").mkdir()
    recorded.rename(tmp_path / "run" / "results.jsonl")
    assert shown(tmp_path, tmp_path / "run").is_file()


def test_the_shipped_rows_have_curves():
    ((kind, config),) = plan(
        {"name": "c", "experiment": "recorded", "rows": "shipped/scenes-trained/training.jsonl"}, "c"
    )
    assert kind(config, None).path == folder_of("scenes-trained") / "training.jsonl"
    assert any("trajectory" in row for row in kind(config, None)._rows())


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"there is no file .*nowhere\.jsonl; give the results of a training"):
        shown(tmp_path, tmp_path / "nowhere.jsonl")


def test_rows_without_curves_are_no_training(tmp_path, recorded):
    recorded.write_text(lines_of("a", ROWS[1:]))
    with pytest.raises(InputError, match="has no curves of a training; expected the rows of a run of train_clip"):
        shown(tmp_path, recorded)
