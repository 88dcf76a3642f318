"""Both figures of the languages draw the points and numbers that they are given, and say where these come from."""

from itertools import chain

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from clip_geometry_experiments.kit.figures import MARKERS
from clip_geometry_experiments.tyshchuk2023.multilingual.figures import ratio_dots, tell, umap_plane

pytestmark = pytest.mark.usefixtures("unrendered")

RNG = np.random.default_rng(11)


def ratio(value, error=None):
    return {"measure": "language_distance.ratio", "value": value, "standard_error": error}


RATIOS = {"de": ratio(0.9, 0.005), "fr": ratio(0.26, 0.004), "ru": ratio(1.03)}


def points(names, n=30, d=2):
    return [(name, RNG.normal(size=(n, d)) + k) for k, name in enumerate(names)]


def drawn(figure, start):
    """The artists whose group id begins so."""
    artists = chain(figure.axes[0].collections, figure.axes[0].lines)
    return {artist.get_gid(): artist for artist in artists if (artist.get_gid() or "").startswith(start)}


# --- the ratios


def test_ratios_are_drawn_nearest_first_with_their_errors():
    figure = ratio_dots(RATIOS, "en")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fr", "de", "ru"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first on top
    assert [text.get_text() for text in axes.texts] == ["0.2600 ± 0.0040", "0.9000 ± 0.0050", "1.03"]
    lines = [line for line in axes.lines if line.get_marker() in MARKERS]
    at = {float(line.get_xdata()[0]): float(line.get_ydata()[0]) for line in lines}
    assert at == {0.26: 0, 0.9: 1, 1.03: 2}
    (bar,) = axes.containers[1][2]
    assert bar.get_segments()[0][:, 0] == pytest.approx([0.895, 0.905])
    (chance,) = drawn(figure, "chance").values()
    assert set(chance.get_xdata()) == {1}
    assert axes.get_xlim()[0] == 0 and axes.get_xlim()[1] > 1.03
    assert "en caption" in axes.get_xlabel()


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
