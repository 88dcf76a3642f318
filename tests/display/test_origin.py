"""Runs are distinguished by their origin, and by nothing else."""

import pytest

from clip_geometry.display.origin import option_words, runs
from clip_geometry.results import ORIGIN


def row(**more):
    return {"measure": "isoscore", "value": 0.4, "model": "m", "dataset": "s", "at": {"modality": "image"}, **more}


def headings(*rows):
    return [(run.label, run.heading) for run in runs(rows)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": 1, "zero_bias": True}, "seed 1, zero_bias"),
        ({"zero_bias": False, "limit": None}, "no zero_bias"),
        ({"image": {"seed": 1}, "text": {}}, "image (seed 1)"),
        ({}, ""),
    ],
)
def test_options_read_as_words(options, words):
    assert option_words(options) == words


def test_two_seeds_of_one_model_are_two_runs():
    options = ({"seed": 1, "zero_bias": True}, {"seed": 2})
    assert headings(*(row(model_options=each) for each in options)) == [
        ("A", "m · seed 1, zero_bias"),
        ("B", "m · seed 2"),
    ]


def test_options_against_none():
    assert headings(row(), row(data_options={"size": 9}), row(data_options={}), row(data_options=None)) == [
        ("A", "s"),
        ("B", "s · size 9"),
    ]


@pytest.mark.parametrize("name", ORIGIN)
def test_every_field_of_the_origin_separates_runs(name):
    one, two = ({"x": 1}, {"x": 2}) if name.endswith("options") else (["a"], ["b"]) if name == "pipeline" else (1, 2)
    (_, first), (_, second) = headings(row(**{name: one}), row(**{name: two}), row(**{name: one}))
    assert first != second and first and second


def test_size_place_and_versions_do_not_separate_runs():
    rows = [row(n=3, d=4), row(n=5, d=6, versions={"numpy": "2"}), row(at={"modality": "text", "layer": 2})]
    (run,) = runs(rows)
    assert (run.label, run.heading, run.rows) == ("A", "", rows)
    assert runs([]) == []


def test_the_fitting_set_is_named_only_where_nothing_else_tells_runs_apart():
    centered = row(pipeline=["center[each]"], fitted_on="s:each")
    assert headings(row(pipeline=[], fitted_on=None), centered) == [("A", "raw"), ("B", "center[each]")]
    other = row(pipeline=["center[each]"], fitted_on="train:each")
    assert headings(centered, other) == [("A", "fitted on s:each"), ("B", "fitted on train:each")]
