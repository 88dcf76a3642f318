"""Tables of Tyshchuk et al. 2023 on 500 real COCO pairs, by the configs that the documentation names."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.results import read_rows
from clip_geometry_experiments.run.runner import run

ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "configs" / "tyshchuk2023"

# (image i1, i2, text i1, i2) as printed in the specification, papers/README A.1; `rows` and random bases are arbitrary
# to ± .02 of n < d rows
TABLE_1 = {
    ("normalize",): {
        "": (0.2324, 0.0374, 0.2378, 0.0367),
        "[canonical]": (0.4810, 0.0475, 0.4859, 0.0466),
        "[rows]": (0.805, 0.0323, 0.818, 0.0317),
        "[random]": (0.819, 0.0322, 0.824, 0.0317),
    },
    ("normalize", "center", "normalize"): {
        "": (0.929, 0.0036, 0.937, 0.0036),
        "[rows]": (0.995, 0.0009, 0.994, 0.0010),
    },
}


@pytest.fixture(scope="module")
def rows_of(data, tmp_path_factory):
    def rows(name, **changes):
        report = run(CONFIGS / f"{name}.yaml", changes, runs=tmp_path_factory.mktemp(name), device="cpu")
        return read_rows(report.parent)

    return rows


@pytest.mark.slow
def test_table_1(rows_of):
    rows = rows_of("isotropy_coco500", blocks=0)
    found = {(row["measure"], *row["pipeline"], row["at"]["modality"]): row["value"] for row in rows}
    for pipeline, conventions in TABLE_1.items():
        for convention, printed in conventions.items():
            arbitrary = convention in ("[rows]", "[random]")
            expected = dict(zip([(n, m) for m in ("image", "text") for n in (1, 2)], printed, strict=True))
            for (number, modality), value in expected.items():
                ours = found[f"isotropy_i{number}{convention}", *pipeline, modality]
                digits = 5e-5 if number == 2 or len(pipeline) == 1 else 5e-4
                bound = (0.03 if number == 1 else 1.5e-4) if arbitrary else digits * 1.01
                assert ours == pytest.approx(value, abs=bound), (number, convention, pipeline, modality)
    for modality, length in (("image", 0.0322), ("text", 0.0318)):
        assert found["isotropy_i2[mean]", "normalize", modality] == pytest.approx(length, abs=5.1e-5)


@pytest.mark.filterwarnings("ignore::clip_geometry.transforms.RankWarning")
def test_table_2(rows_of):
    """400 pairs in 512 dimensions: paired maps interpolate; of whitening 64 or 128 directions are best."""
    rows = rows_of("clip_loss_coco500", blocks=0)
    loss = {(row["at"]["row"], row["at"]["split"]): row["value"] for row in rows if row["measure"].endswith(".loss")}
    for split in ("train", "test"):
        assert 0.4 < loss["CLIP", split] < 0.75  # published .42 and .41, of ViT-B/32 on other captions
        assert loss["CLIP", split] < loss["centering", split] < loss["whitening-128", split] + 0.2
    assert loss["LSTSQ", "train"] < 1e-4 and loss["LSTSQ", "test"] > 5
    assert loss["Procrustes", "train"] < 0.1 and loss["Procrustes", "test"] > 2
    whitened = {k: loss[f"whitening-{k}", "train"] for k in (16, 32, 64, 128, 256, 512)}
    assert min(whitened, key=lambda k: whitened[k]) in (64, 128)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::clip_geometry.transforms.RankWarning")  # ten prompts
def test_tables_3_to_5_of_cifar10(rows_of, tmp_path, monkeypatch):
    """Whitening beyond the signal costs zero-shot accuracy, written out from its definition; 250 images."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["cifar10.py"])
    runpy.run_path(str(ROOT / "scripts/tyshchuk2023/cifar10.py"), run_name="__main__")
    found = {(row["measure"], row["at"]["row"], row["at"].get("draw")): row["value"] for row in rows_of("cifar10")}

    def unit(rows):
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    fit, images, text = (
        unit(np.load(f"cifar10-clip/{name}.npy")) for name in ("train/image", "test/image", "test/text")
    )
    labels, mean = np.load("cifar10-clip/test/labels.npy"), fit.mean(0)
    variances, directions = np.linalg.eigh(np.cov(fit.astype(float).T))
    for k, row in ((0, "CLIP"), (32, "Whitening-32"), (64, "Whitening-64"), (128, "Whitening-128")):
        matrix = directions[:, -k:] / np.sqrt(variances[-k:]) if k else np.eye(len(mean))
        rows, texts = (unit((each - mean * (k > 0)) @ matrix) for each in (images, text))
        name = f"{row} on CIFAR train" if k else row
        assert found["zero_shot.top_1", name, None] == np.mean((rows @ texts.T).argmax(1) == labels)
    assert found["zero_shot.top_1", "CLIP", None] > found["zero_shot.top_1", "Whitening-128 on CIFAR train", None] + 0.3
    new = {
        row: value
        for (measure, row, draw), value in found.items()
        if measure == "class_generalization.new" and draw is None
    }
    assert new["Procrustes, LAPACK"] < 0.01 < 0.4 < new["Procrustes"] < new["CLIP"]
