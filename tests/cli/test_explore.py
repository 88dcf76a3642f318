import subprocess
import sys

import numpy as np
import pytest

from support.clip_like import clip_like


@pytest.fixture
def folder(tmp_path):
    for name, rows in clip_like(60).items():
        np.save(tmp_path / f"{name}.npy", rows)
    return tmp_path


def test_a_folder_becomes_a_page(cli, folder):
    done = cli("explore", ".", "-o", "e.html", "--repairs", "center,whiten(8)[pooled]", "--no-umap", "--title", "Sixty")
    assert done.status == 0, done.err
    assert "explorer: e.html (" in done.out and "Repairs are fitted on a random half of the items" in done.out
    page = (folder / "e.html").read_text()
    assert "<title>Sixty</title>" in page and '"name":"whiten(8)[pooled]"' in page
    assert "clip-geometry explore . -o e.html" in page
    assert sorted(path.name for path in folder.iterdir()) == ["e.html", "image.npy", "text.npy"]


def test_a_sample_is_said(cli, folder):
    done = cli("explore", "image.npy", "text.npy", "-o", "e.html", "--limit", 40, "--repairs", "", "--no-umap")
    assert done.status == 0, done.err
    assert "A random sample is shown, 20 of 60 images and 20 of 60 texts (seed 0)." in done.out
    assert "A random sample is shown, 20 of 60 images" in (folder / "e.html").read_text()


def test_labels_and_captions(cli, folder):
    (folder / "classes.txt").write_text("\n".join(f"class {k % 3}" for k in range(60)))
    (folder / "captions.txt").write_text("\n".join(f"caption {k}" for k in range(60)))
    options = ("--labels", "classes.txt", "--captions", "captions.txt", "--repairs", "", "--no-umap")
    done = cli("explore", "image.npy", "text.npy", "-o", "e.html", *options)
    assert done.status == 0, done.err
    assert '"label":{"names":["class 0","class 1","class 2"]' in (folder / "e.html").read_text()


def test_a_store_brings_images_and_captions(cli, tmp_path):
    assert cli("embed", "scenes-clip/fresh", "scenes", "-o", "scenes", "size=12", "--device", "cpu").status == 0
    done = cli("explore", "scenes", "-o", "e.html", "--repairs", "", "--no-umap")
    assert done.status == 0, done.err
    page = (tmp_path / "e.html").read_text()
    assert '"thumbnails":12' in page and 'id="thumbs"' in page


def test_images_of_a_folder(cli, folder):
    from PIL import Image

    (folder / "photos").mkdir()
    for k in range(60):
        Image.new("RGB", (200, 100), (k, 0, 0)).save(folder / "photos" / f"{k:03d}.png")
    done = cli("explore", "image.npy", "text.npy", "-o", "e.html", "--data", "photos", "--repairs", "", "--no-umap")
    assert done.status == 0, done.err
    assert '"thumbnails":60' in (folder / "e.html").read_text()


def test_errors_are_one_sentence_and_leave_nothing(cli, refused, folder):
    def failed(*options):
        """Fails after the first line of progress, with a sentence."""
        done = cli("explore", "image.npy", "text.npy", "-o", "e.html", *options)
        assert done.status == 2 and done.out == ""
        first, error = done.err.splitlines()
        assert first.startswith("exploring image.npy and text.npy") and error.startswith("clip-geometry: ")
        return error

    before = sorted(folder.iterdir())
    files = ("image.npy", "text.npy")
    assert "is no .html file" in refused("explore", *files, "-o", "e.txt")
    assert "nowhere.npy" in refused("explore", "nowhere.npy", "-o", "e.html")
    assert "did you mean 'center'?" in failed("--repairs", "centr")
    assert "unknown pipeline step" in failed("--pipeline", "normalise")
    assert "nix" in failed("--data", "nix")
    assert "qb_norm ranks items by the whole list" in failed("--repairs", "qb_norm", "--no-umap")
    (folder / "short.txt").write_text("a\nb")
    assert "has 2 captions for 60 text rows" in failed("--captions", "short.txt")
    (folder / "short.txt").unlink()
    (folder / "e.html").write_text("mine")
    assert "exists; choose another name" in failed()
    (folder / "e.html").unlink()
    assert sorted(folder.iterdir()) == before


def test_it_says_that_it_works_before_slow_imports(folder):
    code = """import sys
class Late:
    def find_spec(self, name, *_):
        if name in ("torch", "numpy", "sklearn", "matplotlib", "pandas"):
            sys.stderr.flush()
            raise SystemExit(f"{name} is imported")
sys.meta_path.insert(0, Late())
from clip_geometry.cli import main
main()
"""
    command = [sys.executable, "-c", code, "explore", "image.npy", "text.npy", "-o", "e.html"]
    first, *_ = subprocess.run(command, capture_output=True, text=True, cwd=folder).stderr.splitlines()
    assert first.startswith("exploring image.npy and text.npy: ")


def test_an_interrupted_command_leaves_nothing(cli, folder, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("clip_geometry.explorer.states_of", interrupted)
    done = cli("explore", "image.npy", "text.npy", "-o", "e.html", "--no-umap")
    assert done.status == 130
    assert sorted(path.name for path in folder.iterdir()) == ["image.npy", "text.npy"]
