import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.explorer.points import choose_points
from clip_geometry.measuring.given import given_sets


def test_a_sample_keeps_pairs_together(sets):
    points = choose_points(given_sets(sets), pipeline="", limit=100, seed=0)
    ids = [set(each.item_id) for each in points.sets.values()]
    assert len(points) == 100 and ids[0] == ids[1] and points.keyed_by == "pairs"
    notes = cg.explore(sets, repairs=[], limit=100, umap=False).notes
    assert notes[0] == "A random sample is shown, 50 of 120 images and 50 of 120 texts."


def test_several_captions_of_an_image(sets):
    image, text = sets["image"][:20], sets["text"][:100]
    ids = {"image": [str(k) for k in range(20)], "text": [str(k // 5) for k in range(100)]}
    points = choose_points(given_sets(sets | {"image": image, "text": text}, ids=ids), pipeline="", limit=60, seed=0)
    assert len(points) <= 60
    shown = {name: set(each.item_id) for name, each in points.sets.items()}
    assert shown["image"] == shown["text"]


def test_rows_are_unit_and_go_through_the_pipeline(sets):
    points = choose_points(given_sets(sets), pipeline="normalize,center[each]", limit=1000, seed=0)
    for name, x in points.rows.items():
        assert np.linalg.norm(x, axis=1) == pytest.approx(1, abs=1e-6)
        unit = sets[name] / np.linalg.norm(sets[name], axis=1, keepdims=True)
        centered = unit - unit.mean(0)
        assert x == pytest.approx(centered / np.linalg.norm(centered, axis=1, keepdims=True), abs=1e-5)


def test_half_of_the_items_are_held_out(sets):
    points = choose_points(given_sets(sets), pipeline="", limit=1000, seed=0)
    assert points.held_out.sum() == 120 and len(points.fit["image"]) == 60
    held = points.held_out.reshape(2, 120)
    assert np.array_equal(held[0], held[1])  # an image and its text


def test_the_rows_of_all_points_have_to_fit_into_the_memory(sets, monkeypatch):
    """Three times in float64. Of more rows than the limit, only the sample counts."""
    given, dim = given_sets(sets), sets["image"].shape[1]
    for limit, points in ((1000, 240), (100, 100)):
        monkeypatch.setattr("clip_geometry.memory.memory", lambda points=points: 24 * dim * points - 1)
        with pytest.raises(cg.InputError, match="the points, with their rows before and after a repair, take"):
            choose_points(given, pipeline="", limit=limit, seed=0)
        monkeypatch.setattr("clip_geometry.memory.memory", lambda points=points: 24 * dim * points)
        assert len(choose_points(given, pipeline="", limit=limit, seed=0)) == points


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"image": np.eye(3), "text": np.eye(4)}, "one plane needs rows of one dimension"),
        ({"image": np.eye(3)[:1]}, "image has 1 row; expected at least 2"),
        ({"image": np.vstack([np.eye(3)[:1], np.zeros((2, 3))])}, r"the image set has a zero row \(row 1\)"),
    ],
)
def test_errors(given, says):
    with pytest.raises(cg.InputError, match=says):
        cg.explore(given)
