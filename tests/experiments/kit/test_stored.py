"""Stored embeddings stand in the place of a data set and a model."""

import re

import numpy as np
import pytest
import torch

from clip_geometry.config import validate
from clip_geometry.geometry import average_cosine
from clip_geometry.geometry.isotropy import partition_over
from clip_geometry.registry import InputError
from clip_geometry_experiments.geometry import Geometry
from clip_geometry_experiments.kit.stored import RandomSplit, StoredConfig, read_stored, stored_revision
from clip_geometry_experiments.run.runner import RunFolder
from clip_geometry_experiments.tyshchuk2023.isotropy import Isotropy, IsotropyConfig


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    place = tmp_path / "mine"
    place.mkdir()
    for name in ("image", "text"):
        np.save(place / f"{name}.npy", (rng.normal(size=(30, 6)) + 1).astype(np.float32))
    monkeypatch.setenv("MY_DATA", str(tmp_path))
    return place


def config(kind=Geometry.Config, **changes):
    values = {"name": "t", "experiment": "geometry", "pairs": {"embeddings": "$MY_DATA/mine"}, "blocks": 0} | changes
    return validate(kind, values, "test")


def test_rows_come_from_the_files_and_say_so(folder, tmp_path):
    pairs = {"embeddings": "$MY_DATA/mine", "encoder": "my CLIP", "rows": [5, 25]}
    planned = Geometry(config(pairs=pairs, measures=["average_cosine"]), RunFolder(tmp_path / "run", "cpu"))
    (row, _) = [row for cell in planned.cells() for row in cell.compute()]
    rows = np.load(folder / "image.npy")[5:25]
    assert row["value"] == pytest.approx(float(average_cosine(rows)), rel=1e-12)
    assert (row["n"], row["model"], row["dataset"], row["split"]) == (20, "my CLIP", "mine", "rows 5 to 25")
    assert planned.fresh_models() == []


def test_a_changed_file_is_new_work(folder, tmp_path):
    def keys():
        return [cell.key for cell in Geometry(config(), RunFolder(tmp_path / "run", "cpu")).cells()]

    before = keys()
    assert keys() == before
    np.save(folder / "image.npy", np.ones((31, 6), np.float32))
    assert set(keys()).isdisjoint(before)


def test_labels_of_a_file_of_their_own(folder, tmp_path):
    np.save(folder / "labels.npy", np.arange(30) % 3)
    stored = config(pairs={"embeddings": "$MY_DATA/mine", "labels": "$MY_DATA/mine/labels.npy", "rows": [5, 25]}).pairs
    found = read_stored(stored)
    assert all(each.labels.tolist() == (np.arange(5, 25) % 3).tolist() for each in found.values())
    before = stored_revision(stored)
    np.save(folder / "labels.npy", np.arange(30) % 4 * 10**9)
    assert stored_revision(stored) != before
    np.save(folder / "labels.npy", np.arange(7) % 3)
    with pytest.raises(InputError, match="7 labels were given for 30 image rows and 30 text rows"):
        read_stored(stored)


def test_a_random_split_is_that_of_torch():
    """manual_seed(seed), randperm(n), ⌊share · n⌋ items first."""
    split = RandomSplit(share=0.8)
    torch.manual_seed(0)
    order = torch.randperm(30).numpy()
    assert np.array_equal(split.items(30, "first"), order[:24]) and np.array_equal(split.items(30, "rest"), order[24:])
    assert split.named("rest") == "last part of a random 0.8 split, seed 0"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"model": "scenes-clip/fresh"},
            "pairs has stored embeddings, which need no model; set model to null",
        ),
        ({"pairs": "scenes"}, "pairs is the data set scenes, which a model has to embed; set model"),
        ({"pairs": {"embeddings": "x", "encodr": "y"}}, "unknown key 'encodr'; did you mean 'encoder'"),
        ({"pairs": {"embeddings": "x", "rows": [3, 3]}}, "rows = [3, 3]; expected [first, end]"),
        (
            {"pairs": {"embeddings": "x", "image": "y"}},
            "either `embeddings`, one file or folder, or",
        ),
        ({"pairs": {"embeddings": "$NOWHERE/x"}}, "needs the environment variable NOWHERE, which is not set"),
    ],
)
def test_mistakes_are_one_sentence(changes, sentence, folder):
    with pytest.raises(InputError, match=re.escape(sentence)):
        config(**changes)


def test_too_few_rows_are_an_error(folder):
    with pytest.raises(InputError, match=re.escape("has 30 image rows, but rows = [0, 31]")):
        read_stored(StoredConfig(embeddings=folder, rows=(0, 31)))


def test_bases_that_know_nothing_give_the_length_of_the_mean(tmp_path, monkeypatch):
    """At d = 200 I2 over any such basis is ‖mean‖/√d to a few per cent, whatever the rows are."""
    rng = np.random.default_rng(3)
    np.save(tmp_path / "x.npy", rng.normal(size=(300, 200)) * np.geomspace(1, 0.1, 200) + rng.normal(size=200) * 0.3)
    settings = config(IsotropyConfig, pairs={"embeddings": str(tmp_path / "x.npy")}, measures=["isotropy_i1"])
    rows = [row for cell in Isotropy(settings, RunFolder(tmp_path / "run", "cpu")).cells() for row in cell.compute()]
    found = {row["measure"]: row["value"] for row in rows}
    assert found["isotropy_i2[random]"] == pytest.approx(found["isotropy_i2[mean]"], rel=0.05)
    assert found["isotropy_i1[random]"] > found["isotropy_i1"] + 0.1
    unit = np.load(tmp_path / "x.npy")
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    assert found["isotropy_i2[mean]"] == pytest.approx(np.linalg.norm(unit.mean(0)) / 200**0.5)


def test_directions_of_another_dimension_are_refused():
    with pytest.raises(InputError, match="directions have dimension 3 and x has 4"):
        partition_over(np.ones((5, 4)), np.eye(3))
