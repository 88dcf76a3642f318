"""The Monge map between Gaussians: POT's, and what theory says of it."""

import numpy as np
import ot
import pytest

from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.transforms import GaussianTransport, Pipeline, RankWarning
from support.clouds import cone, rotation


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    return cone(60, 5, rng), cone(80, 5, rng) @ rotation(5, rng) * [3, 1, 1, 0.2, 2] + 4


def covariance(x):
    return np.cov(x.T, ddof=0)


@pytest.mark.parametrize("ridge", [0.0, 0.1, 2.0])
def test_the_map_is_pots(sets, ridge):
    source, target = sets
    s, t = map(covariance, sets)
    added = ridge * (np.trace(s) + np.trace(t)) / 10 * np.eye(5)
    a, b = ot.gaussian.bures_wasserstein_mapping(source.mean(0), target.mean(0), s + added, t + added)
    fitted = GaussianTransport(ridge).fit(source, target)
    others = cone(9, 5, np.random.default_rng(1))
    assert np.abs(fitted.W_ - a).max() < 1e-10
    assert np.abs(fitted.transform(others) - (others @ a + b)).max() < 1e-10


def test_mean_and_covariance_become_the_targets(sets):
    source, target = sets
    mapped = GaussianTransport().fit(source, target).transform(source)
    assert np.allclose(mapped.mean(0), target.mean(0)) and np.allclose(covariance(mapped), covariance(target))


def test_it_moves_rows_least(sets):
    """A is symmetric and positive semidefinite, and the mean squared move is the Bures-Wasserstein distance."""
    source, target = sets
    fitted = GaussianTransport().fit(source, target)
    assert np.allclose(fitted.W_, fitted.W_.T) and np.linalg.eigvalsh(fitted.W_).min() > 0
    moved = np.square(fitted.transform(source) - source).sum(1).mean()
    distance = ot.gaussian.bures_wasserstein_distance(
        source.mean(0), target.mean(0), covariance(source), covariance(target)
    )
    assert moved == pytest.approx(distance**2, rel=1e-9)


def test_known_maps(sets):
    source, _ = sets
    assert np.allclose(GaussianTransport().fit(source, source[::-1]).W_, np.eye(5), atol=1e-9)  # equal sets
    shifted = GaussianTransport().fit(source, source + 3)
    assert np.allclose(shifted.transform(source), source + 3, atol=1e-9)
    stretch = np.diag([2.0, 1, 0.5, 3, 1])
    assert np.allclose(GaussianTransport().fit(source, source @ stretch).W_, stretch, atol=1e-9)
    assert np.allclose(GaussianTransport(1e9).fit(source, 3 * source).W_, np.eye(5), atol=1e-6)


def test_directions_without_rows_stay(sets):
    source, target = sets
    with pytest.warns(RankWarning, match="source rows that span 2 of 5 directions, .* completed by the identity"):
        fitted = GaussianTransport().fit(source[:3], target)
    beside = np.linalg.svd(source[:3] - source[:3].mean(0))[2][2:]
    assert fitted.rank_ == 2 and np.allclose(beside @ fitted.W_, beside, atol=1e-12)
    with pytest.warns(RankWarning):
        equal = GaussianTransport().fit(np.tile(source[0], (4, 1)), target)
    assert np.allclose(equal.transform(source), source - source[0] + target.mean(0))


def test_streamed_rows_give_the_same_map(sets):
    source, target = sets
    streamed = GaussianTransport().fit(*(StreamedRows.of(x, name="x") for x in sets))
    assert np.allclose(streamed.W_, GaussianTransport().fit(source, target).W_, atol=1e-10)


def test_it_is_an_affine_map_of_pipelines(sets):
    source, target = sets
    fitted = Pipeline("normalize,gaussian_transport(0.1)[text-to-image],normalize").fit(
        {"image": target, "text": source}
    )
    affine = fitted.affine("text")
    assert affine.unit_rows_in and affine.renormalise
    assert np.allclose(affine(source), fitted.transform({"text": source})["text"])
