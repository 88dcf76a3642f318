"""Pictures of words in context: what is drawn is what was given, and captions say it."""

import pytest

from clip_geometry_experiments.cai2021.contextual.figures import (
    KINDS,
    Point,
    dimension_figure,
    kinds_of,
)

pytestmark = pytest.mark.usefixtures("unrendered")


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


# --- from rows and embeddings
