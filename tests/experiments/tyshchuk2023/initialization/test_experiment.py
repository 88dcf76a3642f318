"""Fresh models: the rows are those of the plain functions on the embeddings that the store would hold."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from clip_geometry.config import validate
from clip_geometry.data import load_dataset
from clip_geometry.data.base import Side
from clip_geometry.encoders import load_encoder, resolve_encoder
from clip_geometry.encoders.open_clip import scenes_folder
from clip_geometry.geometry import average_cosine, measures
from clip_geometry.registry import InputError
from clip_geometry.results import Results
from clip_geometry_experiments.run.runner import RunFolder, run
from clip_geometry_experiments.tyshchuk2023 import initialization
from clip_geometry_experiments.tyshchuk2023.initialization import (
    Initialization,
    InitializationConfig,
    fresh_tower,
)
from clip_geometry_experiments.tyshchuk2023.initialization.fresh_tower import (
    architecture,
    architectures_up_to,
    modalities,
    predicted_cosines,
)
from clip_geometry_experiments.tyshchuk2023.initialization.trace import AffineMeans, Norm, Operation, Trace, trace

SCENES = {
    "name": "tiny",
    "experiment": "initialization",
    "models": ["scenes-clip/fresh"],
    "images": {"name": "scenes", "size": 12},
    "captions": {"name": "scenes", "size": 12},
    "seeds": [0],
    "biases": ["initial"],
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


BOTH = {"seeds": [0, 1], "biases": ["initial", "zero"]}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Of a run of two seeds, with and without biases."""
    folder = tmp_path_factory.mktemp("both")
    (folder / "tiny.yaml").write_text(json.dumps(SCENES | BOTH))
    return run(folder / "tiny.yaml", {}, runs=folder / "runs", device="cpu")


@pytest.fixture(scope="module")
def both(report):
    """(experiment, rows) of that run."""
    config = validate(InitializationConfig, SCENES | BOTH, "test")
    rows = Results(report.parent / "results.jsonl").read()
    return Initialization(config, RunFolder(report.parent, "cpu")), rows


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


def test_rows_say_where_they_come_from(both):
    _, rows = both
    assert len(rows) == 2 * 2 * (28 + 27 + 2 * (11 + 6))  # operations of image and text, and measures of both
    for row in rows:
        assert (row["model"], row["dataset"], row["data_options"]) == ("scenes-clip/fresh", "scenes", {"size": 12})
        assert row["model_options"].keys() == {"seed", "zero_bias"}  # there is no batch norm
        assert row["seconds"] > 0 and row["batch_size"] == 32 and row["versions"]["torch"]
        assert "note" not in row or "biases" not in row["note"]
    model = load_encoder(resolve_encoder("scenes-clip/fresh"), device="cpu")
    assert sum({row["parameters"] for row in rows}) + 1 == model.describe()["parameters"]


def test_layers_end_at_the_embeddings_and_carry_predictions(both):
    """Of widths 128 and 192 a prediction misses by .04 (one standard deviation, measured over 24 seeds) and by nothing
    on average: .15 for one of them, .03 for the mean of 32 MLPs. A wrong activation or weight shifts all by .1."""
    _, rows = both
    for modality in ("image", "text"):
        layered = [row for row in rows if row["at"].get("layer") is not None and row["at"]["modality"] == modality]
        own = [row for row in layered if row["model_options"] == {"seed": 0, "zero_bias": False}]
        assert own[-1]["at"] == {"modality": modality, "layer": 5, "operation": "projection"}
        expected = final(rows, "average_cosine", modality, seed=0, zero_bias=False)["value"]
        assert own[-1]["value"] == pytest.approx(expected, rel=1e-6)
        for row in layered:
            measured_only = row["at"]["operation"] in ("embedding", "attention")
            assert (row["predicted"] is None) is measured_only is (row["predicted_from_start"] is None)
            if not measured_only:
                assert row["predicted"] == pytest.approx(row["value"], abs=0.15), row["at"]
                assert row["predicted_from_start"] == pytest.approx(row["value"], abs=0.2), row["at"]
    mlps = [row["value"] - row["predicted"] for row in rows if row["at"].get("operation") == "mlp"]
    assert len(mlps) == 32 and abs(np.mean(mlps)) < 0.03


def test_the_class_token_starts_where_all_images_agree(both):
    _, rows = both
    (start,) = (
        row for row in rows
        if row["at"] == {"modality": "image", "layer": 0, "operation": "embedding"}
        and row["model_options"] == {"seed": 0, "zero_bias": False}
    )  # fmt: skip
    assert start["value"] == pytest.approx(1, abs=1e-12)


def test_without_layers_the_embeddings_are_the_same(both, tmp_path):
    planned = experiment(tmp_path, layers=False)
    rows = rows_of(planned)
    assert not any("layer" in row["at"] for row in rows)
    for modality in ("image", "text"):
        expected = final(both[1], "average_cosine", modality, seed=0, zero_bias=False)["value"]
        assert final(rows, "average_cosine", modality)["value"] == pytest.approx(expected, rel=1e-6)


# --- batch norm


def test_batch_norm_is_a_column_of_the_images_of_models_that_have_it(resnet, tmp_path):
    planned = experiment(tmp_path, models=[resnet], batch_size=5)
    rows = rows_of(planned)
    encoder = load_encoder(resolve_encoder(resnet["model"], fresh=True, batch_norm="batch"), device="cpu")
    side = load_dataset(planned.config.images).image
    pixels = torch.stack([encoder.preprocess(side.load(k)) for k in range(12)])
    expected = float(average_cosine(encoder.image_features(pixels)))
    batch, plain = (final(rows, "average_cosine", "image", batch_norm=mode) for mode in ("batch", "eval"))
    assert batch["value"] == pytest.approx(expected, rel=1e-6)
    assert (batch["batch_size"], plain["batch_size"]) == (12, 5)
    assert abs(batch["value"] - plain["value"]) > 0.05
    assert "batch_norm" not in final(rows, "average_cosine", "text")["model_options"]
    assert len({row["model_options"].get("batch_norm") for row in rows}) == 3 and len(list(planned.cells())) == 3
    zero = [row for row in rows if row["at"].get("operation") == "normalisation" and row["at"]["modality"] == "image"]
    assert {row["note"] for row in zero} == {"all rows are zero, there are no cosines"}
    assert all(row["value"] is None for row in zero)


# --- biases that are zero already


def test_where_zero_biases_change_nothing_every_row_says_so(tmp_path, monkeypatch):
    """Asked of the model as initialised, also where only zero biases are run."""
    seen = []
    monkeypatch.setattr(initialization.fresh_tower, "has_biases", lambda model: seen.append(model) or False)
    rows = rows_of(experiment(tmp_path, biases=["zero"]))
    assert all(row["note"].endswith("zero_bias changes nothing") for row in rows) and len(seen) == 1
    monkeypatch.undo()
    assert fresh_tower.has_biases(seen[0])
    arbitrary = final(rows, "isotropy_i1[rows]", "text")["note"]
    assert arbitrary.startswith("12 rows in 512 dimensions leave the basis arbitrary") and "; all biases" in arbitrary


def test_a_bias_is_what_differs_from_zero():
    model = torch.nn.Linear(2, 2)
    assert fresh_tower.has_biases(model)
    torch.nn.init.zeros_(model.bias)
    model.register_parameter("logit_bias", torch.nn.Parameter(torch.ones(1)))
    assert not fresh_tower.has_biases(model)


# --- cells and runs


def test_every_setting_makes_its_own_cells(tmp_path):
    other = {"images": "scenes", "captions": "scenes"}
    changes = ({}, {"seeds": [1]}, {"biases": ["zero"]}, {"limit": 8}, {"batch_size": 4}, {"layers": False},
               {"seed": 1}, other)  # fmt: skip
    keys = [{cell.key for cell in experiment(tmp_path, **change).cells()} for change in changes]
    assert [len(each) for each in keys] == [2] * 8 and len(set.union(*keys)) == 16
    more = {cell.key for cell in experiment(tmp_path, seeds=[0, 1, 2]).cells()}
    assert keys[0] | keys[1] < more and len(more) == 6  # another seed leaves the others as they are


def test_listing_cells_builds_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(initialization, "load_encoder", lambda *_, **__: pytest.fail("built"))
    assert len(list(experiment(tmp_path, biases=["zero", "initial"]).cells())) == 4


def test_both_towers_share_one_model(tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(initialization, "load_encoder", lambda c, **o: built.append(c) or load_encoder(c, **o))
    rows_of(experiment(tmp_path, biases=["initial", "zero"], layers=False))
    assert [config.zero_bias for config in built] == [False, True]


def test_a_limit_takes_the_first_items(tmp_path, both):
    planned = experiment(tmp_path, limit=5, layers=False)
    rows = rows_of(planned)
    assert {row["n"] for row in rows} == {5} and rows[0]["data_options"] == {"size": 12, "limit": 5}
    cell = next(iter(planned.cells()))
    whole = next(iter(both[0].cells()))
    first, all_rows = (
        np.load(p.workspace.folder / f"embeddings/{c.key}.npy") for p, c in ((planned, cell), (both[0], whole))
    )
    assert np.abs(first - all_rows[:5]).max() < 1e-4


def test_a_run_writes_rows_figures_and_a_report_and_resumes(report, monkeypatch):
    names = {path.name for path in (report.parent / "figures").iterdir()}
    drawn = ("cosine_of_fresh_models", "layers_1", "biases_1")
    assert names == {f"{name}.{kind}" for name in drawn for kind in ("png", "svg")}
    assert len(list((report.parent / "embeddings").iterdir())) == 8
    page = report.read_text()
    assert "12 of scenes (size 12)" in page and "freshly initialized" in page and "seeds 0, 1" in page
    before = (report.parent / "results.jsonl").read_bytes()
    monkeypatch.setattr(fresh_tower.FreshTower, "run", lambda *_: pytest.fail("a finished cell was computed again"))
    runs = report.parents[1]
    assert run(runs.parent / "tiny.yaml", {}, runs=runs, device="cpu") == report
    assert (report.parent / "results.jsonl").read_bytes() == before
    assert len(Results(report.parent / "results.jsonl").finished()) == 8


# --- architectures


def test_what_is_known_without_building_is_what_is_built(resnet):
    for model in ({"model": "scenes-clip/fresh"}, resnet):
        config = resolve_encoder(**model)
        known = architecture(config)
        assert known.parameters == load_encoder(config, device="cpu").describe()["parameters"]
        assert known.batch_norm == (model is resnet)
    assert architecture(resolve_encoder("hf-hub:org/name")) is None
    assert architecture(resolve_encoder("open_clip:roberta-ViT-B-32/fresh")) is None  # text tower on the hub


def test_a_text_encoder_has_one_tower():
    assert modalities(resolve_encoder("hf-text:org/name")) == ("text",)
    assert modalities(resolve_encoder("hf-clip:org/name")) == ("image", "text")


def test_architectures_come_small_ones_first_and_without_downloads(monkeypatch, tmp_path):
    names = ("RN50", "ViT-S-32-alt", "ViT-B-16-SigLIP", "roberta-ViT-B-32", "ViT-B-32")
    monkeypatch.setattr(fresh_tower, "models", lambda: SimpleNamespace(architectures=dict.fromkeys(names, ())))
    found = [config.model for config, _ in architectures_up_to(110e6)]
    assert found == ["open_clip:ViT-S-32-alt/fresh", "open_clip:RN50/fresh"]
    planned = experiment(tmp_path, architectures_up_to=50)
    assert planned.fresh_models() == ["scenes-clip/fresh", "open_clip:ViT-S-32-alt/fresh"]
    assert planned.label() == "scenes-clip/fresh, open_clip:ViT-S-32-alt/fresh"


# --- the recursion along a trace


def test_predictions_walk_from_source_to_source():
    """A stream, a norm, a layer without a bias and a sum: every cosine by hand."""
    x = torch.tensor([[3.0, 1.0, 0.0, 0.0], [1.0, 3.0, 0.0, 0.0]])
    operations = (
        Operation(0, "embedding", None),
        Operation(1, "normalisation", None, sources=(0,), steps=(Norm(0.0),)),
        Operation(1, "mlp", None, sources=(1,), steps=(AffineMeans(4, 0.25), torch.nn.ReLU(), AffineMeans(4, 0.25))),
        Operation(1, "residual", None, sources=(0, 2)),
    )
    centered = x - x.mean(1, keepdim=True)
    normed = centered / centered.std(1, unbiased=False, keepdim=True)
    found = Trace(operations, (x, normed, torch.zeros(2, 4), x))
    near, far = predicted_cosines(found), predicted_cosines(found, from_start=True)
    rho = float(torch.nn.functional.cosine_similarity(normed[0], normed[1], dim=0))
    relu = (np.sqrt(1 - rho**2) + rho * (np.pi - np.arccos(rho))) / np.pi
    assert near[0] is None and near[1] == pytest.approx(rho, rel=1e-6)
    assert near[2] == pytest.approx(relu, rel=1e-6) and far[2] == pytest.approx(relu, rel=1e-6)
    assert near[3] == pytest.approx(0.6, rel=1e-6)  # the measured branch is zero
    assert far[3] == pytest.approx((0.6 * 2.5 + relu / 2) / 3, rel=1e-6)  # of the predicted one: E φ² = 1/2


def test_zero_rows_have_no_predicted_cosine():
    found = Trace(
        (Operation(0, "embedding", None), Operation(1, "residual", None, sources=(0,))), (torch.zeros(2, 3),) * 2
    )
    assert predicted_cosines(found) == [None, None]


# --- what cannot be run


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"models": []}, "there are no models; name some under 'models', or set 'architectures_up_to'"),
        (
            {"models": ["open_clip:ViT-B-32-quickgelu/openai"]},
            "open_clip:ViT-B-32-quickgelu/openai is not freshly initialised",
        ),
        ({"models": [{"model": "scenes-clip/fresh", "seed": 1}]}, "scenes-clip/fresh has its own seed; set seeds"),
        ({"models": ["scenes-clip/fresh"] * 2}, "scenes-clip/fresh is there twice under 'models'"),
        ({"seeds": []}, "key 'seeds'"),
        ({"seeds": [0, 0]}, "has a seed twice or below 0"),
        ({"biases": ["none"]}, r"key 'biases.0' is 'none'"),
    ],
)
def test_wrong_configs_are_one_sentence(tmp_path, changes, says):
    with pytest.raises(InputError, match=says):
        experiment(tmp_path, **changes)


def test_data_without_the_side_are_named(tmp_path):
    folder = tmp_path / "photographs"
    folder.mkdir()
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    planned = experiment(tmp_path, captions={"name": "folder", "path": str(folder)})
    with pytest.raises(InputError, match="the data set folder has no texts; choose another one for them"):
        rows_of(planned)


def test_an_unreadable_image_is_named(tmp_path):
    def load(index):
        raise OSError("truncated")

    with pytest.raises(InputError, match=r"the image b cannot be read \(truncated\); remove it"):
        fresh_tower._loaded(Side("image", ["a", "b"], load), 1)


def test_a_tower_that_cannot_be_followed_is_refused_with_layers_only(tmp_path):
    model = "open_clip:convnext_tiny/fresh"
    with pytest.raises(InputError, match=f"image tower of {model} cannot be followed layer by layer"):
        next(iter(experiment(tmp_path, models=[model]).cells())).compute()


def test_every_trace_of_the_small_model_has_the_operations_that_the_figures_know():
    encoder = load_encoder(resolve_encoder("scenes-clip/fresh"), device="cpu")
    from clip_geometry_experiments.tyshchuk2023.initialization.figures import PLACES

    known = {name for places in PLACES.values() for name in places}
    found = trace(encoder, "text", [encoder.tokenize(["a red circle", "a blue square"])])
    drawn = {operation.name for operation in found.operations} - known
    assert drawn == {"attention normalisation", "mlp normalisation", "normalisation"}
