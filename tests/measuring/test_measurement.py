"""The result of `cg.measure`: keys, tables, files and figures, all of the same numbers."""

import doctest
import re

import numpy as np
import pandas as pd
import pytest

import clip_geometry as cg
from clip_geometry.measuring import measurement as result_module
from clip_geometry.registry import InputError
from support.clouds import cone

RNG = np.random.default_rng(0)
X, Y, Z = (cone(40, 6, RNG) for _ in range(3))
NAMES = ["isoscore", "modality_gap", "retrieval.image_to_text.r_at_1", "cone_half_angle"]
LABELS = ["cat", "dog"] * 20


@pytest.fixture(scope="module")
def two():
    return cg.measure(X, Y, blocks=5, labels=LABELS)


@pytest.fixture(scope="module")
def three():
    return cg.measure({"image": X, "text": Y, "audio": Z}, measures=NAMES, blocks=5)


@pytest.fixture(scope="module")
def groups():
    sets = {"image": X, "text": Y, "audio": Z}
    return cg.measure(sets, measures=["isoscore", "modality_gap"], labels=LABELS, by="label", blocks=5)


def test_the_examples_of_the_methods_run():
    said = []
    for example in doctest.DocTestFinder().find(result_module.Measurement, "Measurement", result_module, globs={}):
        doctest.DocTestRunner().run(example, out=said.append)
    assert not said, "".join(said)


def test_a_number_by_its_name_and_place(two, three, groups):
    for result in (two, three, groups):
        for record in result:
            expected = cg.Estimate(record.value, record.standard_error, record.null_value)
            assert result[(record.measure, *record.at.values())] == expected
            assert result[(record.measure, *reversed(record.at.values()))] == expected
    assert two["modality_gap"] == two["modality_gap", "both"]
    assert three["modality_gap", "audio", "text"] == three["modality_gap", "audio+text"]
    assert three["modality_gap", "text", "audio"] == three["modality_gap", "audio+text"]  # a distance
    assert groups["isoscore", "dog", "text"] == groups["isoscore", "text", "dog"]


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("isoscor", r"'isoscor' was not measured; did you mean 'isoscore'\? \(\.frame names all\)"),
        (
            "isoscore",
            r"\['isoscore'\] matches 3 of the numbers; expected one of \['isoscore', 'image'\], \['isoscore', 'te",
        ),
        (("isoscore", "video"), r"\['isoscore', 'video'\] matches none of the numbers; expected one of \['isoscore'"),
        (("retrieval.image_to_text.r_at_1", "text", "audio"), "matches none of the numbers; expected one of"),
        (3, "3 was not measured"),
        ((), "was not measured"),
    ],
)
def test_another_key_is_one_sentence(three, key, sentence):
    with pytest.raises(InputError, match=sentence):
        three[key]


def test_what_was_not_computed_says_why():
    result = cg.measure(X, blocks=0)
    assert result.notes["modality_gap"] == "needs two modalities, but only rows was given"
    assert set(result.notes) | {record.measure for record in result} == {record.measure for record in result.records}
    with pytest.raises(
        InputError, match="modality_gap was not computed: needs two modalities, but only rows was given"
    ):
        result["modality_gap"]
    nothing = cg.Measurement([record for record in result.records if record.value is None])
    assert len(nothing) == 0 and "no numbers" in repr(nothing) and "<table>" not in nothing._repr_html_()
    assert "\\midrule\n\\bottomrule" in nothing.to_latex() and nothing.frame.empty


def test_the_frame_and_its_file_have_all_numbers(two, three, groups, tmp_path):
    for result in (two, three, groups):
        frame = result.frame
        for record, row in zip(result, frame.to_dict("records"), strict=True):
            named = ("measure", "value", "standard_error", "null_value", "n", "d")
            row = {key: None if pd.isna(cell) else cell for key, cell in row.items()}
            assert [row[key] for key in named] == [record.get(key) for key in named]
            measure = cg.geometry.measures[record.measure]
            assert (row["set"], row["unit"], row["direction"]) == (
                record.at["modality"], measure.unit, measure.direction,
            )  # fmt: skip
            assert row.get("label") == record.at.get("label")
        result.to_csv(tmp_path / "x.csv")
        written = pd.read_csv(tmp_path / "x.csv", keep_default_na=False, na_values=[""], float_precision="round_trip")
        pd.testing.assert_frame_equal(written.fillna(""), frame.fillna(""), check_dtype=False)


def test_json_is_read_back_to_the_last_bit(two, three, groups, tmp_path):
    for k, result in enumerate((two, three, groups)):
        result.to_json(tmp_path / f"{k}.jsonl")
        read = cg.Measurement(cg.read_rows(tmp_path / f"{k}.jsonl"))
        assert read.frame.equals(result.frame) and read.notes == result.notes and read.verdict == result.verdict
        assert [each.without for each in read.records] == [each.without for each in result.records]


def written(value):
    """How a table may write it."""
    return {f"{value:z.{decimals}f}" for decimals in range(7)}


def test_text_leads_with_the_verdict_and_has_a_line_for_each_number(two, three, groups):
    for result in (two, three, groups):
        blocks = repr(result).split("\n\n")
        if result is two:
            assert " ".join(blocks.pop(0).split()) == result.verdict != ""
        assert (
            blocks[0].startswith("pipeline: normalize") and "±: standard error, jackknife over 5 blocks" in blocks[-1]
        )
        head, *lines = blocks[1].splitlines()
        crossed = [record for record in result if "+" in record.at["modality"] and result is three]
        assert head.split()[0] == "measure" and len(lines) == len(result) - len(crossed)
        for record in crossed:
            (matrix,) = (block for block in blocks if block.startswith(f"{record.measure}\n"))
            assert written(record.value) & {*matrix.split()}
        for record in (record for record in result if record not in crossed):
            named = {record.measure, *map(str, record.at.values())}
            cells = [set(line.split()) for line in lines if named <= set(line.split())]
            assert len(cells) == 1 and cells[0] & written(record.value), record


def test_html_leads_with_the_verdict_and_escapes(two):
    page = two._repr_html_()
    assert two.verdict.partition("(")[0] in page and "modality_gap" in page and page.count("<table>") == 1
    escaped = cg.measure(X, labels=["<b>", "&"] * 20, by="label", measures=["isoscore"])._repr_html_()
    assert "&lt;b&gt;" in escaped and "<b>" not in escaped


def test_latex_is_a_table_with_a_title_and_each_number(two, three, groups, tmp_path):
    for result in (two, three, groups):
        text = result.to_latex(tmp_path / "x.tex")
        assert (tmp_path / "x.tex").read_text() == text
        begun = re.findall(r"\\(begin|end){(\w+)}", text)
        assert begun == [("begin", "table"), ("begin", "tabular"), ("end", "tabular"), ("end", "table")]
        rows = [line for line in text.splitlines() if line.endswith(r"\\")][1:]
        assert len(rows) == len(result)
        columns = re.search(r"begin{tabular}{([lr]+)}", text)[1]
        assert all(row.count(" & ") == len(columns) - 1 for row in rows)
        body = text.partition("\\begin{table}")[2]
        assert not re.search(r"(?<!\\)[_%#]", body) and not set(body) & set("±−×")
        title = re.search(r"\\caption{(.*)}$", text, re.MULTILINE)[1]
        assert "pipeline: normalize" in title and "standard error, jackknife" in title
        cited = ",".join(re.findall(r"\\cite{(.*?)}", title)).split(",")
        assert re.findall(r"^@misc{(.*),$", result.to_bibtex(tmp_path / "x.bib"), re.MULTILINE) == cited
        assert (tmp_path / "x.bib").read_text() == result.to_bibtex()


def test_what_a_file_says_reaches_no_terminal_as_a_command():
    code, x = "\x1b[31mred\u202e", np.random.default_rng(0).normal(size=(60, 8))
    labels = np.array([f"{code}{k % 2}" for k in range(60)], dtype=object)
    origin = {"model": code, "dataset": code, "split": code}
    sets = cg.Embeddings(x, "image", labels=labels, metadata={code: labels}, provenance=origin)
    for by in ("label", code):
        shown = repr(cg.measure(sets, by=by, measures="isoscore"))
        assert r"\x1b[31mred\u202e1" in shown and all(line.isprintable() for line in shown.splitlines())
    assert all(line.isprintable() for line in repr(cg.compare(sets, sets, names=[code, "b"])).splitlines())
