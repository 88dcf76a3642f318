"""Rows to lines: grouping, what varies, and the small pictures."""

import math
from dataclasses import dataclass

import pytest

from clip_geometry.display.table import anchor, build_table, track


@dataclass(frozen=True)
class Measure:
    name: str
    title: str = "A measure"
    group: str = "isotropy"
    summary: str = "What it is."
    reading: str = "How to read it."
    caveat: str = "What misleads."
    formula: str = "a/b"
    range: tuple = (0, 1)
    direction: str = "higher is more isotropic"
    unit: str = ""
    reference: str = "Somebody 2020"


EXPLANATIONS = {
    "isoscore": Measure("isoscore"),
    "cone": Measure("cone", group="cone", range=(0, 180), unit="degrees"),
    "own": Measure("own", group="a new group"),
}


def row(measure="isoscore", value=0.4, modality="image", **more):
    return {"measure": measure, "value": value, "n": 10, "d": 4, "model": "m", "at": {"modality": modality}, **more}


def test_groups_come_in_a_fixed_order_and_unknown_ones_last():
    table = build_table([row("own"), row("nobody knows"), row(), row("cone")], EXPLANATIONS)
    assert [group for group, _ in table.groups] == ["cone", "isotropy", "a new group", "other"]
    unknown = table.groups[-1][1][0]
    assert (unknown.title, unknown.anchor, unknown.range) == ("nobody knows", "", "")


def test_sets_of_a_measure_stand_together_in_order():
    rows = [row(value=0.3, modality="text"), row("cone"), row(value=0.1), row(value=0.2, modality="both")]
    table = build_table(rows, EXPLANATIONS)
    (block,) = table.groups[1][1]
    assert [(line.modality, line.value) for line in block.lines] == [
        ("image", "0.1000"),
        ("text", "0.3000"),
        ("both", "0.2000"),
    ]
    assert table.columns == ()


def test_a_variant_falls_back_on_its_base():
    table = build_table([row("isoscore[unbiased]")], EXPLANATIONS)
    (block,) = table.groups[0][1]
    assert (block.title, block.anchor) == ("A measure [unbiased]", "measure-isoscore")
    assert anchor("isotropy_i1[canonical]") == "measure-isotropy_i1-canonical"


def test_a_variant_that_is_equal_in_all_rows_says_so():
    def equal(*cosines):
        rows = [row("isoscore", 0.5), row("cone[a]", 0.3), row("cone[a]", 0.4, "text")]
        rows += [row("cone[b]", value, at) for value, at in zip(cosines, ("text", "image"), strict=False)]
        table = build_table(rows, EXPLANATIONS)
        return [block.equal_to for _, blocks in table.groups for block in blocks]

    assert equal(0.4 + 1e-10, 0.3) == ["", "[a]", ""]
    assert equal(0.4 + 1e-8, 0.3) == equal(0.3, 0.4) == equal(0.4) == equal(None, 0.3) == ["", "", ""]
    table = build_table([row("own"), row("own[a]")], EXPLANATIONS)
    assert [block.equal_to for block in table.groups[0][1]] == ["", "own"]


def test_runs_get_letters_and_what_varies_within_them_columns():
    rows = [
        row(pipeline=["normalize"], at={"modality": "image", "layer": 3}),
        row(pipeline=["normalize", "center"], at={"modality": "image", "layer": 4}),
        row(pipeline=[], n=12, value=None, at={"modality": "image"}),
    ]
    table = build_table(rows, EXPLANATIONS)
    assert table.runs == (("A", "normalize"), ("B", "normalize → center"), ("C", "raw"))
    assert table.columns == ("run", "layer", "n")
    lines = table.groups[0][1][0].lines
    assert [line.varying for line in lines] == [("A", "3", "10"), ("B", "4", "10"), ("C", "", "12")]


def test_one_run_needs_no_letters():
    table = build_table([row(), row("cone", n=12)], EXPLANATIONS)
    assert (table.runs, table.columns) == ((), ("n",))


def test_numbers_of_one_measure_are_read_beside_each_other():
    rows = [row(value=-8.8e-6, null_value=7e-7, seed=0), row(value=0.0048, null_value=-0.0007, seed=1)]
    lines = build_table(rows, EXPLANATIONS).groups[0][1][0].lines
    assert [(line.value, line.null) for line in lines] == [("0.0000", "0.0000"), ("0.0048", "−0.0007")]
    (alone,) = build_table(rows[:1], EXPLANATIONS).groups[0][1][0].lines
    assert (alone.value, alone.null) == ("−0.0000088", "0.0000007")


def test_the_null_value_shares_the_decimals_that_the_error_gives_the_value():
    rows = [row(value=-7.9e-5, standard_error=9.8e-5, null_value=-0.00098), row(value=0.3, null_value=6.4e-17, seed=1)]
    lines = build_table(rows, EXPLANATIONS).groups[0][1][0].lines
    assert [(line.value, line.null) for line in lines] == [
        ("−0.000079 ± 0.000098", "−0.000980"),
        ("0.3000", "0.0000"),
    ]
    (rounding,) = build_table([row(value=6.4e-17, null_value=1e-16)], EXPLANATIONS).groups[0][1][0].lines
    assert (rounding.value, rounding.null) == ("0", "0")


def test_a_missing_value_keeps_its_reason():
    rows = [row(value=None, note="needs pairs"), row(value=math.nan), {"measure": "isoscore"}]
    lines = build_table(rows, EXPLANATIONS).groups[0][1][0].lines
    assert [(line.value, line.note, line.track) for line in lines] == [
        ("", "needs pairs", None),
        ("", "not a finite number", None),
        ("", "not a finite number", None),
    ]


@pytest.mark.parametrize(
    ("limits", "value", "null", "places"),
    [
        ((0, 1), 0.25, 0.9, (30, 108, 0)),
        ((-1, 1), 0.5, 0.0, (90, 60, 60)),
        ((-1, 1), -0.5, None, (30, None, 60)),
        ((1, "d"), 2.5, 4, (60, 120, 0)),
        ((0, "n"), 1, 20, (12, 120, 0)),
    ],
)
def test_places_within_the_range(limits, value, null, places):
    result = track(row(value=value, null_value=null), limits)
    assert result is not None
    assert (result.value, result.null, result.start) == places
    assert ("isotropic Gaussian" in result.label) == (null is not None)


@pytest.mark.parametrize("limits", [(0, math.inf), (0, "no such bound"), (1, 1)])
def test_no_picture_without_a_bounded_range(limits):
    assert track(row(), limits) is None


def test_bounded_says_whether_there_is_a_picture():
    assert build_table([row()], EXPLANATIONS).bounded
    assert not build_table([row(value=None)], EXPLANATIONS).bounded
