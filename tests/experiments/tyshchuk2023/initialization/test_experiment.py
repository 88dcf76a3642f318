"""Fresh models: the rows are those of the plain functions on the embeddings that the store would hold."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from clip_geometry.config import validate
from clip_geometry.data import load_dataset
from clip_geometry.encoders import load_encoder, resolve_encoder
from clip_geometry.encoders.open_clip import scenes_folder
from clip_geometry.geometry import average_cosine, measures
from clip_geometry.registry import InputError
from clip_geometry_experiments.run.runner import RunFolder
from clip_geometry_experiments.tyshchuk2023.initialization import Initialization, InitializationConfig, fresh_tower

SCENES = {
    "name": "tiny",
    "experiment": "initialization",
    "models": ["scenes-clip/fresh"],
    "images": {"name": "scenes", "size": 12},
    "captions": {"name": "scenes", "size": 12},
    "seeds": [0],
}


def experiment(folder, **changes):
    config = validate(InitializationConfig, SCENES | changes, "test")
    return Initialization(config, RunFolder(folder / "run", "cpu"))


def rows_of(planned):
    return [row for cell in planned.cells() for row in cell.compute()]


def final(rows, measure, modality, pipeline=("normalize",), **options):
    (row,) = (
        row
        for row in rows
        if row["measure"] == measure and row["at"] == {"modality": modality} and tuple(row["pipeline"]) == pipeline
        and options.items() <= row["model_options"].items()
    )  # fmt: skip
    return row


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """A small ResNet with the scenes' text tower, in open_clip's layout without weights."""
    folder = tmp_path_factory.mktemp("models") / "resnet"
    shutil.copytree(scenes_folder(), folder)
    config = json.loads((folder / "open_clip_config.json").read_text())
    config["model_cfg"]["vision_cfg"] = {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "head_width": 32}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return {"model": f"local-dir:{folder}", "fresh": True}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(experiment, rows) of two seeds with and without bias."""
    planned = experiment(tmp_path_factory.mktemp("both"), seeds=[0, 1])
    return planned, rows_of(planned)


# --- the numbers


@pytest.mark.parametrize("modality", ["image", "text"])
@pytest.mark.parametrize("options", [{"seed": 1, "zero_bias": False}, {"seed": 0, "zero_bias": True}])
def test_rows_are_the_measures_of_what_the_store_holds(both, modality, options):
    planned, rows = both
    model = resolve_encoder("scenes-clip/fresh", **options)
    stored = planned.workspace.embeddings(model, planned.config.images, limit=None, batch_size=32)[modality].vectors
    unit = stored / np.linalg.norm(stored, axis=1, keepdims=True)
    for name in fresh_tower.CONE:
        assert final(rows, name, modality, **options)["value"] == pytest.approx(float(measures[name](unit)), rel=1e-4)
    for name in ("isotropy_i1", "isotropy_i2[canonical]"):
        for pipeline, given in ((("normalize",), unit), ((), stored)):
            found = final(rows, name, modality, pipeline, **options)
            assert found["value"] == pytest.approx(float(measures[name](given)), rel=1e-3)
            assert (found["n"], found["d"]) == (12, 512)


def test_layers_end_at_the_embeddings(both):
    _, rows = both
    for modality in ("image", "text"):
        layered = [row for row in rows if row["at"].get("layer") is not None and row["at"]["modality"] == modality]
        own = [row for row in layered if row["model_options"] == {"seed": 0, "zero_bias": False}]
        assert own[-1]["at"] == {"modality": modality, "layer": 5, "operation": "projection"}
        expected = final(rows, "average_cosine", modality, seed=0, zero_bias=False)["value"]
        assert own[-1]["value"] == pytest.approx(expected, rel=1e-6)


# --- batch norm


def test_batch_norm_is_a_column_of_the_images_of_models_that_have_it(resnet, tmp_path):
    planned = experiment(tmp_path, models=[resnet], batch_size=5)
    rows = rows_of(planned)
    encoder = load_encoder(resnet["model"], device="cpu", fresh=True, batch_norm="batch")
    side = load_dataset(planned.config.images).image
    pixels = torch.stack([encoder.preprocess(side.load(k)) for k in range(12)])
    expected = float(average_cosine(encoder.image_features(pixels)))
    plain, batch = (
        final(rows, "average_cosine", "image", batch_norm=mode, zero_bias=False) for mode in ("eval", "batch")
    )
    assert batch["value"] == pytest.approx(expected, rel=1e-6)
    assert (batch["batch_size"], plain["batch_size"]) == (12, 5)
    assert abs(batch["value"] - plain["value"]) > 0.05
    assert "batch_norm" not in final(rows, "average_cosine", "text", zero_bias=False)["model_options"]
    assert len({row["model_options"].get("batch_norm") for row in rows}) == 3 and len(list(planned.cells())) == 6
    zero = [row for row in rows if row["at"].get("operation") == "normalisation" and row["at"]["modality"] == "image"]
    assert {row["note"] for row in zero} == {"all rows are zero, there are no cosines"}
    assert all(row["value"] is None for row in zero)


# --- cells and runs


def test_every_setting_makes_its_own_cells(tmp_path):
    other = {"images": "scenes", "captions": "scenes"}
    changes = ({}, {"seeds": [1]}, {"limit": 8}, {"batch_size": 4}, {"seed": 1}, other)
    keys = [{cell.key for cell in experiment(tmp_path, **change).cells()} for change in changes]
    assert [len(each) for each in keys] == [4] * 6 and len(set.union(*keys)) == 24
    more = {cell.key for cell in experiment(tmp_path, seeds=[0, 1, 2]).cells()}
    assert keys[0] | keys[1] < more and len(more) == 12  # another seed leaves the others as they are


# --- what cannot be run


def test_data_without_the_side_are_named(tmp_path):
    folder = tmp_path / "photographs"
    folder.mkdir()
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    planned = experiment(tmp_path, captions={"name": "folder", "path": str(folder)})
    with pytest.raises(InputError, match="the data set folder has no texts; choose another data set for them"):
        rows_of(planned)


def test_an_unreadable_image_is_named(tmp_path):
    folder = tmp_path / "photographs"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"no image")
    planned = experiment(tmp_path, images={"name": "folder", "path": str(folder)})
    with pytest.raises(InputError, match=r"the image a.png cannot be read .*; remove it"):
        rows_of(planned)


def test_a_tower_that_cannot_be_followed_is_refused(tmp_path):
    model = "open_clip:convnext_tiny/fresh"
    with pytest.raises(InputError, match=f"image tower of {model} cannot be followed layer by layer"):
        next(iter(experiment(tmp_path, models=[model]).cells())).compute()
