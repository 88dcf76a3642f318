"""Records to rows: grouping, what varies, and numbers that are read beside each other."""

import math
from dataclasses import dataclass

from clip_geometry.measuring.table import numbers_table


@dataclass(frozen=True)
class Measure:
    name: str
    title: str = "A measure"
    group: str = "isotropy"
    summary: str = "What it is."
    reading: str = "How to read it."
    range: tuple = (0, 1)
    direction: str = "higher is more isotropic"
    unit: str = ""


EXPLANATIONS = {
    "isoscore": Measure("isoscore"),
    "cone": Measure("cone", group="cone", range=(0, 180), unit="degrees", direction="none is better"),
    "own": Measure("own", group="a new group"),
}


def row(measure="isoscore", value=0.4, modality="image", **more):
    return {"measure": measure, "value": value, "n": 10, "d": 4, "model": "m", "at": {"modality": modality}, **more}


def lines(rows):
    return numbers_table(rows, EXPLANATIONS).rows


def values(rows):
    return [(value, null) for *_, value, null, _, _, _ in lines(rows)]


def test_groups_come_in_a_fixed_order_and_unknown_ones_last():
    table = numbers_table([row("own"), row("nobody knows"), row(), row("cone")], EXPLANATIONS)
    assert list(table.groups) == ["cone", "isotropy", "a new group", "other"]
    assert table.groups["other"][0][0].full == "nobody knows" and table.groups["other"][0][-3:] == ["", "", ""]
    assert table.groups["cone"][0][0] == "cone (degrees)" and table.groups["cone"][0][-2] == "none is better"
    assert table.groups["isotropy"][0][-3:] == ["↑", "isotropic", "0 … 1"]


def test_sets_of_a_measure_stand_together_in_order():
    rows = [row(value=0.3, modality="text"), row("cone"), row(value=0.1), row(value=0.2, modality="both")]
    assert [line[1:3] for line in lines(rows)[1:]] == [["image", "0.1000"], ["text", "0.3000"], ["both", "0.2000"]]


def test_a_variant_falls_back_on_its_base():
    ((measure, *_),) = lines([row("isoscore[unbiased]")])
    assert (measure, measure.full) == ("isoscore[unbiased]", "A measure [unbiased]")
    assert measure.of is EXPLANATIONS["isoscore"]


def test_runs_get_letters_and_what_varies_within_them_columns():
    rows = [
        row(pipeline=["normalize"], at={"modality": "image", "layer": 3}),
        row(pipeline=["normalize", "center"], at={"modality": "image", "layer": 4}),
        row(pipeline=[], n=12, value=None, at={"modality": "image"}),
    ]
    table = numbers_table(rows, EXPLANATIONS)
    assert table.heading == ["A = normalize", "B = normalize → center", "C = raw"]
    assert [column.name for column in table.columns[2:5]] == ["run", "layer", "n"]
    assert [line[2:5] for line in table.rows] == [["A", "3", "10"], ["B", "4", "10"], ["C", "", "12"]]
    alone = numbers_table([row(), row("cone", n=12)], EXPLANATIONS)
    assert (alone.heading, alone.columns[2].name) == ([], "n")


def test_numbers_of_one_measure_are_read_beside_each_other():
    rows = [row(value=-8.8e-6, null_value=7e-7, seed=0), row(value=0.0048, null_value=-0.0007, seed=1)]
    assert values(rows) == [("0.0000", "0.0000"), ("0.0048", "−0.0007")]
    assert values(rows[:1]) == [("−0.0000088", "0.0000007")]


def test_the_null_value_shares_the_decimals_that_the_error_gives_the_value():
    rows = [row(value=-7.9e-5, standard_error=9.8e-5, null_value=-0.00098), row(value=0.3, null_value=6.4e-17, seed=1)]
    assert values(rows) == [("−0.000079 ± 0.000098", "−0.000980"), ("0.3000", "0.0000")]
    assert values([row(value=6.4e-17, null_value=1e-16)]) == [("0", "0")]


def test_a_missing_value_keeps_its_reason():
    result = [line[-5] for line in lines([row(value=None, note="needs pairs"), row(value=math.nan), {"measure": "x"}])]
    assert result == ["", "", ""] and result[0].of["note"] == "needs pairs"
