import json
import os

import pytest
import yaml

from clip_geometry.files import write_json
from clip_geometry.registry import InputError
from clip_geometry.results import CELLS, Results
from clip_geometry_experiments.published.recorded import KEPT_OF_TRAINING, record_run

NAME = "tyshchuk2023-zero_shot"


def row(label, **fields):
    shared = {"value": 0.02, "standard_error": None, "n": 10, "d": 4, "pipeline": ["normalize"], "fitted_on": None}
    options = {"data_options": {"path": "/home/me/cifar100", "labels": "fine"}, "versions": {"torch": "2"}}
    at = {"row": label, "split": "test"}
    return {"measure": "zero_shot.top_1", **shared, "model": "m", "dataset": "cifar100", **options, "at": at, **fields}


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / f"{NAME}-0123456789"
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump({"grid": [{"name": NAME}, {"name": NAME}]}))
    command = "clip-geometry run /home/me/configs/x/y.yaml model=open_clip:B/fresh images='{path: /home/me/coco128}'"
    provenance = {"command": command, "versions": {"clip-geometry": "0.1.0"}}
    (folder / "provenance.yaml").write_text(yaml.safe_dump(provenance))
    Results(folder / "results.jsonl").append("c", [row("CLIP"), row("Whitening-999"), row("CLIP", measure="other")])
    Results(folder / "results.jsonl").append("old", [row("CLIP", value=0.9)])  # of an earlier state of the code
    write_json(folder / CELLS, {"finished": ["c"]})
    os.utime(folder / "results.jsonl", (1.7e9, 1.7e9))
    return folder


def test_selected_rows_with_their_origin(run, tmp_path):
    path = record_run(run, tmp_path / "docs")
    assert path.name == f"{NAME}.jsonl"
    (line,) = path.read_text().splitlines()
    found = json.loads(line)
    assert (found["at"], found["value"], found["pipeline"]) == ({"row": "CLIP", "split": "test"}, 0.02, ["normalize"])
    assert (found["run"], found["date"], found["version"]) == (NAME, "2023-11-14", "0.1.0")
    # no folders of this machine
    assert found["command"] == "clip-geometry run configs/x/y.yaml model=open_clip:B/fresh images='{path: coco128}'"
    assert found["data_options"] == {"path": "cifar100", "labels": "fine"}
    assert "fitted_on" not in found and "versions" not in found and "cell" not in found


def test_an_unfinished_run_is_refused(run, tmp_path):
    (run / CELLS).unlink()
    with pytest.raises(InputError, match="is not a finished run; the same clip-geometry run continues it"):
        record_run(run, tmp_path / "docs")


def test_a_smoke_run_is_refused(run, tmp_path):
    smoke = run.rename(tmp_path / f"{NAME}-smoke-0123456789")
    with pytest.raises(InputError, match="is a smoke run, too small"):
        record_run(smoke, tmp_path / "docs")


def test_a_run_of_which_the_ledger_knows_nothing_is_refused(run, tmp_path):
    (run / "config.yaml").write_text("name: quickstart")
    with pytest.raises(InputError, match=r"no row of .*, a run of quickstart, is selected"):
        record_run(run, tmp_path / "docs")


def test_rows_of_an_article_are_those_that_were_chosen(run, tmp_path):
    path = record_run(run, tmp_path / "docs", lambda rows: rows[1:2], label="x")
    (line,) = path.read_text().splitlines()
    assert path.name == f"{NAME}.x.jsonl" and json.loads(line)["at"]["row"] == "Whitening-999"
    with pytest.raises(InputError, match="nothing to record"):
        record_run(run, tmp_path / "docs", lambda rows: [])


def test_no_run_folder(tmp_path):
    with pytest.raises(InputError, match=r"config\.yaml does not exist"):
        record_run(tmp_path, tmp_path / "docs")


def test_a_training_is_recorded_whole(tmp_path):
    folder = tmp_path / "train-0123456789"
    folder.mkdir()
    (folder / "config.yaml").write_text("name: train")
    (folder / "provenance.yaml").write_text(yaml.safe_dump({"command": "clip-geometry run /a/configs/train.yaml"}))
    states = {"trajectory": [1 / 3, None, 12345.678], "steps": [0, 1, 2], "null_value": 0.1, "cell": "c"}
    Results(folder / "results.jsonl").append("c", [row("a", **states), row("b")])
    write_json(folder / CELLS, {"finished": ["c"]})
    path = record_run(folder, tmp_path / "docs", list, keys=KEPT_OF_TRAINING)
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["trajectory"] == [0.33333, None, 12346.0] and first["steps"] == [0, 1, 2]
    assert first["null_value"] == 0.1 and second["at"]["row"] == "b" and first["run"] == "train"
    assert first["command"] == "clip-geometry run configs/train.yaml"
