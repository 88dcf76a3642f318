"""The result of `cg.measure`: keys, tables, files and figures, all of the same numbers."""

import doctest
import re
from html.parser import HTMLParser
from io import BytesIO
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

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
        ("isoscor", r"no 'isoscor' was measured; did you mean 'isoscore'\? \(\.frame names all\)"),
        ("isoscore", r"\['isoscore'\] is 3 of the numbers; expected one of \['isoscore', 'image'\], \['isoscore', 'te"),
        (("isoscore", "video"), r"\['isoscore', 'video'\] is none of the numbers; expected one of \['isoscore', 'im"),
        (("retrieval.image_to_text.r_at_1", "text", "audio"), "is none of the numbers; expected one of"),
        (3, "no 3 was measured"),
        ((), "was measured"),
    ],
)
def test_another_key_is_one_sentence(three, key, sentence):
    with pytest.raises(InputError, match=sentence):
        three[key]


def test_what_was_not_computed_says_why():
    result = cg.measure(X, blocks=0)
    assert result.notes["modality_gap"] == "needs two modalities, only rows was given"
    assert set(result.notes) | {record.measure for record in result} == {record.measure for record in result.records}
    with pytest.raises(InputError, match="modality_gap was not computed: needs two modalities, only rows was given"):
        result["modality_gap"]
    nothing = cg.Measurement([record for record in result.records if record.value is None])
    with pytest.raises(InputError, match=r"no number was computed, so that there is nothing to draw; \.notes says why"):
        nothing.plot()
    assert len(nothing) == 0 and "no numbers" in repr(nothing) and "<table>" not in nothing._repr_html_()
    assert "\\midrule\n\\bottomrule" in nothing.to_latex() and nothing.frame.empty


def test_the_frame_and_its_file_have_all_numbers(two, three, groups, tmp_path):
    for result in (two, three, groups):
        frame = result.frame
        for record, row in zip(result, frame.to_dict("records"), strict=True):
            named = ("measure", "value", "standard_error", "null_value", "n", "d")
            row = {key: None if pd.isna(cell) else cell for key, cell in row.items()}
            assert [row[key] for key in named] == [record.get(key) for key in named]
            measure = cg.measures[record.measure]
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


class Cells(HTMLParser):
    """The text of all elements, and the tags that are open at the end."""

    def __init__(self, html):
        super().__init__()
        self.text, self.open = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data.strip())


def test_html_leads_with_the_verdict_and_has_each_number(two, three, groups):
    for result in (two, three, groups):
        page = Cells(result._repr_html_())
        assert not page.open
        text = [part for part in page.text if part and not part.startswith(".clip-geometry")]
        assert text[0] == result.verdict if result is two else text[0].startswith("pipeline: normalize; ")
        shown = {cell.replace("−", "-").split(" ±")[0].split(" [")[0] for cell in text}
        for record in result:
            assert record.measure in text or f"{record.measure} (degrees)" in text
            assert shown & written(record.value), record
    assert "above the diagonal: the value of the couple; below it: its null value" in three._repr_html_()
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


def axes_of(figure):
    return {axes.get_title(loc="left").replace("\n", ""): axes for axes in figure.get_axes() if axes.axison}


def test_the_figure_has_a_panel_for_each_measure_and_a_map_across_three_modalities(two, three, groups):
    panels = axes_of(two.plot())
    assert set(panels) == {record.measure for record in two}
    for name, axes in panels.items():
        records = [record for record in two if record.measure == name]
        assert [label.get_text() for label in axes.get_yticklabels()] == [record.at["modality"] for record in records]
        drawn = {float(x) for line in axes.get_lines() for x in line.get_xdata()}
        assert drawn >= {record.value for record in records} | {record.null_value for record in records}
    maps = axes_of(three.plot())
    assert set(maps) == {"isoscore", "modality_gap", "retrieval.image_to_text.r_at_1", "cone_half_angle (degrees)"}
    for name in ("modality_gap", "retrieval.image_to_text.r_at_1"):
        (image,) = maps[name].get_images()
        cells, names = np.ma.filled(image.get_array(), np.nan), ["audio", "image", "text"]
        for one, other in combinations(names, 2):
            value = three[name, one, other].value
            back = value if name == "modality_gap" else np.nan  # from the row to the column, which are not the same
            found = cells[names.index(one), names.index(other)], cells[names.index(other), names.index(one)]
            assert np.array_equal(found, (value, back), equal_nan=True)
    assert not maps["isoscore"].get_images()
    assert "cat · audio" in [label.get_text() for label in axes_of(groups.plot())["isoscore"].get_yticklabels()]


def test_a_notebook_shows_a_png_of_twice_the_size_that_it_states(two):
    data, shown = two.plot()._repr_png_()
    height, width, _ = imread(BytesIO(data)).shape
    assert (width, height) == pytest.approx((2 * shown["width"], 2 * shown["height"]), abs=2)


def test_what_a_file_says_reaches_no_terminal_as_a_command():
    code, x = "\x1b[31mred\u202e", np.random.default_rng(0).normal(size=(60, 8))
    labels = np.array([f"{code}{k % 2}" for k in range(60)], dtype=object)
    origin = {"model": code, "dataset": code, "split": code}
    sets = cg.Embeddings(x, "image", labels=labels, metadata={code: labels}, provenance=origin)
    for by in ("label", code):
        shown = repr(cg.measure(sets, by=by, measures="isoscore"))
        assert r"\x1b[31mred\u202e1" in shown and all(line.isprintable() for line in shown.splitlines())
    assert all(line.isprintable() for line in repr(cg.compare(sets, sets, names=[code, "b"])).splitlines())
