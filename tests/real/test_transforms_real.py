"""Transforms on real CLIP embeddings: the numbers of FORMULAS.md and papers/README A.3."""

import json
from typing import NamedTuple

import numpy as np
import pytest

from clip_geometry import Pipeline
from clip_geometry.transforms import PCA, Procrustes, RankWarning
from support.clouds import unit

SHIPS = ("boat", "cargo_ship", "cruise_ship")  # LVIS has no "ship"


class Cifar10(NamedTuple):
    image: np.ndarray
    labels: np.ndarray
    names: np.ndarray  # (10, d) text embeddings of the class names
    lvis: np.ndarray
    prompts: np.ndarray  # of CIFAR-100's classes


@pytest.fixture(scope="module")
def cifar10(data):
    folder, texts = data / "embeddings/cifar10-500-clip-vit-b32", data / "embeddings/class-names-clip-vit-b32"
    lvis = unit(np.load(texts / "lvis.npy").astype(float))
    row = {entry["name"]: k for k, entry in enumerate(json.loads((texts / "lvis.json").read_text()))}
    rows = {"ship": [row[name] for name in SHIPS], "automobile": [row["car_(automobile)"]]}
    classes = json.loads((folder / "classes.json").read_text())
    names = unit(np.array([lvis[rows.get(name) or [row[name]]].mean(0) for name in classes]))
    image = unit(np.load(folder / "image.npy").astype(float))
    return Cifar10(image, np.load(folder / "labels.npy"), names, lvis, np.load(texts / "cifar100.npy").astype(float))


def hits(image, names, labels):
    return (unit(image) @ unit(names).T).argmax(1) == labels


def recall_at_1(image, text):
    return float(hits(image, text, np.arange(len(text))).mean())


def zero_shot(cifar10, fitted_image, fitted_text):
    return float(
        hits(fitted_image.transform(cifar10.image), fitted_text.transform(cifar10.names), cifar10.labels).mean()
    )


@pytest.mark.parametrize(("center", "expected"), [(False, 0.872), (True, 0.644)])
def test_pca_90_fitted_on_the_prompts(cifar10, center, expected):
    pca = PCA(90, center=center).fit(cifar10.prompts)
    assert zero_shot(cifar10, pca, pca) == pytest.approx(expected, abs=5e-4)


def test_whitening_128_on_coco500(coco500):
    """R@1 of captions for an image: raw .552, one whitening for both .420, one for each chance (.000)."""
    sets = dict(zip(("image", "text"), coco500, strict=True))

    def recall(steps):
        return recall_at_1(*Pipeline(steps).fit(sets).transform(sets).values())

    assert recall("normalize") == pytest.approx(0.552, abs=5e-4)
    assert recall("whiten(128)[pooled]") == pytest.approx(0.420, abs=5e-4)
    assert recall("whiten(128)[each]") < 0.005
    assert "write whiten(128)[pooled]" in (Pipeline("normalize,whiten(128)").fit(sets).refusal or "")
    x, y = (Pipeline("whiten(128)[each]").fit(sets).transform(sets)[side] for side in ("image", "text"))
    rng = np.random.default_rng(0)
    draws = [recall_at_1(x, y * rng.choice([-1, 1], 128)) for _ in range(40)]
    assert np.mean(draws) == pytest.approx(1 / 500, abs=2e-3)


@pytest.fixture(scope="module")
def turned(cifar10):
    """Procrustes from the images of the first five classes to their names: 5 different names, rank 5 of 512."""
    known = cifar10.labels < 5
    found = {}
    for completion in ("identity", "lapack"):
        with pytest.warns(RankWarning, match="pairs of rank 5 in dimension 512"):
            found[completion] = Procrustes(completion).fit(cifar10.image[known], cifar10.names[cifar10.labels[known]])
    return found


def test_completions_differ_on_new_classes_only(cifar10, turned):
    """All ten names are candidates: .462 of the new classes against .000, and .937 of the known ones both times."""
    known = cifar10.labels < 5
    for completion, expected in (("identity", 0.462), ("lapack", 0.0)):
        found = hits(turned[completion].transform(cifar10.image), cifar10.names, cifar10.labels)
        assert found[~known].mean() == pytest.approx(expected, abs=5e-4)
        assert found[known].mean() == pytest.approx(0.937, abs=5e-4)
    assert hits(cifar10.image, cifar10.names, cifar10.labels)[~known].mean() > 0.85


def test_completions_have_the_same_training_error(cifar10, turned):
    known = cifar10.labels < 5
    source, target = cifar10.image[known], cifar10.names[cifar10.labels[known]]
    errors = [np.linalg.norm(found.transform(source) - target) for found in turned.values()]
    assert errors[0] == pytest.approx(errors[1], rel=1e-10)
    for found in turned.values():
        assert np.abs(found.W_.T @ found.W_ - np.eye(512)).max() < 1e-10
