"""Transforms on real CLIP embeddings: the numbers of FORMULAS.md and papers/README A.3."""

import json
from typing import NamedTuple

import numpy as np
import pytest

from clip_geometry.transforms import PCA, Pipeline, Procrustes, RankWarning, Whiten
from clip_geometry.transforms.paired import nearest_orthogonal

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


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def hits(image, names, labels):
    return (unit(image) @ unit(names).T).argmax(1) == labels


def recall_at_1(image, text):
    return float(hits(image, text, np.arange(len(text))).mean())


def zero_shot(cifar10, fitted_image, fitted_text):
    return float(
        hits(fitted_image.transform(cifar10.image), fitted_text.transform(cifar10.names), cifar10.labels).mean()
    )


def test_raw_zero_shot(cifar10):
    assert hits(cifar10.image, cifar10.names, cifar10.labels).mean() == 0.872


@pytest.mark.parametrize(("center", "expected"), [(False, 0.872), (True, 0.644)])
def test_pca_90_fitted_on_the_prompts(cifar10, center, expected):
    pca = PCA(90, center=center).fit(cifar10.prompts)
    assert zero_shot(cifar10, pca, pca) == pytest.approx(expected, abs=5e-4)


def test_pca_of_each_modality_by_itself_is_chance(cifar10):
    """FORMULAS' .012 is one draw: the signs of the axes are arbitrary, and over random signs the accuracy is chance."""
    image, text = PCA(128).fit(cifar10.image), PCA(128).fit(cifar10.lvis)
    assert zero_shot(cifar10, image, text) < 0.02
    x, y = image.transform(cifar10.image), text.transform(cifar10.names)
    rng = np.random.default_rng(0)
    draws = [hits(x, y * rng.choice([-1, 1], 128), cifar10.labels).mean() for _ in range(200)]
    assert np.mean(draws) == pytest.approx(0.1, abs=0.02)
    assert min(draws) < 0.012 and max(draws) < 0.3


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
    draws = [recall_at_1(x, y * rng.choice([-1, 1], 128)) for _ in range(200)]
    assert np.mean(draws) == pytest.approx(1 / 500, abs=1e-3)


def test_whitened_covariance_is_the_identity(coco500):
    for rows in coco500:
        white = Whiten(499).fit(rows)
        assert np.abs(np.cov(white.transform(rows).T) - np.eye(499)).max() < 1e-6
        assert white.rank_ == 499  # 500 rows lose one direction to their mean


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


def test_the_nearest_completion_is_the_nearest(cifar10, turned):
    known = cifar10.labels < 5
    u, _, vt = np.linalg.svd(cifar10.image[known].T @ cifar10.names[cifar10.labels[known]])
    ours = turned["identity"].W_
    nearest = np.linalg.norm(ours - np.eye(512))
    assert nearest < 0.25 * np.linalg.norm(turned["lapack"].W_ - np.eye(512))
    rng = np.random.default_rng(0)
    q = u[:, 5:].T @ ours @ vt[5:].T
    for step in (1e-3, 1e-2, 1.0):
        other = u[:, :5] @ vt[:5] + u[:, 5:] @ nearest_orthogonal(q + step * rng.normal(size=q.shape)) @ vt[5:]
        assert np.linalg.norm(other - np.eye(512)) > nearest


@pytest.mark.parametrize("direction", ["image-to-text", "text-to-image"])
def test_the_same_through_a_pipeline_and_a_file(cifar10, tmp_path, direction):
    known = np.flatnonzero(cifar10.labels < 5)
    sets = {"image": cifar10.image, "text": cifar10.names}
    with pytest.warns(RankWarning):
        fitted = Pipeline(f"procrustes[{direction}]").fit(sets, (known, cifar10.labels[known]))
    fitted.save(tmp_path / "map.safetensors")
    moved = Pipeline.load(tmp_path / "map.safetensors").transform(sets)
    found = hits(moved["image"], moved["text"], cifar10.labels)
    assert found[cifar10.labels >= 5].mean() == pytest.approx(0.462, abs=5e-4)


def test_least_squares_on_few_classes_has_minimum_norm(cifar10):
    """Ten different names for a 512-d source: every other exact solution is longer."""
    from clip_geometry.transforms import LeastSquares

    source, target = cifar10.names, np.array([cifar10.image[cifar10.labels == k].mean(0) for k in range(10)])
    with pytest.warns(RankWarning, match="source rows of rank 10 in dimension 512"):
        found = LeastSquares().fit(source, target)
    assert np.allclose(found.W_, np.linalg.pinv(source) @ target, atol=1e-9)
    assert np.allclose(found.transform(source), target, atol=1e-9)
