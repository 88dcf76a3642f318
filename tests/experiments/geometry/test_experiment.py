"""Maps fitted on one part of the pairs and measured on the other."""

from types import SimpleNamespace

import numpy as np
import pytest

from clip_geometry.config import validate
from clip_geometry.embeddings import Embeddings
from clip_geometry_experiments.geometry import Geometry
from clip_geometry_experiments.kit.base import RunFolder
from clip_geometry_experiments.kit.geometry import COSINES, GeometryConfig
from clip_geometry_experiments.kit.stored import RandomSplit, part_of

pytestmark = pytest.mark.filterwarnings("ignore::clip_geometry.transforms.RankWarning")
N, D, FITTED = 100, 120, 80
PROCRUSTES = ["normalize", "procrustes[text-to-image]"]


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def noise(tmp_path):
    """Pairs without any relation, fewer than dimensions."""
    (tmp_path / "pairs").mkdir()
    for seed, modality in enumerate(("image", "text")):
        rows = np.random.default_rng(seed).normal(size=(N, D)).astype(np.float32)
        np.save(tmp_path / "pairs" / f"{modality}.npy", rows)
    return tmp_path / "pairs"


def experiment(folder, part, pipeline=PROCRUSTES):
    section = {
        "name": "tiny",
        "experiment": "geometry",
        "pairs": {"embeddings": str(folder)},
        "pipeline": pipeline,
        "measures": list(COSINES),
        "split": {"share": FITTED / N, "seed": 3, "part": part},
        "figures": [],
    }
    return Geometry(validate(GeometryConfig, section, "test"), RunFolder(folder.parent / "run", "cpu"))


def rows_of(planned):
    return {row["measure"]: row for cell in planned.cells() for row in cell.compute()}


def test_a_map_is_fitted_on_one_part_and_measured_on_the_other(noise):
    """The oracle: an orthogonal Procrustes map of the first 80 pairs of the permutation, applied to the other 20."""
    import torch

    order = torch.randperm(N, generator=torch.Generator().manual_seed(3)).numpy()
    fit, held_out = order[:FITTED], order[FITTED:]
    assert not set(fit) & set(held_out) and len(fit) + len(held_out) == N
    x, y = (unit(np.load(noise / f"{modality}.npy").astype(float)) for modality in ("image", "text"))
    planned = experiment(noise, "rest")
    moved = planned.sets.rows["text"]
    assert np.allclose(planned.sets.rows["image"], x[held_out], atol=1e-6)  # rows are stored in float32
    # on the span of the texts of the fit every completion is one map: these 80 pairs determine it
    u, _, vt = np.linalg.svd(y[fit].T @ x[fit])
    determined = u[:, :FITTED] @ vt[:FITTED]
    # and the completion nearest to the identity maps the rest of the space as near to itself as it can
    left, _, right = np.linalg.svd(u[:, FITTED:].T @ vt[FITTED:].T)
    whole = determined + u[:, FITTED:] @ left @ right @ vt[FITTED:]
    assert np.allclose(moved, y[held_out] @ whole, atol=1e-5)
    rows = rows_of(planned)
    matching = (x[held_out] * unit(y[held_out] @ whole)).sum(1)
    assert rows["matching_cosine"]["value"] == pytest.approx(matching.mean(), abs=1e-5)
    assert rows["matching_cosine"]["n"] == N - FITTED


def test_noise_is_aligned_in_the_fit_and_nowhere_else(noise):
    """80 pairs in 120 dimensions: the fit alone has a cosine of 0.8, which its null value has, too."""
    fitted, held_out = (rows_of(experiment(noise, part))["matching_cosine"] for part in ("first", "rest"))
    assert fitted["value"] > 0.7 and fitted["value"] == pytest.approx(fitted["null_value"], abs=0.05)
    assert abs(held_out["value"]) < 4 * held_out["standard_error"] < 0.2


def test_the_captions_of_an_image_stay_with_it():
    ids = np.array([f"{k}" for k in range(10)])
    image = Embeddings(np.eye(10), "image", item_id=ids)
    text = Embeddings(np.eye(30)[:, :10] + 1, "text", item_id=np.repeat(ids, 3)[::-1])
    parts = [part_of({"image": image, "text": text}, RandomSplit(share=0.6), part) for part in ("first", "rest")]
    for part in parts:
        assert set(part["text"].item_id) == set(part["image"].item_id)
        assert len(part["text"]) == 3 * len(part["image"])
    assert not set(parts[0]["image"].item_id) & set(parts[1]["image"].item_id)
    assert [len(part["image"]) for part in parts] == [6, 4]


def trained(fresh, gap, name="a", **more):
    rows = [
        {"measure": "modality_gap", "value": gap, "standard_error": 0.004, "at": {"modality": "both"}},
        *more.values(),
    ]
    config = SimpleNamespace(split=None, model=SimpleNamespace(model=name, is_fresh=fresh))
    return SimpleNamespace(config=config, finished_rows=lambda: rows)


def test_a_model_before_and_after_its_training_is_told_by_what_changed():
    cosine = {"measure": "matching_cosine", "value": 0.9, "at": {"modality": "both"}}
    said = Geometry.sentences([trained(True, 0.9681), trained(False, 0.2512, more=cosine)])
    assert said == [
        "The distance between the mean image and the mean text is 0.9681 ± 0.0040 before training and 0.2512 ± 0.0040 "
        "after it."
    ]  # a cosine of one of them is no change
    assert Geometry.sentences([trained(False, 0.2), trained(True, 0.9)]) == []  # the other way round
    assert Geometry.sentences([trained(True, 0.9), trained(False, 0.2, "b")]) == []
    assert Geometry.sentences([trained(True, 0.9)]) == []
