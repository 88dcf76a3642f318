"""Figures draw the numbers that numpy computes, with the labels of the golden list."""

import numpy as np
import pytest

from clip_geometry.registry import InputError
from clip_geometry_experiments.report.figures import KINDS, cosine_distributions, singular_directions, singular_plane

RNG = np.random.default_rng(7)
IMAGE = RNG.standard_normal((40, 8)) + 0.7
TEXT = RNG.standard_normal((30, 8)) - np.linspace(0, 1.3, 8)
PAIRS = (np.arange(25), np.arange(25)[::-1])
COSINES = [np.tanh(RNG.standard_normal(50) + shift) for shift in (0.5, 0.1, 0.8, 0.9)]


def drawn(figure, gid):
    """The artist of the only panel with this group id."""
    (artist,) = [artist for artist in figure.axes[0].get_children() if artist.get_gid() == gid]
    return artist


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_singular_directions_are_those_of_the_stacked_uncentered_rows():
    figure = singular_directions({"image": IMAGE, "text": TEXT}, PAIRS)
    _, values, vt = np.linalg.svd(np.vstack([IMAGE, TEXT]))
    for name, rows in (("image", IMAGE), ("text", TEXT)):
        points = drawn(figure, f"points:{name}").get_offsets()
        np.testing.assert_allclose(np.abs(points), np.abs(rows @ vt[:2].T), atol=1e-9)
        mean = drawn(figure, f"mean:{name}").get_xydata()[0]
        np.testing.assert_allclose(mean, points.mean(axis=0), atol=1e-12)
    _, shares = singular_plane(IMAGE, TEXT)
    np.testing.assert_allclose(shares, values[:2] ** 2 / (values**2).sum(), rtol=1e-10)


def test_signs_of_the_directions_do_not_depend_on_the_solver():
    plane, _ = singular_plane(IMAGE, TEXT)
    assert (np.vstack([IMAGE, TEXT]) @ plane).sum(axis=0)[0] > 0
    assert (IMAGE.mean(0) - TEXT.mean(0)) @ plane[:, 1] > 0
    mirrored, _ = singular_plane(-IMAGE, -TEXT)
    np.testing.assert_allclose(mirrored, -plane, atol=1e-12)


def test_cosine_densities_and_means():
    figure = cosine_distributions(dict(zip(KINDS, COSINES, strict=True)))
    for key, values in zip(("matching", "random", "image", "text"), COSINES, strict=True):
        data = drawn(figure, f"density:{key}").get_data()
        width = np.diff(data.edges)
        expected, _ = np.histogram(values, data.edges)
        np.testing.assert_allclose(data.values * width * len(values), expected, atol=1e-9)
        assert expected.sum() == len(values)
        np.testing.assert_allclose(drawn(figure, f"mean:{key}").get_xdata(), values.mean())
        assert f"mean {values.mean():.2f}" in legend(figure)[("matching", "random", "image", "text").index(key)]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: singular_plane(IMAGE[:, :1]), "1 columns; expected a common number"),
        (lambda: singular_plane(IMAGE, TEXT[:, :5]), "5 and 8 columns"),
        (lambda: singular_directions({"text": np.zeros((4, 3))}), "all rows of text are zero"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_sentence(draw, message):
    with pytest.raises(InputError, match=message):
        draw()
