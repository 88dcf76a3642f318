"""One table as text, HTML, Markdown and JSON: every renderer shows every cell, and nothing a reader could mistake."""

import json
import re
from html import unescape

import pytest

from clip_geometry.display.table import Cell, Table, TableColumn

COLUMNS = (
    TableColumn("measure", shared=True),
    TableColumn("set"),
    TableColumn("angle", "number", unit="degrees"),
    TableColumn("range", shared=True, spare=1),
)
ROWS = {
    "cone": [
        [Cell("cone[a]", full="The cone", hint="what it is"), "image", "−1.5 ± 0.1", "0 … 180"],
        [Cell("cone[a]", full="The cone", hint="what it is"), "text", "22.25", "0 … 180"],
    ],
    "gap": [["modality_gap[sqeuclidean]", "a|b <c>", "3", "0 … 2"]],
}
TABLE = Table(
    COLUMNS,
    ROWS,
    title="Title",
    verdict=["It is a cone."],
    heading=["of 100 rows"],
    legend=["±: standard error"],
    notes=["a note"],
    more=[Table(title="More", heading=["below"])],
)
SENTENCES = ["Title", "It is a cone.", "of 100 rows", "±: standard error", "a note", "More", "below"]


def test_text_has_its_parts_in_order_and_numbers_flush_right():
    assert str(TABLE).splitlines() == [
        "Title",
        "It is a cone.",
        "",
        "of 100 rows",
        "",
        "measure                    set      angle (degrees)  range",
        "cone[a]                    image         -1.5 ± 0.1  0 … 180",
        "cone[a]                    text               22.25  0 … 180",
        "modality_gap[sqeuclidean]  a|b <c>                3  0 … 2",
        "",
        "More",
        "below",
        "",
        "±: standard error",
        "a note",
    ]


@pytest.mark.parametrize("width", [20, 40, 50, 58, 200])
def test_text_of_any_width_keeps_each_number_in_its_line(width):
    lines = [line for line, _ in TABLE.lines(width)]
    for row in TABLE.rows:
        number = row[2].replace("−", "-")
        assert sum(number in line for line in lines) >= 1
    together = "".join(lines).replace(" ", "")
    assert all(cell in together for cell in ("cone[a]", "a|b<c>"))
    assert ("range" in together) == (width > 58)
    assert all(len(line) <= max(width, 58 if width < 40 else 0) and line == line.rstrip() for line in lines)


def test_columns_of_one_name_stay_two_columns():
    """`--by set` has a column of groups beside that of the sets."""
    columns = TableColumn("set"), TableColumn("set"), TableColumn("value", "number")
    lines = str(Table(columns, {"": [["a", "west", "1"], ["text", "e", "22"]]})).splitlines()
    assert lines == ["set   set   value", "a     west      1", "text  e        22"]


def test_folding_is_between_words_and_before_brackets():
    narrow = Table(
        [TableColumn("name"), TableColumn("x", "number")], {"": [["modality_gap[sqeuclidean]", "0.1 ± 0.2"]]}
    )
    assert [line for line, _ in narrow.lines(30)][1:] == ["modality_gap         0.1 ± 0.2", "[sqeuclidean]"]
    whole = Table([TableColumn("name", "name"), TableColumn("x")], {"": [["modality_gap[a]", "some more words"]]})
    assert [line for line, _ in whole.lines(29)][1:] == ["modality_gap[a]  some more", " " * 17 + "words"]


def test_names_of_groups_are_shown_where_they_are_asked_for():
    named = Table(COLUMNS[:1], {"first": [["a"]], "": [["b"]]}, named_groups=True)
    assert str(named).split() == ["measure", "first", "a", "b"] and '<th colspan="1">first</th>' in named.html()
    assert [style for _, style in named.lines(80)][:2] == ["bold", "bold"]


def test_html_shows_shared_cells_once_and_escapes():
    page = TABLE.html()
    text = unescape(re.sub(r"<[^>]*>", "\n", page.partition("</style>")[2]))
    for sentence in SENTENCES:
        assert sentence in text
    assert page.count("cone[a]") == 1 and page.count('rowspan="2" title="what it is"') == 1
    assert page.count("0 … 180") == 1 and "<c>" not in page and "a|b &lt;c&gt;" in page
    assert text.count("22.25") == text.count("angle (degrees)") == 1


def test_markdown_is_a_table_that_github_reads():
    blocks = TABLE.markdown().split("\n\n")
    (table,) = (block.splitlines() for block in blocks if block.startswith("|"))
    assert table[:2] == ["| measure | set | angle (degrees) | range |", "| --- | --- | --: | --- |"]
    assert table[4] == r"| modality_gap[sqeuclidean] | a\|b <c> | 3 | 0 … 2 |"
    assert {block.strip("*") for block in blocks} >= set(SENTENCES)


def test_json_has_everything():
    as_dict = json.loads(json.dumps(TABLE.as_dict()))
    assert [column["unit"] for column in as_dict["columns"]] == ["", "", "degrees", ""]
    assert {group["name"]: group["rows"] for group in as_dict["groups"]} == ROWS
    written = json.dumps(as_dict, ensure_ascii=False)
    assert all(sentence in written for sentence in SENTENCES)


def test_a_table_without_rows_is_its_sentences():
    alone = Table(COLUMNS, heading=["nothing"])
    assert str(alone) == "nothing" and "<table>" not in alone.html() and "|" not in alone.markdown()
