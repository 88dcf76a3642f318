"""Configs to start from: each runs as it is, on drawn data, and on one's own after the change that it describes."""

import re

import numpy as np
import pytest
from PIL import Image

from clip_geometry.config import read_yaml

pytestmark = pytest.mark.experiments
TEMPLATES = pytest.importorskip("clip_geometry_experiments.run.commands").TEMPLATES
runner = pytest.importorskip("clip_geometry_experiments.run.runner")


@pytest.mark.parametrize("what", TEMPLATES)
def test_it_is_written_with_the_command_that_runs_it(cli, tmp_path, what):
    outcome = cli("init", what)
    assert outcome.out == f"config: {what}.yaml\nnext: clip-geometry run {what}.yaml\n" and outcome.status == 0
    assert (tmp_path / f"{what}.yaml").read_text() == TEMPLATES[what].read_text()
    assert cli("init", what, "-o", "my own.yaml").out.endswith("next: clip-geometry run 'my own.yaml'\n")
    text = (tmp_path / "my own.yaml").read_text()
    assert "clip-geometry run 'my own.yaml' --smoke" in text and f"{what}.yaml" not in text
    assert read_yaml(tmp_path / "my own.yaml") == read_yaml(TEMPLATES[what])


def test_what_exists_is_left_alone(refused, cli, tmp_path):
    (tmp_path / "train.yaml").write_text("mine")
    assert "train.yaml exists; choose another name" in refused("init", "train")
    assert (tmp_path / "train.yaml").read_text() == "mine"
    assert "'mesure' is not one of 'measure', 'train'" in refused("init", "mesure")
    assert [path.name for path in tmp_path.iterdir()] == ["train.yaml"]


@pytest.mark.parametrize("smoke", [False, True])
@pytest.mark.parametrize("what", TEMPLATES)
def test_it_is_valid(what, smoke):
    assert len(runner.plan(runner.resolve(TEMPLATES[what], {}, smoke=smoke), what)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("what", TEMPLATES)
def test_it_runs(cli, tmp_path, what):
    cli("init", what)
    outcome = cli("run", f"{what}.yaml", "--smoke", "--device", "cpu")
    assert outcome.status == 0, outcome.err
    assert (tmp_path / outcome.out.strip().removeprefix("report: ")).is_file()


def alternatives(what, key):
    """The values that the comments below a key offer in its place."""
    return re.findall(rf"^# {key}: (.*)$", TEMPLATES[what].read_text(), re.MULTILINE)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with the files that the comments name."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for folder in (tmp_path, tmp_path / "my-folder"):
        folder.mkdir(exist_ok=True)
        for modality in ("image", "text"):
            np.save(folder / f"{modality}.npy", rng.normal(size=(32, 8)).astype("float32"))
    np.save(tmp_path / "labels.npy", np.arange(32) % 4)
    (tmp_path / "captions.csv").write_text("image,caption\nphotos/train/a/0.png,one\n")
    for split in ("train", "test"):
        for name in ("a", "b"):
            (tmp_path / "photos" / split / name).mkdir(parents=True)
            for k in range(6):
                pixels = rng.integers(0, 256, (40, 40, 3), np.uint8)
                Image.fromarray(pixels).save(tmp_path / "photos" / split / name / f"{k}.png")
    return tmp_path


@pytest.mark.parametrize(("what", "key"), [("measure", "pairs"), ("train", "data"), ("train", "measured")])
def test_every_line_that_is_offered_is_valid(what, key, own):
    values = alternatives(what, key)
    assert values
    for value in values:
        stored = "name:" not in value
        lines = {key: value, **({"model": "null"} if stored else {})}
        text = TEMPLATES[what].read_text()
        for each, new in lines.items():
            text = re.sub(rf"^{each}: .*$", f"{each}: {new}", text, flags=re.MULTILINE)
        (own / "c.yaml").write_text(text)
        assert len(runner.plan(runner.resolve(own / "c.yaml", {}, smoke=False), "c")) == 1


@pytest.mark.slow
def test_it_trains_on_a_folder_of_images(cli, own):
    cli("init", "train")
    text = (own / "train.yaml").read_text()
    for key in ("data", "measured", "tested", "prompts"):
        text = re.sub(rf"^{key}: .*$", f"{key}: {alternatives('train', key)[0]}", text, flags=re.MULTILINE)
    text = re.sub(r"^  \w+\.size: \d+\n", "", text, flags=re.MULTILINE)  # as its smoke section says
    (own / "train.yaml").write_text(text)
    outcome = cli("run", "train.yaml", "--smoke", "--device", "cpu", "batch_size=4")
    assert outcome.status == 0, outcome.err
