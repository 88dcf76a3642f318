"""Pictures of words in context: what is drawn is what was given, and captions say it."""

import pytest

from clip_geometry.registry import InputError
from clip_geometry_experiments.cai2021.contextual.figures import KINDS, draw_contextual, kinds_of

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
    about = {"n": 100, "null_value": None}
    values = {"lid": ((8, 0.5), (9, 0.25)), "lid[cai2021-cosine]": ((4, None), (5, None))}
    rows = [
        {"measure": name, "value": value, "standard_error": error, "at": {"layer": layer, **probes}, **about}
        for name, layers in values.items()
        for layer, (value, error) in enumerate(layers)
        for probes in ({}, {"probes": 10})
    ]

    def refuse():
        raise InputError("there are no words")

    figure = draw_contextual(rows, {None: refuse})["contextual_dimension"].figure
    top, bottom = figure.axes
    assert top.get_title(loc="left") == "neighbors among 100 rows" and bottom.get_xlabel() == "layer"
    (plain,) = top.containers
    segments = plain.lines[2][0].get_segments()
    assert [segment[:, 1].tolist() for segment in segments] == [[7, 9], [8.5, 9.5]]
    assert bottom.get_ylim()[0] == 0 and top.get_ylim()[1] > 9
    published = {line.get_label(): line for line in top.lines}["cosine, as published"]
    assert published.get_ydata().tolist() == [4, 5]
