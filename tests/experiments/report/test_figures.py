"""Figures draw the numbers that numpy computes, with the labels of the golden list."""

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from clip_geometry.display.style import COLOR
from clip_geometry.registry import InputError
from clip_geometry_experiments.report import figures
from clip_geometry_experiments.report.figures import (
    coordinate_spread,
    cosine_distributions,
    relative_singular_values,
    singular_directions,
    singular_plane,
    singular_value_decay,
)
from clip_geometry_experiments.report.gallery import save_figure

RNG = np.random.default_rng(7)
IMAGE = RNG.standard_normal((40, 8)) + 0.7
TEXT = RNG.standard_normal((30, 8)) - np.linspace(0, 1.3, 8)
PAIRS = (np.arange(25), np.arange(25)[::-1])
COSINES = [np.tanh(RNG.standard_normal(50) + shift) for shift in (0.5, 0.1, 0.8, 0.9)]


def svd(rows):
    """Singular values over the largest, by numpy."""
    values = np.linalg.svd(rows, compute_uv=False)
    return values / values[0]


FIGURES = {
    "singular_directions": lambda: singular_directions(IMAGE, TEXT, PAIRS),
    "singular_value_decay": lambda: singular_value_decay(svd(IMAGE), svd(TEXT)),
    "cosine_distributions": lambda: cosine_distributions(*COSINES),
    "coordinate_spread": lambda: coordinate_spread(IMAGE.std(0), TEXT.std(0)),
    "coordinate_spread with means": lambda: coordinate_spread(
        IMAGE.std(0), TEXT.std(0), image_mean=IMAGE.mean(0), text_mean=TEXT.mean(0)
    ),
}
GOLDEN_LABELS = {
    "singular_directions": ("first singular direction", "second singular direction"),
    "singular_value_decay": ("index of the singular value", "singular value / largest"),
    "cosine_distributions": ("cosine similarity", "density"),
    "coordinate_spread": ("rank of the coordinate", "standard deviation"),
    "coordinate_spread with means": ("rank of the coordinate", "standard deviation, |mean|"),
}
ONE_MODALITY = {
    "singular_directions": lambda image, text: singular_directions(image, text),
    "singular_value_decay": lambda image, text: singular_value_decay(
        *(None if rows is None else svd(rows) for rows in (image, text))
    ),
    "coordinate_spread": lambda image, text: coordinate_spread(
        *(None if rows is None else rows.std(0) for rows in (image, text))
    ),
}


def drawn(figure, gid):
    """The artist of the only panel with this group id."""
    (artist,) = [artist for artist in figure.axes[0].get_children() if artist.get_gid() == gid]
    return artist


def gids(figure):
    return {artist.get_gid() for artist in figure.axes[0].get_children()} - {None}


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize("name", FIGURES)
def test_axes_carry_the_labels_of_the_golden_list(name):
    axes, *_ = FIGURES[name]().axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == GOLDEN_LABELS[name]


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_sticks_out_of_the_figure(name):
    figure = FIGURES[name]()
    figure.draw_without_rendering()
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert box.x0 >= -0.01 and box.y0 >= -0.01 and box.x1 <= width + 0.01 and box.y1 <= height + 0.01


def test_singular_directions_are_those_of_the_stacked_uncentered_rows():
    figure = singular_directions(IMAGE, TEXT, PAIRS)
    _, values, vt = np.linalg.svd(np.vstack([IMAGE, TEXT]))
    for name, rows in (("image", IMAGE), ("text", TEXT)):
        points = drawn(figure, f"points:{name}").get_offsets()
        np.testing.assert_allclose(np.abs(points), np.abs(rows @ vt[:2].T), atol=1e-9)
        mean = drawn(figure, f"mean:{name}").get_xydata()[0]
        np.testing.assert_allclose(mean, points.mean(axis=0), atol=1e-12)
    _, shares = singular_plane(IMAGE, TEXT)
    np.testing.assert_allclose(shares, values[:2] ** 2 / (values**2).sum(), rtol=1e-10)


@pytest.mark.parametrize("sets", [(IMAGE,), (IMAGE, TEXT)])
def test_beside_the_plane_is_the_spectrum_of_the_stacked_rows_on_a_linear_axis(sets):
    _, beside = singular_directions(*sets).axes
    (line,) = beside.lines
    np.testing.assert_allclose(line.get_ydata(), svd(np.vstack(sets)), rtol=1e-7)
    assert (beside.get_yscale(), beside.get_ylim()) == ("linear", (-0.1, 1.1))
    assert (beside.get_xlabel(), beside.get_ylabel()) == GOLDEN_LABELS["singular_value_decay"]


def test_signs_of_the_directions_do_not_depend_on_the_solver():
    plane, _ = singular_plane(IMAGE, TEXT)
    assert (np.vstack([IMAGE, TEXT]) @ plane).sum(axis=0)[0] > 0
    assert (IMAGE.mean(0) - TEXT.mean(0)) @ plane[:, 1] > 0
    mirrored, _ = singular_plane(-IMAGE, -TEXT)
    np.testing.assert_allclose(mirrored, -plane, atol=1e-12)


@pytest.mark.parametrize("sets", [(IMAGE, TEXT), (IMAGE,)])
def test_signs_are_kept_where_centering_leaves_only_rounding(sets):
    shared = np.concatenate(sets).mean(0)
    centered = [rows - shared for rows in sets]
    plane, _ = singular_plane(*centered)
    scaled, _ = singular_plane(*(rows[::-1] * 3 for rows in centered))
    np.testing.assert_allclose(scaled, plane, atol=1e-9)
    if len(sets) == 2:
        assert ((centered[0].mean(0) - centered[1].mean(0)) @ plane > 0).all()
    else:
        assert (plane[np.abs(plane).argmax(axis=0), [0, 1]] > 0).all()


def test_float16_rows_in_many_blocks_are_summed_in_float64():
    half = RNG.standard_normal((9000, 3)).astype(np.float16) * 20
    _, shares = singular_plane(half)
    values = np.linalg.svd(half.astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(shares, values[:2] ** 2 / (values**2).sum(), rtol=1e-10)


def test_pairs_are_joined_by_lines_between_their_members():
    figure = singular_directions(IMAGE, TEXT, PAIRS)
    segments = np.array(drawn(figure, "pairs").get_segments())
    ends = [drawn(figure, f"points:{name}").get_offsets() for name in ("image", "text")]
    np.testing.assert_allclose(segments, np.stack([ends[0][PAIRS[0]], ends[1][PAIRS[1]]], axis=1))
    assert legend(figure) == ["pair", "image", "text", "origin", "mean"]


def test_many_pairs_are_thinned_by_seed():
    rows, pairs = RNG.standard_normal((900, 4)), (np.arange(900), np.arange(900))

    def segments(**options):
        return np.array(drawn(singular_directions(rows, rows + 1, pairs, **options), "pairs").get_segments())

    assert len(segments()) == figures.MAX_PAIRS == 300
    np.testing.assert_array_equal(segments(seed=4), segments(seed=4))
    assert not np.array_equal(segments(seed=4), segments(seed=5))
    assert len(np.unique(segments(), axis=0)) == 300


def test_relative_singular_values_keep_their_digits():
    # a Gram matrix would lose everything below 1e-8
    steps = np.array([1, 0.3, 1e-3, 1e-6, 1e-9, 1e-11, 1e-12, 1e-13])
    left, right = (np.linalg.qr(RNG.standard_normal((n, 8)))[0] for n in (5000, 8))
    values = relative_singular_values(7.5 * (left * steps) @ right)
    np.testing.assert_allclose(values, steps, rtol=1e-2)
    np.testing.assert_allclose(values[:5], steps[:5], rtol=1e-5)
    np.testing.assert_allclose(relative_singular_values(IMAGE[:5].astype(np.float32)), svd(IMAGE[:5]), rtol=1e-6)


def test_singular_value_decay_draws_the_values():
    curves = {"image": svd(IMAGE), "text": svd(TEXT[:5]), "gaussian": svd(RNG.standard_normal((40, 8)))}
    figure = singular_value_decay(curves["image"], curves["text"], gaussian=curves["gaussian"])
    for name, values in curves.items():
        x, y = drawn(figure, f"decay:{name}").get_data()
        np.testing.assert_array_equal(x, np.arange(1, len(values) + 1))
        np.testing.assert_array_equal(y, values)
    assert figure.axes[0].get_yscale() == "log"
    assert legend(figure) == ["isotropic Gaussian", "image", "text"]


def test_rounding_below_the_floor_does_not_stretch_the_axis():
    low, high = singular_value_decay(np.array([1, 0.4, 0.02, 1e-9])).axes[0].get_ylim()
    assert 1e-3 < low < 0.02 and high > 1


def test_cosine_densities_and_means():
    figure = cosine_distributions(*COSINES)
    for key, values in zip(("matching", "random", "image", "text"), COSINES, strict=True):
        data = drawn(figure, f"density:{key}").get_data()
        width = np.diff(data.edges)
        expected, _ = np.histogram(values, data.edges)
        np.testing.assert_allclose(data.values * width * len(values), expected, atol=1e-9)
        assert expected.sum() == len(values)
        np.testing.assert_allclose(drawn(figure, f"mean:{key}").get_xdata(), values.mean())
        assert f"mean {values.mean():.2f}" in legend(figure)[("matching", "random", "image", "text").index(key)]


def test_cosines_of_one_modality_and_all_equal():
    figure = cosine_distributions(None, None, np.ones(3))
    assert gids(figure) == {"density:image", "mean:image"}
    assert legend(figure) == ["two images, mean 1.00"]


def test_coordinate_spread_is_sorted_and_names_the_rogue_coordinate():
    std, mean = IMAGE.std(0), np.array([0.3, -0.1, 0.2, -4.5, 0.6, 0.1, 0.05, 0.4])
    figure = coordinate_spread(std, image_mean=mean)
    np.testing.assert_array_equal(drawn(figure, "std:image").get_ydata(), np.sort(std)[::-1])
    np.testing.assert_array_equal(drawn(figure, "absmean:image").get_ydata(), np.sort(np.abs(mean))[::-1])
    assert drawn(figure, "name:image").get_text() == "coordinate 3"
    np.testing.assert_allclose(drawn(figure, "top:image").get_xydata(), [[1, 4.5]])


def test_names_of_two_rogue_coordinates_do_not_overlap():
    mean = np.eye(8)[2] + 0.01
    figure = coordinate_spread(IMAGE.std(0), TEXT.std(0), image_mean=mean, text_mean=np.roll(mean, 3) * 0.95)
    figure.draw_without_rendering()
    image, text = (drawn(figure, f"name:{name}") for name in ("image", "text"))
    assert (image.get_text(), text.get_text()) == ("coordinate 2", "coordinate 5")
    assert image.get_window_extent().y0 > text.get_window_extent().y1 - 1


@pytest.mark.parametrize("modality", ["image", "text"])
@pytest.mark.parametrize("name", ONE_MODALITY)
def test_one_modality_is_drawn_in_its_own_color(name, modality):
    image, text = (IMAGE, None) if modality == "image" else (None, TEXT)
    figure = ONE_MODALITY[name](image, text)
    other = {"image": "text", "text": "image"}[modality]
    assert {gid for gid in gids(figure) if gid.endswith(modality)}
    assert not {gid for gid in gids(figure) if gid.endswith(other)}
    assert not any(isinstance(artist, LineCollection) for artist in figure.axes[0].collections)
    colors = [line.get_color() for line in figure.axes[0].lines if (line.get_gid() or "").endswith(modality)]
    assert set(colors) == {COLOR[modality]}
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == GOLDEN_LABELS[name]


def test_two_rows_are_enough(tmp_path):
    image, text = IMAGE[:2], TEXT[:2]
    figures = [
        singular_directions(image, text, (np.arange(2), np.arange(2))),
        singular_value_decay(svd(image), svd(text)),
        cosine_distributions(COSINES[0][:2], COSINES[1][:2]),
        coordinate_spread(image.std(0), text.std(0)),
    ]
    for number, figure in enumerate(figures):
        save_figure(figure, tmp_path, str(number))
    x, y = drawn(figures[1], "decay:image").get_data()
    values = np.linalg.svd(image, compute_uv=False)
    np.testing.assert_allclose((x[-1], y[-1]), (2, values[1] / values[0]), rtol=1e-7)


def test_svg_stays_small_for_many_rows(tmp_path):
    many = RNG.standard_normal((20_000, 4))
    pairs = (np.arange(20_000), np.arange(20_000))
    for rows, index in ((many, pairs), (many[:600], (np.arange(600), np.arange(600)))):
        _, svg = save_figure(singular_directions(rows, rows + 2, index), tmp_path, "plane")
        assert svg.stat().st_size < 400_000


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: singular_directions(None), "neither image nor text"),
        (lambda: singular_value_decay(None), "neither image nor text"),
        (lambda: cosine_distributions(None), "no cosines"),
        (lambda: singular_directions(IMAGE[:, :1]), "1 columns; singular directions need"),
        (lambda: singular_directions(IMAGE, TEXT[:, :5]), "5 and 8 columns"),
        (lambda: relative_singular_values(np.zeros((4, 3)), name="text"), "all rows of text are zero"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_sentence(draw, message):
    with pytest.raises(InputError, match=message):
        draw()
