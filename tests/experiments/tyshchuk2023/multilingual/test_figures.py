"""UMAP planes of languages, and what is told of them."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from clip_geometry_experiments.tyshchuk2023.multilingual.figures import tell, umap_plane

pytestmark = pytest.mark.usefixtures("unrendered")

RNG = np.random.default_rng(11)


def ratio(value, error=None):
    return {"measure": "language_distance.ratio", "value": value, "standard_error": error}


def points(names, n=30, d=2):
    return [(name, RNG.normal(size=(n, d)) + k) for k, name in enumerate(names)]


# --- UMAP itself


@pytest.mark.slow
def test_umap_keeps_languages_that_lie_apart_apart_and_repeats():
    sets = [(name, rows + 8 * k) for k, (name, rows) in enumerate(points(["en", "de", "fr"], d=6))]
    plane = umap_plane(sets, seed=2**40 + 1)
    assert [(name, rows.shape) for name, rows in plane] == [("en", (30, 2)), ("de", (30, 2)), ("fr", (30, 2))]
    at, label = np.concatenate([rows for _, rows in plane]), np.repeat([0, 1, 2], 30)
    assert KNeighborsClassifier(3).fit(at, label).score(at, label) > 0.95
    again = umap_plane(sets, seed=2**40 + 1)
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(plane, again, strict=True))
    other = umap_plane(sets, seed=5)
    assert not np.allclose(other[0][1], plane[0][1])


def told_rows(silhouette):
    ratios = {"de": 0.087, "ru": 0.31}
    rows = [{**ratio(value), "at": {"source": "en", "language": name}} for name, value in ratios.items()]
    return [*rows, {"measure": "language_silhouette", "value": silhouette, "at": {"language": "all"}}]


def test_what_is_told_of_languages():
    distances, silhouette = tell(told_rows(-0.004))
    assert distances.startswith("Translations lie at 0.087 (German) and 0.31 (Russian) of the distance between the")
    assert "the silhouette is −0.004: by this measure, the languages form no clusters." in silhouette
    assert tell(told_rows(0.4))[1].endswith("the silhouette is 0.40: the languages form clusters.")
