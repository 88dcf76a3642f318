"""Pictures of words in context: what is drawn is what was given, and captions say it."""

import numpy as np
import pytest

from clip_geometry.embeddings import Embeddings
from clip_geometry_experiments.cai2021.contextual.figures import (
    Point,
    cosines_figure,
    dimension_figure,
    draw_contextual,
    silhouettes_figure,
)
from clip_geometry_experiments.cai2021.contextual.planes import (
    KINDS,
    Plane,
    frequency_figure,
    kinds_figure,
    kinds_of,
)
from clip_geometry_experiments.report.gallery import save_drawings

pytestmark = pytest.mark.usefixtures("unrendered")


def by_gid(figure, gid):
    (artist,) = {id(each): each for each in figure.findobj(lambda artist: artist.get_gid() == gid)}.values()
    return artist


@pytest.mark.parametrize(
    ("word", "tag", "kind"),
    [
        (",", ",", "symbol"),
        ("``", "", "symbol"),
        ("-LRB-", "-LRB-", "symbol"),
        ("%", "NN", "symbol"),
        ("1990", "CD", "number"),
        ("ten", "CD", "number"),
        ("50-year-old", "JJ", "adjective, adverb"),
        ("1990", "", "number"),
        ("dogs", "NNS", "noun"),
        ("Dogs", "NNS-TL", "noun"),
        ("was", "BEDZ", "verb"),
        ("must", "MD", "verb"),
        ("n't", "RB", "adjective, adverb"),
        ("off", "RP", "function word"),
        ("the", "DT", "function word"),
        ("the", "", "word"),
        ("<unk>", "", "word"),
    ],
)
def test_kinds(word, tag, kind):
    assert kinds_of([word], [tag]) == [kind] and kind in KINDS


def test_words_without_tags_have_kinds():
    assert kinds_of(["dog", ".", "7"]) == ["word", "symbol", "number"]


def test_cosines_are_lines_over_the_layers():
    curves = {"inter": {0: Point(0.1), 2: Point(0.6)}, "adjusted inter": {0: Point(-0.1), 2: Point(0.0)}}
    figure = cosines_figure(curves)
    (axes,) = figure.axes
    lines = {container.get_label(): container.lines[0] for container in axes.containers}
    assert lines["between types"].get_xydata().tolist() == [[0, 0.1], [2, 0.6]]
    assert lines["between types, adjusted"].get_xydata().tolist() == [[0, -0.1], [2, 0.0]]
    assert lines["between types, adjusted"].get_linestyle() != lines["between types"].get_linestyle()
    assert axes.get_ylim()[0] < -0.1


def test_dimensions_have_bars_of_two_standard_errors():
    curves = {("euclidean", False): {1: Point(8, 0.5), 2: Point(9, 0.25)}, ("cosine", True): {1: Point(4), 2: Point(5)}}
    figure = dimension_figure({"among 100": curves, "among 10": curves})
    top, bottom = figure.axes
    assert top.get_title(loc="left") == "among 100" and bottom.get_xlabel() == "layer"
    plain, published = top.containers
    segments = plain.lines[2][0].get_segments()
    assert [segment[:, 1].tolist() for segment in segments] == [[7, 9], [8.5, 9.5]]
    assert bottom.get_ylim()[0] == 0 and top.get_ylim()[1] > 9  # of all panels
    assert published.get_label() == "cosine, as published" and published.lines[0].get_ydata().tolist() == [4, 5]


def test_the_best_k_is_marked_and_filled_where_it_is_good_enough():
    figure = silhouettes_figure([(0, {2: 0.05, 3: 0.08}), (1, {2: 0.3, 3: 0.2})], 0.1)
    first, second = by_gid(figure, "best:0"), by_gid(figure, "best:1")
    assert first.get_xydata().tolist() == [[3, 0.08]] and second.get_xydata().tolist() == [[2, 0.3]]
    assert first.get_markerfacecolor() == "white" and tuple(second.get_markerfacecolor()) != "white"
    assert by_gid(figure, "least").get_ydata() == [0.1, 0.1]


def planes(count, points=40):
    rng = np.random.default_rng(0)
    return [Plane(f"layer {k}", rng.normal(size=(points, 3)), (0.4, 0.2, 0.1)) for k in range(count)]


@pytest.mark.parametrize(("dimensions", "share"), [(2, "60%"), (3, "70%")])
def test_a_panel_for_each_layer_with_its_share_of_the_variance(dimensions, share):
    drawn = planes(4)
    figure = kinds_figure(drawn, ["symbol", "noun"] * 20, dimensions=dimensions)
    titles = [by_gid(figure, f"title:layer {k}").get_text() for k in range(4)]
    assert titles == [f"layer {k}, {share}" for k in range(4)] and len(figure.axes) == 4
    points = by_gid(figure, "points:layer 2")
    if dimensions == 2:
        assert np.allclose(points.get_offsets(), drawn[2].points[:, :2])
    else:
        assert np.allclose(np.stack(points._offsets3d, axis=1), drawn[2].points)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["symbol", "noun"]


def test_frequencies_are_on_a_log_scale():
    figure = frequency_figure(planes(2), np.geomspace(1, 1000, 40).astype(int))
    points = by_gid(figure, "points:layer 1")
    assert (points.norm.vmin, points.norm.vmax) == (1, 1000) and points.norm(31.62) == pytest.approx(0.5, abs=1e-3)


# --- from rows and embeddings


def row(measure, layer, value, **rest):
    return {"measure": measure, "value": value, "at": {"layer": layer, **rest.pop("at", {})}, "n": 200, **rest}


def rows():
    found = []
    for layer in (0, 1, 2):
        found += [
            row("inter_type_cosine", layer, 0.1 + layer / 10),
            row("intra_type_cosine", layer, 0.9 - layer / 10),
            row("contextual.adjusted_inter", layer, 0.01),
            row("contextual.adjusted_intra", layer, None),
            row("contextual.clusters", layer, 1 + layer),
            row("contextual.silhouette", layer, 0.12, tried={"2": 0.12, "3": 0.02}, n=90),
            row("lid", layer, 8.0, standard_error=0.1, null_value=55.5, at={"probes": 50}),
            row("lid[cosine]", layer, 7.0, standard_error=None, null_value=60.0, at={"sample": 90}),
        ]
    return [*found, row("lid", "mean", 8.0, at={"probes": 50})]


def words(layer, n=120, d=5, **columns):
    x = np.random.default_rng(layer).normal(size=(n, d)).astype(np.float32)
    return Embeddings(x, "text", metadata=columns)


def drawn(folder, layers, found):
    entries = save_drawings(draw_contextual(found, layers, least_silhouette=0.1), folder, origin="tiny; seed 0.")
    return {entry.name: entry for entry in entries}


def test_figures_and_captions(tmp_path):
    tokens = np.array(["dog", ",", "7"] * 40, dtype=object)
    columns = {"token": tokens, "tag": np.array(["NN", ",", "CD"] * 40), "frequency": np.arange(120)}
    entries = drawn(tmp_path, {k: lambda k=k: words(k, **columns) for k in range(3)}, rows())
    assert list(entries) == [
        "contextual_cosines", "contextual_dimension", "contextual_silhouettes", "contextual_plane_frequency",
        "contextual_plane_kinds", "contextual_space_frequency", "contextual_space_kinds",
    ]  # fmt: skip
    assert all(entry.caption.endswith("tiny; seed 0.") and entry.png_path.exists() for entry in entries.values())
    assert "from 0.1000 to 0.3000 between two types" in entries["contextual_cosines"].caption
    assert "isotropic Gaussian have 55.50 or more" in entries["contextual_dimension"].caption
    assert "k-means clusters on 90 rows" in entries["contextual_silhouettes"].caption
    assert "Clusters by layer: 1, 2, 3." in entries["contextual_silhouettes"].caption
    assert entries["contextual_plane_kinds"].caption.startswith("120 words on a layer's own first two principal")


def test_the_same_words_are_shown_in_every_layer(tmp_path, monkeypatch):
    monkeypatch.setattr("clip_geometry_experiments.cai2021.contextual.planes.SHOWN", 30)
    seen = []
    monkeypatch.setattr(
        "clip_geometry_experiments.cai2021.contextual.figures.kinds_figure",
        lambda planes, kinds, dimensions: seen.append((planes, kinds)) or kinds_figure(planes, kinds),
    )
    tokens = np.array(["dog", ","] * 60, dtype=object)
    entries = drawn(tmp_path, {0: lambda: words(0, token=tokens), 1: lambda: words(0, token=tokens)}, [])
    (first, second), names = seen[0]
    assert np.array_equal(first.points, second.points) and len(names) == 30 == len(first.points)
    assert entries["contextual_plane_kinds"].caption.startswith("30 of 120 words drawn at random")
    total = np.var(words(0).vectors.astype(float), axis=0, ddof=1).sum()
    top = np.linalg.eigvalsh(np.cov(words(0).vectors.astype(float).T))[::-1][:3]
    assert first.shares == pytest.approx(tuple(top / total))


def test_what_cannot_be_drawn_says_why(tmp_path):
    entries = drawn(tmp_path, {None: lambda: words(0, d=2)}, rows()[:1])
    (entry,) = entries.values()
    assert entry.png_path is None and entry.caption.startswith("Not drawn: pca(3) needs 3 directions")


def test_rows_whose_words_are_not_known_have_no_pictures(tmp_path):
    assert drawn(tmp_path, {None: lambda: words(0)}, []) == {}
