"""`migrate`: which map lets an old index serve a new model, and what it will find."""

import json

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.cli.maps import _rows_per_second


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    items = rng.normal(size=(1000, 8))
    old, new = items @ rng.normal(size=(8, 12)), items @ rng.normal(size=(8, 10))
    rows = rng.permutation(1000)[:250]
    np.save("old.npy", old), np.save("new.npy", new[rows]), np.save("rows.npy", rows)
    ids = np.array([f"item{k}" for k in range(1000)])
    cg.export({"image": cg.Embeddings(old, "image", item_id=ids)}, "old", to="parquet")
    cg.export({"image": cg.Embeddings(new[rows], "image", item_id=ids[rows])}, "new", to="parquet")
    np.save("queries.npy", new[:300])
    return tmp_path


@pytest.mark.parametrize("sources", [("old.npy", "new.npy", "--rows", "rows.npy"), ("old", "new")])
def test_the_map_is_printed_and_written(cli, folder, sources):
    done = cli("migrate", *sources, "--write", "map.safetensors")
    assert done.status == 0, done.err
    words = " ".join(done.out.split())
    assert (
        words.startswith("With ") and "of the 10 items that it would find if all 1,000 rows were re-embedded" in words
    )
    assert "re-embed the other 750 rows" in words
    assert "items mapped" in words and "queries mapped" in words and "apply it: clip-geometry apply" in words
    assert (folder / "map.safetensors").exists()


def test_one_side_and_queries_of_another_kind(cli, folder):
    done = cli("migrate", "old", "new", "--side", "queries", "--queries", "queries.npy", "--write", "map.safetensors")
    assert done.status == 0 and "items mapped" not in done.out, done.err
    assert cli("apply", "map.safetensors", "queries.npy", "--as", "image", "-o", "mapped").status == 0
    assert np.load(folder / "mapped" / "image.npy").shape == (300, 12)


def test_the_speed_is_that_of_the_store(cli, folder):
    assert cli("embed", "scenes-clip/fresh", "scenes", "size=4", "--only", "image", "-o", "store").status == 0
    run = json.loads((folder / "store" / "manifest.json").read_text())["run"]["image"]
    assert _rows_per_second(folder / "store", "image") == pytest.approx(4 / run["seconds"])
    assert _rows_per_second(folder / "store", "text") is None and _rows_per_second(folder / "new", "image") is None


def test_errors_are_one_sentence(refused, folder):
    np.save("few.npy", np.arange(5))
    for command, sentence in (
        ("migrate old.npy new.npy", "OLD or NEW has no item_id; give --rows"),
        ("migrate old.npy new.npy --rows few.npy", "expected the numbers of different rows of old"),
        ("migrate old new --write map.json", "is not a .safetensors file"),
        ("migrate new old", "items of NEW are not in OLD, such as"),
        ("migrate old missing", "missing"),
        ("migrate old new --side both", "Invalid value for '--side'"),
    ):
        assert sentence in refused(*command.split()), command
