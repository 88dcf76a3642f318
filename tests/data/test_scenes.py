"""The embedded data set: layouts, pictures, classes, data set contract. Its sentences: test_scenes_captions.py."""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from math import sqrt

import numpy as np
import pytest
from PIL import Image, ImageDraw

from clip_geometry.config import validate
from clip_geometry.data.scenes import GENERATOR_VERSION, HELD_OUT, ScenesConfig, class_names, load
from clip_geometry.data.scenes.draw import (
    BACKGROUNDS,
    CLASSES,
    COLOURS,
    DRAWING,
    FULL,
    MAIN_SIZES,
    PIXEL,
    PLACES,
    RADIUS,
    SEEN,
    SHAPES,
    SIDE,
    Thing,
    coverage,
    labels,
    outlines,
    render,
    sample,
)
from clip_geometry.registry import InputError

PICTURES = "e2f1cda7b0fad3b5"  # of the first pictures and captions of GENERATOR_VERSION 1


@cache
def layouts(n: int = 2000):
    return [sample(5, "train", k) for k in range(n)]


def picture_digest(n: int = 24) -> str:
    data = load(ScenesConfig(size=n, seed=3, split="train", captions_per_image=5, language="ru"))
    whole = hashlib.sha256()
    for k in range(n):
        whole.update(np.asarray(data.image.load(k)).tobytes())
        whole.update("".join(data.text.load(5 * k + j) for j in range(5)).encode())
    return whole.hexdigest()[:16]


def areas(scene):
    return [coverage(thing).sum() / FULL for thing in (scene.main, *scene.extras)]


# --- the same on every machine


def test_another_process_draws_the_same_bytes_and_they_are_the_recorded_ones():
    code = "import runpy, sys; print(runpy.run_path(sys.argv[1])['picture_digest']())"
    here = picture_digest()
    there = subprocess.run(
        [sys.executable, "-c", code, __file__],
        env={**os.environ, "PYTHONHASHSEED": "123"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == here
    assert (GENERATOR_VERSION, here) == (1, PICTURES), "pictures or captions changed: raise GENERATOR_VERSION"


def test_a_scene_does_not_depend_on_size_or_order_of_access():
    small, large = load(ScenesConfig(size=9)), load(ScenesConfig(size=700))
    first = [small.image.load(k).tobytes() for k in range(9)]
    again = [large.image.load(k).tobytes() for k in reversed(range(9))][::-1]
    assert first == again
    assert len(set(first)) == 9
    assert list(small.image.item_id) == list(large.image.item_id)[:9]
    assert (small.image.labels == large.image.labels[:9]).all()
    assert [small.text.load(k) for k in range(9)] == [large.text.load(k) for k in range(9)]


def test_labels_of_all_scenes_are_those_of_the_single_scenes():
    assert labels(5, "train", 2000).tolist() == [scene.main.label for scene in layouts()]


@pytest.mark.parametrize("other", [{"seed": 1}, {"split": "train"}, {"seed": 2**62 + 11}])
def test_seeds_and_splits_are_unrelated(other):
    one, two = load(ScenesConfig(size=800)), load(ScenesConfig(size=800, **other))
    assert abs((one.image.labels == two.image.labels).mean() - 1 / CLASSES) < 5 * sqrt(1 / CLASSES / 800)
    assert one.image.load(0).tobytes() != two.image.load(0).tobytes()
    assert not set(one.image.item_id) & set(two.image.item_id)


# --- what is drawn


def test_main_object_is_the_largest_and_nothing_overlaps():
    for scene in layouts()[:600]:
        main, *extras = areas(scene)
        assert main > 1.5 * max(extras, default=0)
        touched = sum((coverage(thing) > 0).astype(int) for thing in (scene.main, *scene.extras))
        assert touched.max() == 1
        assert coverage(scene.main)[[0, -1]].sum() == coverage(scene.main)[:, [0, -1]].sum() == 0


def test_every_object_has_its_named_colour_in_the_picture():
    named = {**DRAWING["colours"], **DRAWING["backgrounds"]}
    rgb = np.array(list(named.values()), dtype=float)
    for scene in layouts()[:300]:
        pixels = np.asarray(render(scene)).astype(float)
        masks = [(thing.colour, coverage(thing) == FULL) for thing in (scene.main, *scene.extras)]
        untouched = sum(coverage(thing) for thing in (scene.main, *scene.extras)) == 0
        for colour, mask in [*masks, (scene.background, untouched)]:
            if mask.sum() >= 6:
                mean = pixels[mask].mean(axis=0)
                assert list(named)[np.argmin(((rgb - mean) ** 2).sum(axis=1))] == colour


def test_the_main_object_lies_at_its_place():
    for scene in layouts()[:600]:
        touched = coverage(scene.main) > FULL // 2
        for axis, step in enumerate(PLACES[scene.place]):
            extent = np.flatnonzero(touched.any(axis=axis))
            offset = (extent[0] + extent[-1] + 1 - SIDE) / 2
            assert (abs(offset) <= 4.5) if step == 0 else (offset * step >= 5.5)


@pytest.mark.parametrize("shape", SHAPES)
def test_coverage_agrees_with_pillow_on_a_large_canvas(shape):
    scale = 16
    thing = Thing(SHAPES.index(shape) * 10, "large", 30 * PIXEL, 35 * PIXEL, 16 * PIXEL, 0, (0, 0, 0))
    canvas = Image.new("L", (SIDE * scale, SIDE * scale))
    starts, ends = outlines()[shape]
    closes = np.flatnonzero((starts[1:] != ends[:-1]).any(axis=1)) + 1
    for fill, ring in zip((255, 0), np.split(starts, closes), strict=False):
        points = (ring / RADIUS * 16 + (30, 35)) * scale - 0.5
        ImageDraw.Draw(canvas).polygon([tuple(point) for point in points], fill=fill)
    expected = np.asarray(canvas).reshape(SIDE, scale, SIDE, scale).mean(axis=(1, 3)) / 255
    # Pillow counts every pixel that the outline touches, hence a little more along the edge
    assert np.abs(coverage(thing) / FULL - expected).max() < 0.2
    assert coverage(thing).sum() / FULL == pytest.approx(expected.sum(), rel=0.03)


# --- classes


def test_classes_and_the_balance_of_the_held_out_ones():
    names = class_names()
    assert len(set(names)) == CLASSES == 80
    assert (names[0], names[13], names[79]) == ("red circle", "green square", "white crescent")
    assert len(set(HELD_OUT)) == 16
    assert sorted({*HELD_OUT, *SEEN}) == list(range(80))
    words = [names[label].split() for label in HELD_OUT]
    assert Counter(shape for _, shape in words) == dict.fromkeys(SHAPES, 2)
    by_colour = Counter(colour for colour, _ in words)
    assert set(by_colour) == set(COLOURS)
    assert set(by_colour.values()) == {1, 2}


def test_marginals_are_uniform():
    for options, drawn in [
        (range(CLASSES), labels(0, "train", 8000).tolist()),
        (MAIN_SIZES, [scene.main.size for scene in layouts()]),
        (PLACES, [scene.place for scene in layouts()]),
        (BACKGROUNDS, [scene.background for scene in layouts()]),
        (range(3), [len(scene.extras) for scene in layouts()]),
        (range(5), [scene.order[0] for scene in layouts()]),
        (SEEN, [thing.label for scene in layouts() for thing in scene.extras]),
    ]:
        counts, share = Counter(drawn), 1 / len(options)
        error = sqrt(len(drawn) * share * (1 - share))
        assert set(counts) == set(options)
        assert max(abs(counts[option] - len(drawn) * share) for option in options) < 4.5 * error


def test_filters_pass_over_scenes():
    everything = load(ScenesConfig(size=1000))
    seen = load(ScenesConfig(size=300, classes="seen"))
    held_out = load(ScenesConfig(size=150, classes="held_out"))
    assert len(seen.image) == 300
    assert len(held_out.image) == 150
    assert set(held_out.image.labels) == set(HELD_OUT)
    assert not set(seen.image.labels) & set(HELD_OUT)
    order = list(everything.image.item_id)
    for part in (seen, held_out):
        rows = [order.index(item) for item in part.image.item_id]
        assert rows == sorted(rows)
        assert (everything.image.labels[rows] == part.image.labels).all()
        assert everything.image.load(rows[20]).tobytes() == part.image.load(20).tobytes()
        assert everything.text.load(rows[20]) == part.text.load(20)


# --- the contract of data sets


def test_sides_share_ids_and_labels():
    data = load(ScenesConfig(size=7, captions_per_image=3, seed=4))
    assert data.image.item_id[6] == "scenes-test-4-000006"
    assert list(data.text.item_id) == [item for item in data.image.item_id for _ in range(3)]
    assert data.text.labels.tolist() == np.repeat(data.image.labels, 3).tolist()
    assert data.image.labels.dtype == np.int64
    image = data.image.load(2)
    assert (image.size, image.mode) == ((64, 64), "RGB")
    for k in range(21):
        assert data.class_names[data.text.labels[k]] in data.text.load(k)


def test_prompts_use_the_class_names_of_the_language():
    data = load(ScenesConfig(size=3, prompt="une photo : {}", language="fr", classes="seen"))
    assert data.text.pair_on == "label"
    assert data.text.labels.tolist() == list(range(80))
    assert data.text.load(32) == "une photo : étoile jaune"
    assert data.class_names[32] == "yellow star"


def test_the_revision_follows_version_and_vocabulary(monkeypatch):
    before = load(ScenesConfig(size=1)).revision
    monkeypatch.setattr("clip_geometry.data.scenes.GENERATOR_VERSION", GENERATOR_VERSION + 1)
    version = load(ScenesConfig(size=1)).revision
    monkeypatch.setattr("clip_geometry.data.scenes.vocabulary", lambda: {"en": {}})
    assert len({before, version, load(ScenesConfig(size=1)).revision}) == 3


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"split": "val"}, "split: unknown split 'val'; known are train, test"),
        ({"language": "es"}, "'es': input should be 'en', 'de', 'fr' or 'ru'"),
        ({"name": "scene"}, "'scene': input should be 'scenes'"),
        ({"size": 0}, "greater than or equal to 1"),
        ({"size": 2.5}, "integer"),
        ({"seed": -1}, "greater than or equal to 0"),
        ({"captions_per_image": 6}, "less than or equal to 5"),
        ({"classes": "unseen"}, "'seen'"),
        ({"captions": 2}, "captions_per_image"),
    ],
)
def test_wrong_configs_are_one_sentence(values, says):
    with pytest.raises(InputError, match=says):
        validate(ScenesConfig, values, "scenes")
