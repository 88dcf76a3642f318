"""`clip-geometry embed` end to end: every model a tiny one, every data set a few items."""

import json
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.embedding.store import read_store
from clip_geometry.embeddings import pair
from clip_geometry.io.sources import read


@pytest.fixture
def embed(cli):
    """Embeds into `out`, which has to succeed, and gives the sets."""

    def run(model, dataset, *arguments, out="out"):
        outcome = cli("embed", model, dataset, "-o", out, *arguments)
        assert outcome.status == 0 and f"store: {out}" in outcome.out
        return read_store(out)

    return run


def test_a_table_by_its_path(embed, refused, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("language,caption\nde,ein roter Kreis\nen,a red circle\nde,ein blaues Dreieck\n")
    assert "key 'path' is missing" in refused("embed", "scenes-clip/fresh", "captions", "-o", "out")
    sets = embed("scenes-clip/fresh", "captions", "--language", "de", f"path={table}")
    assert sets.keys() == {"text"}
    assert list(sets["text"].metadata["text"]) == ["ein roter Kreis", "ein blaues Dreieck"]
    assert sets["text"].provenance["data_options"] == {"language": "de", "path": str(table)}
    same = embed("scenes-clip/fresh", table, "language=de", out="same")
    assert np.array_equal(same["text"].vectors, sets["text"].vectors)
    assert "give one" in refused("embed", "scenes-clip/fresh", table, "-o", "out", f"path={table}")


def test_a_seed_is_the_encoders_and_with_data_the_data_sets(embed):
    plain = embed("scenes-clip/fresh", "scenes", "size=4", out="plain")["image"]
    model = embed("scenes-clip/fresh", "scenes", "size=4", "seed=1", out="model")["image"]
    data = embed("scenes-clip/fresh", "scenes", "size=4", "data.seed=1", out="data")["image"]
    both = embed("scenes-clip/fresh", "scenes", "size=4", "model.seed=1", "data.seed=2", out="both")["image"]
    options = [(side.provenance["model_options"], side.provenance["data_options"]) for side in (model, data, both)]
    assert options[0] == ({"seed": 1}, {"size": 4})
    assert options[1] == ({}, {"size": 4, "seed": 1})
    assert options[2] == ({"seed": 1}, {"size": 4, "seed": 2})
    assert list(plain.item_id) == list(model.item_id) and plain.item_id[0] != data.item_id[0] != both.item_id[0]
    for one, other in ((plain, model), (plain, data), (model, both)):
        assert np.abs(one.vectors - other.vectors).max() > 1e-3


def test_a_store_that_has_more_than_the_limit_says_so(cli):
    command = ("embed", "scenes-clip/fresh", "scenes", "size=4", "-o", "out", "--limit")
    assert cli(*command, "4").status == 0
    out = cli(*command, "2").out
    assert "image: 4 × 512" in out and "the store holds more than --limit 2" in out


def test_how_to_be_fast_is_asked_for_beside_the_rest(cli):
    command = ("embed", "scenes-clip/fresh", "scenes", "size=4", "-o")
    assert cli(*command, "plain").status == 0
    assert cli(*command, "out", "workers=1", "throughput.sort_texts=false").status == 0
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["run"]["image"]["workers"] == 1
    assert manifest["recipe"] == json.loads(Path("plain/manifest.json").read_text())["recipe"]


def test_what_is_not_in_the_rows_is_told(cli, tmp_path):
    from PIL import Image

    (tmp_path / "photos").mkdir()
    for k in range(4):
        Image.new("RGB", (8, 8), (k, 0, 0)).save(tmp_path / "photos" / f"{k}.png")
    (tmp_path / "photos" / "broken.png").write_bytes(b"no image")
    outcome = cli("embed", "scenes-clip/fresh", "photos", "-o", "out", "--max-corrupt", "0.5")
    assert "image: 4 × 512 (1 unreadable and skipped)" in outcome.out
    (tmp_path / "c.csv").write_text("caption\nshort\n" + "word " * 100 + "\n")
    assert "text: 2 × 512 (1 truncated)" in cli("embed", "scenes-clip/fresh", "c.csv", "-o", "texts").out


def test_languages_are_modalities_of_one_folder(cli, embed):
    """The images are those of the first language, and what two models embed pairs by its ids."""
    out = cli("embed", "scenes-clip/fresh", "scenes", "--language", "de, en", "-o", "all", "size=6").out
    assert out.count("image: 6") == 1 and "store: all/de" in out and "store: all/en" in out
    sets = read("all")
    assert list(sets) == ["image", "de", "en"]
    assert list(read_store("all/de")) == ["image", "text"] and list(read_store("all/en")) == ["text"]
    assert pair(sets["de"], sets["en"])[0].tolist() == list(range(6))
    assert sets["de"].provenance["language"] == "de" and sets["de"].modality == "de"
    alone = cli("embed", "scenes-clip/fresh", "scenes", "--language", "de", "-o", "de", "size=6")
    assert alone.status == 0
    assert np.array_equal(read_store("de")["text"].vectors, sets["de"].vectors)
    table = cli("measure", "all", "--measures", "matching_cosine,modality_gap", "--blocks", "0").out
    assert table.split("matching_cosine", 1)[1].split()[:3] == ["de", "en", "image"]
    assert list(embed("scenes-clip/fresh", "scenes", "--only", "image", "size=4")) == ["image"]
