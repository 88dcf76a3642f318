"""`explore`: the page with what was asked for, or nothing."""

import numpy as np
import pytest
from PIL import Image

from support.clip_like import clip_like

QUICK = ("--repairs", "", "--no-umap")


@pytest.fixture
def folder(tmp_path):
    for name, rows in clip_like(60).items():
        np.save(tmp_path / f"{name}.npy", rows)
    return tmp_path


@pytest.fixture
def explored(cli, folder):
    def run(*arguments):
        done = cli("explore", *arguments, "-o", "e.html")
        assert done.status == 0, done.err
        return done.out, (folder / "e.html").read_text()

    return run


def test_a_folder_becomes_a_page(explored, folder):
    out, page = explored(".", "--repairs", "center,whiten(8)[pooled]", "--no-umap", "--title", "Sixty")
    assert "explorer: e.html (" in out and "Repairs are fitted on a random half of the items" in out
    assert "<title>Sixty</title>" in page and '"name":"whiten(8)[pooled]"' in page
    assert "clip-geometry explore . --repairs" in page
    assert sorted(path.name for path in folder.iterdir()) == ["e.html", "image.npy", "text.npy"]


def test_labels_captions_and_images_of_a_sample(explored, folder):
    (folder / "classes.txt").write_text("\n".join(f"class {k % 3}" for k in range(60)))
    (folder / "captions.txt").write_text("\n".join(f"caption {k}" for k in range(60)))
    (folder / "photos").mkdir()
    for k in range(60):
        Image.new("RGB", (200, 100), (k, 0, 0)).save(folder / "photos" / f"{k:03d}.png")
    options = ("--labels", "classes.txt", "--captions", "captions.txt", "--data", "photos", "--limit", 40)
    out, page = explored("image.npy", "text.npy", *options, *QUICK)
    said = "A random sample is shown, 20 of 60 images and 20 of 60 texts."
    assert said in out and said in page and '"thumbnails":20' in page
    assert '"label":{"names":["class 0","class 1","class 2"]' in page


def test_a_store_brings_images_and_captions(cli, explored):
    assert cli("embed", "scenes-clip/fresh", "scenes", "-o", "scenes", "size=12", "--device", "cpu").status == 0
    _, page = explored("scenes", *QUICK)
    assert '"thumbnails":12' in page and 'id="thumbs"' in page


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--repairs", "centr"], "did you mean 'center'?"),
        (["--pipeline", "normalise"], "unknown pipeline step"),
        (["--data", "nix"], "nix"),
        (["--repairs", "rrf", "--no-umap"], "rrf ranks items by the whole list"),
        (["--captions", "short.txt"], "has 2 captions for 60 text rows"),
        (["-o", "mine.html"], "exists; choose another name"),
        (["-o", "e.txt"], "is not a .html or .htm file"),
    ],
)
def test_errors_are_one_sentence_and_leave_nothing(cli, folder, options, sentence):
    (folder / "short.txt").write_text("a\nb")
    (folder / "mine.html").write_text("mine")
    before = sorted(folder.iterdir())
    done = cli("explore", "image.npy", "text.npy", "-o", "e.html", *options)
    *_, error = done.err.splitlines()
    assert done.status == 2 and done.out == "" and sentence in error and done.err.count("\n") <= 2
    assert sorted(folder.iterdir()) == before and (folder / "mine.html").read_text() == "mine"


def test_an_interrupted_command_leaves_nothing(cli, folder, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("clip_geometry.explorer.states_of", interrupted)
    assert cli("explore", "image.npy", "text.npy", "-o", "e.html", "--no-umap").status == 130
    assert sorted(path.name for path in folder.iterdir()) == ["image.npy", "text.npy"]
