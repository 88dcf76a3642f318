"""The experiment's numbers are those of its planes; its figures have the pictures and captions of their rows."""

import numpy as np
import pytest
from scipy.spatial import procrustes

from clip_geometry.config import validate
from clip_geometry.registry import InputError
from clip_geometry_experiments.run.runner import RunFolder
from clip_geometry_experiments.tyshchuk2023 import semantic_map as module
from clip_geometry_experiments.tyshchuk2023.semantic_map import SemanticMap, SemanticMapConfig
from clip_geometry_experiments.tyshchuk2023.semantic_map.planes import trustworthiness

SCENES = {
    "name": "tiny",
    "experiment": "semantic_map",
    "model": "scenes-clip/fresh",
    "pairs": {"name": "scenes", "size": 30},
    "perplexity_text": 8,
    "repeats": 2,
}


def experiment(folder, **changes):
    return SemanticMap(validate(SemanticMapConfig, SCENES | changes, "test"), RunFolder(folder / "run", "cpu"))


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return experiment(tmp_path_factory.mktemp("scenes"))


def rows_of(planned):
    return [row for cell in planned.cells() for row in cell.compute()]


@pytest.fixture(scope="module")
def rows(scenes):
    return rows_of(scenes)


def at(rows, measure, modality):
    (row,) = (row for row in rows if row["measure"] == measure and row["at"]["modality"] == modality)
    return row


@pytest.fixture
def stored(tmp_path):
    """Paired embeddings of 40 items in files, without pictures and texts."""
    rng = np.random.default_rng(0)
    image = rng.normal(size=(40, 6)).astype(np.float32)
    for name, rows in {"image": image, "text": image + 0.1 * rng.normal(size=(40, 6)).astype(np.float32)}.items():
        (tmp_path / "rows").mkdir(exist_ok=True)
        np.save(tmp_path / "rows" / f"{name}.npy", rows)
    return {"model": None, "pairs": {"embeddings": str(tmp_path / "rows"), "encoder": "something"}}


# --- the numbers


@pytest.mark.parametrize("modality", ["image", "text"])
def test_numbers_of_a_map_are_means_over_its_repeats(scenes, rows, modality):
    embedded = scenes.sets.rows[modality]
    values = [trustworthiness(embedded, scenes.plane(modality, repeat), k=10) for repeat in (0, 1)]
    row = at(rows, "semantic_map.trustworthiness", modality)
    assert row["value"] == pytest.approx(np.mean(values), rel=1e-12)
    assert row["standard_error"] == pytest.approx(abs(values[0] - values[1]) / 2, rel=1e-9)  # sd/√2 of two
    assert (row["n"], row["d"], row["repeats"]) == (30, 512, 2) and row["note"] == "± over 2 starts of t-SNE"
    assert row["at"]["perplexity"] == {"image": 5, "text": 8}[modality]


def test_agreement_of_both_maps(scenes, rows):
    disparity, shuffled = (at(rows, f"semantic_map.{name}", "both") for name in ("disparity", "disparity_shuffled"))
    expected = [procrustes(scenes.plane("text", k), scenes.plane("image", k))[2] for k in (0, 1)]
    assert disparity["value"] == pytest.approx(np.mean(expected), abs=1e-9)
    assert disparity["value"] <= 1 and 0.8 < shuffled["value"] < 1
    assert shuffled["note"] == "± over 20 shuffles of the pairs"


# --- the run


def test_every_setting_makes_its_own_cells(tmp_path):
    changes = ({}, {"pipeline": []}, {"perplexity_text": 9}, {"seed": 1}, {"limit": 20}, {"k": 4}, {"repeats": 3})
    keys = [{cell.key for cell in experiment(tmp_path, **change).cells()} for change in changes]
    assert {len(each) for each in keys} == {3} and len(set.union(*keys)) == 21


def test_pictures_are_those_of_the_rows(scenes):
    pictures = scenes._pictures()
    dataset = module.load_dataset(scenes.config.pairs)
    for row in (0, 17):  # the text of a row belongs to the image of the same row
        expected = dataset.image.load(row).tobytes()
        assert pictures["image"](row).tobytes() == pictures["text"](row).tobytes() == expected


def test_an_image_that_was_skipped_moves_no_other_picture(tmp_path):
    """Row 3 is the picture at index 4, where that at index 1 could not be read."""
    planned = experiment(tmp_path)
    kept = np.delete(np.arange(30), 1)
    planned.sets.embeddings["image"] = planned.sets.embeddings["image"].take(kept)
    dataset = module.load_dataset(planned.config.pairs)
    assert planned._pictures()["image"](3).tobytes() == dataset.image.load(4).tobytes()


# --- what is refused


def test_too_few_items_for_the_perplexity_or_the_neighbors(tmp_path):
    with pytest.raises(InputError, match="t-SNE of 30 text rows has perplexity 50"):
        rows_of(experiment(tmp_path, perplexity_text=50))
    with pytest.raises(InputError, match="trustworthiness of 30 rows has k = 15"):
        rows_of(experiment(tmp_path, k=15))


def test_a_single_modality_is_refused(stored, tmp_path):
    (tmp_path / "rows" / "text.npy").unlink()
    with pytest.raises(InputError, match="there are only image embeddings"):
        rows_of(experiment(tmp_path, **stored))


def test_stored_embeddings_are_drawn_as_points(stored, tmp_path):
    planned = experiment(tmp_path, **stored)
    names = ["semantic_images", "semantic_images_aligned", "semantic_texts_aligned"]
    assert [entry.name for entry in planned.figures(tmp_path / "figures")] == names
