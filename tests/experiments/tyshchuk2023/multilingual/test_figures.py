"""Both figures of the languages draw the points and numbers that they are given, and say where these come from."""

from itertools import chain

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from sklearn.neighbors import KNeighborsClassifier

from clip_geometry.display.style import COLORS
from clip_geometry_experiments.kit.figures import MARKERS
from clip_geometry_experiments.report.gallery import save_drawings, save_figure
from clip_geometry_experiments.tyshchuk2023.multilingual import figures
from clip_geometry_experiments.tyshchuk2023.multilingual.figures import (
    draw_languages,
    languages_map,
    ratio_dots,
    tell,
    umap_plane,
)

pytestmark = pytest.mark.usefixtures("unrendered")

RNG = np.random.default_rng(11)
ELEVEN = ["en", "de", "fr", "es", "it", "ru", "pl", "tr", "ko", "zh", "jp"]


def ratio(value, error=None):
    return {"measure": "language_distance.ratio", "value": value, "standard_error": error}


RATIOS = {"de": ratio(0.9, 0.005), "fr": ratio(0.26, 0.004), "ru": ratio(1.03)}


def points(names, n=30, d=2):
    return [(name, RNG.normal(size=(n, d)) + k) for k, name in enumerate(names)]


def paired(names, n=30, d=2):
    """Language → rows of the first language and of its own."""
    (_, source), *targets = points(names, n, d)
    return {name: (source, rows) for name, rows in targets}


def drawn(figure, start):
    """The artists whose group id begins so."""
    artists = chain(figure.axes[0].collections, figure.axes[0].lines)
    return {artist.get_gid(): artist for artist in artists if (artist.get_gid() or "").startswith(start)}


def colors_of(collection):
    return [to_hex(color).upper() for color in collection.get_facecolors()]


# --- the map


def test_every_point_is_drawn_in_the_color_and_sign_of_its_language():
    given = points(ELEVEN)
    found = {}
    for gid, part in drawn(languages_map([given]), "points:").items():
        for at, color in zip(np.asarray(part.get_offsets()), colors_of(part), strict=True):
            found.setdefault((gid[-1], color), []).append(tuple(at))
    assert len(found) == 11
    for k, (_, rows) in enumerate(given):
        assert sorted(found[MARKERS[k % 4], COLORS[k]]) == sorted(map(tuple, rows))


def test_no_language_lies_on_top():
    """Points are drawn in mixed order: of two that share a sign, each is among the first and the last."""
    names = ELEVEN[:5]  # the first and the fifth are circles
    (circles,) = drawn(languages_map([points(names)]), "points:o").values()
    colors = colors_of(circles)
    assert set(colors[:15]) == set(colors[-15:]) == {COLORS[0], COLORS[4]}


@pytest.mark.parametrize("targets", [["de"], ["fr", "de"], ["fr", "de", "ru"], ELEVEN[1:]])
def test_every_pair_of_languages_has_a_panel_of_its_own(targets):
    planes = [points(["en", name]) for name in targets]
    figure = languages_map(planes)
    shown = [axes for axes in figure.axes if axes.axison]
    names = {"en": "English", "de": "German", "fr": "French", "ru": "Russian"}
    assert [axes.get_title("left") for axes in shown] == [f"{names.get(name, name)}–English" for name in targets]
    for axes, plane in zip(shown, planes, strict=True):
        at = np.concatenate([np.asarray(part.get_offsets()) for part in axes.collections])
        assert sorted(map(tuple, at)) == sorted(tuple(row) for _, rows in plane for row in rows)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["en", *targets]


def test_the_legend_lies_beside_the_panel_and_tells_44_languages_apart(tmp_path):
    names = [f"language {k}" for k in range(44)]
    figure = languages_map([points(names, n=2)])
    keys = {(key.get_marker(), key.get_color()) for key in figure.legends[0].legend_handles}
    assert len(keys) == 44
    figure = languages_map([points(ELEVEN)])
    save_figure(figure, tmp_path, "map")  # lays it out
    panel, legend = figure.axes[0].get_window_extent(), figure.legends[0].get_window_extent()
    assert legend.x0 >= panel.x1 and legend.y0 >= 0
    assert figure.axes[0].get_xlabel() == "UMAP 1" and len(figure.axes[0].get_xticks()) == 0


def test_many_points_become_a_bitmap():
    few, many = (drawn(languages_map([points(["en"], n=n)]), "points:")["points:o"] for n in (600, 601))
    assert not few.get_rasterized() and many.get_rasterized()


# --- the ratios


def test_ratios_are_drawn_nearest_first_with_their_errors():
    figure = ratio_dots(RATIOS, "en")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fr", "de", "ru"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first on top
    assert [text.get_text() for text in axes.texts] == ["0.2600 ± 0.0040", "0.9000 ± 0.0050", "1.030"]
    lines = [line for line in axes.lines if line.get_marker() in MARKERS]
    at = {float(line.get_xdata()[0]): float(line.get_ydata()[0]) for line in lines}
    assert at == {0.26: 0, 0.9: 1, 1.03: 2}
    (bar,) = axes.containers[1][2]
    assert bar.get_segments()[0][:, 0] == pytest.approx([0.895, 0.905])
    (chance,) = drawn(figure, "chance").values()
    assert set(chance.get_xdata()) == {1}
    assert axes.get_xlim()[0] == 0 and axes.get_xlim()[1] > 1.03
    assert "en caption" in axes.get_xlabel()


def test_both_figures_give_a_language_the_same_color_and_sign():
    lines = [line for line in ratio_dots(RATIOS, "en").axes[0].lines if line.get_marker() in MARKERS]
    of_ratios = {float(line.get_xdata()[0]): (line.get_marker(), line.get_color()) for line in lines}
    figure = languages_map([points(["en", name]) for name in RATIOS])
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    keys = [(key.get_marker(), key.get_color()) for key in figure.legends[0].legend_handles]
    of_map = dict(zip(texts, keys, strict=True))
    assert all(of_ratios[row["value"]] == of_map[name] for name, row in RATIOS.items())


# --- the entries


@pytest.fixture
def flat(monkeypatch):
    """The first two columns in place of UMAP."""
    monkeypatch.setattr(figures, "umap_plane", lambda sets, seed: [(name, rows[:, :2]) for name, rows in sets])


def draw(pairs, folder, **options):
    drawn = draw_languages(pairs, RATIOS, source="en", seed=3)
    return save_drawings(drawn, folder, origin="a model; a set; raw; seed 3.", **options)


def test_figures_are_saved_and_captions_say_n_model_data_pipeline_and_seed(tmp_path, flat):
    plane, ratios = draw(paired(["en", "de", "fr", "ru"], n=20, d=5), tmp_path, prefix="01-", group="a run")
    for entry, name in ((plane, "01-languages_umap"), (ratios, "01-language_ratio")):
        assert entry.name == name and entry.group == "a run"
        assert entry.svg_path == tmp_path / f"{name}.svg" and entry.svg_path.exists() and entry.png_path.exists()
        assert entry.caption.endswith("a model; a set; raw; seed 3.")
    assert plane.caption.startswith("Each language with the en captions that it translates, on a plane of their own")
    assert "Captions with a translation: 20 in each of de, fr, ru; a model" in plane.caption and plane.wide
    assert ratios.caption.startswith("Nearest to en is fr (0.2600 ± 0.0040); farthest ru (1.030). Mean distance")


def test_languages_within_two_errors_of_an_end_tie_with_it(tmp_path):
    def caption(**ratios):
        return draw_languages({}, ratios, source="en", names=("ratios",))["language_ratio"].caption

    fr, de, ru = ratio(0.044, 0.0015), ratio(0.067, 0.0038), ratio(0.070, 0.0028)
    ends = "Nearest to en is fr (0.0440 ± 0.0015); farthest de (0.0670 ± 0.0038) and ru (0.0700 ± 0.0028), a tie. Mean"
    assert caption(fr=fr, de=de, ru=ru).startswith(ends)
    assert caption(de=de, ru=ru).startswith("Mean distance")  # no order
    assert caption(de=de).startswith("Mean distance")


def test_unequal_counts_are_told_and_one_language_has_no_rank(tmp_path, flat):
    pairs = paired(["en", "de"], n=20, d=3) | paired(["en", "fr"], n=5, d=3)
    plane, ratios = save_drawings(draw_languages(pairs, {"de": ratio(0.5, 0.01)}, source="en"), tmp_path)
    assert "Captions with a translation: 20 in de and 5 in fr" in plane.caption
    assert ratios.caption.startswith("Mean distance of a caption")


def test_more_rows_than_umap_takes_soon_are_drawn_at_random(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "MAX_ROWS", 50)
    seen = []
    monkeypatch.setattr(figures, "umap_plane", lambda sets, seed: seen.append(sets) or sets)
    pairs = paired(["en", "de", "fr"], n=40)
    plane, _ = draw(pairs, tmp_path)
    assert [[name for name, _ in kept] for kept in seen] == [["en", "de"], ["en", "fr"]]
    for (x, y), ((_, a), (_, b)) in zip(pairs.values(), seen, strict=True):
        assert len(a) == len(b) == 12 and len({tuple(row) for row in a}) == 12
        translated = {tuple(one): tuple(other) for one, other in zip(x, y, strict=True)}
        assert [translated[tuple(row)] for row in a] == list(map(tuple, b))
    assert ", 24 of 80, drawn at random; a model" in plane.caption


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


@pytest.mark.parametrize("n", [2, 5, 10])
def test_umap_of_a_handful_of_rows(n):
    for name, rows in umap_plane(points(["en", "de"], n=n, d=4)):
        assert rows.shape == (n, 2) and np.isfinite(rows).all(), name


def test_umap_of_equal_rows():
    plane = umap_plane([("en", np.ones((15, 4))), ("de", np.ones((15, 4)))])
    assert all(np.isfinite(rows).all() for _, rows in plane)


def test_umap_leaves_torch_its_threads():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        umap_plane(points(["en", "de"], n=15, d=4))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def told_rows(silhouette):
    ratios = {"de": 0.087, "ru": 0.31}
    rows = [{**ratio(value), "at": {"source": "en", "language": name}} for name, value in ratios.items()]
    return [*rows, {"measure": "language_silhouette", "value": silhouette, "at": {"language": "all"}}]


def test_what_is_told_of_languages():
    distances, silhouette = tell(told_rows(-0.004))
    assert distances.startswith(
        "Translations lie at 0.087 (German) and 0.31 (Russian) of the distance between the English"
    )
    assert silhouette == (
        "With the language as label the silhouette is −0.004: by this measure, the languages form no clusters. A "
        "linear probe may still tell them apart."
    )
    assert tell(told_rows(0.4))[1].endswith("the silhouette is 0.40: the languages form clusters.")
    assert tell([]) == []


def test_only_the_pictures_that_are_asked_for_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "umap_plane", lambda *_, **__: pytest.fail("UMAP was run"))
    drawn = draw_languages(paired(["en", "de"], d=5), {"de": ratio(0.5, 0.01)}, source="en", names=["ratios"])
    (entry,) = save_drawings(drawn, tmp_path, origin="Data")
    assert entry.name == "language_ratio" and [path.name for path in tmp_path.glob("*.svg")] == ["language_ratio.svg"]
