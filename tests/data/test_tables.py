import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clip_geometry.data.tables import read_table
from clip_geometry.registry import InputError

ROWS = {
    "image": ["a.jpg", "b.jpg", "c.jpg"],
    "en": ['a "quoted", comma', "two\nlines", "NA"],
    "ru": ["кот", "null", "1.0"],
}


def _write(path):
    rows = [dict(zip(ROWS, cells, strict=True)) for cells in zip(*ROWS.values(), strict=True)]
    if path.suffix == ".csv":
        quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in row.values()) for row in rows]
        path.write_text("\n".join([",".join(ROWS), *quoted]) + "\n\n")
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n")
    else:
        pq.write_table(pa.table(ROWS), path)
    return path


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_all_formats_give_the_same_strings(tmp_path, suffix):
    table = read_table(_write(tmp_path / f"t.{suffix}"))
    assert table.names == tuple(ROWS)
    assert {name: table.strings(name) for name in table.names} == ROWS


def test_quotation_marks_between_tabs_are_text(tmp_path):
    cells = ['"', 'a "quoted" word', '"all of it"', "one\u2028line", " spaces "]
    (tmp_path / "t.tsv").write_bytes("\r\n".join(["en", *cells, "", ""]).encode())
    assert read_table(tmp_path / "t.tsv").strings("en") == cells


def test_jsonl_lines_end_at_line_feeds_only(tmp_path):
    (tmp_path / "t.jsonl").write_text(json.dumps({"en": "one\u2028line"}, ensure_ascii=False))
    assert read_table(tmp_path / "t.jsonl").strings("en") == ["one\u2028line"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_an_unknown_column(tmp_path, suffix):
    table = read_table(_write(tmp_path / f"t.{suffix}"))
    with pytest.raises(InputError, match="has no column 'imag'; did you mean 'image'"):
        table.strings("imag")
    with pytest.raises(InputError, match="has no column 'xyzzy'; it has image, en, ru"):
        table.strings("xyzzy")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "", "is empty"),
        ("t.csv", "image,en\n", "has no rows"),
        ("t.csv", "\n\n", "Empty CSV file"),
        ("t.csv", "a,b\n1,2\n1,2,3\n", "Expected 2 columns, got 3: 1,2,3"),
        ("t.csv", "a,b\n1\n", "Expected 2 columns, got 1: 1"),
        ("t.csv", 'a,b\n"x,2\n', "Expected 2 columns, got 1"),
        ("t.csv", b"a,b\nx,\xff\n", "invalid UTF8"),
        ("t.csv", "a,a\n1,2\n", "has two columns named 'a'"),
        ("t.tsv", "", "is empty"),
        ("t.tsv", "a\tb\n", "has no rows"),
        ("t.tsv", "a\tb\n1\t2\t3\n", "Expected 2 columns, got 3"),
        ("t.tsv", "a\ta\n1\t2\n", "has two columns named 'a'"),
        ("t.jsonl", "\n \n", "has no rows"),
        ("t.jsonl", '{"a": 1}\n{"a": 2\n', "line 2, is not readable JSON"),
        ("t.jsonl", "[" * 100_000, "line 1, is not readable JSON .*recursion limit"),
        ("t.jsonl", '{"a": 1}\n[1]\n', "line 2, is .1.: input should be a valid object"),
        ("t.parquet", "not parquet at all", r"is not a readable \.parquet file"),
        ("t.txt", "a\n", "has the suffix '.txt'; a table has one of .csv .tsv .parquet .jsonl"),
    ],
)
def test_broken_tables(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / name)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("", "row 2 of column 'en' in .* is empty"),
        (None, "row 2 of column 'en' in .* is empty"),
        (7, "row 2 of column 'en' in .* holds int; text was expected"),
        (["x"], "row 2 of column 'en' in .* holds list; text was expected"),
        ("\ud800", "is not readable JSON .*hex escape"),
    ],
)
def test_cells_that_are_no_text(tmp_path, cell, message):
    (tmp_path / "t.jsonl").write_text(json.dumps({"en": "fine"}) + "\n" + json.dumps({"en": cell}))
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / "t.jsonl").strings("en")


def test_a_missing_key_is_an_empty_cell(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"en": "x", "de": "y"}\n{"en": "z"}')
    with pytest.raises(InputError, match="row 2 of column 'de'"):
        read_table(tmp_path / "t.jsonl").strings("de")


def test_numbers_where_asked_for(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"id": 12, "ok": true}')
    table = read_table(tmp_path / "t.jsonl")
    assert table.strings("id", numbers=True) == ["12"]
    with pytest.raises(InputError, match="holds bool"):
        table.strings("ok", numbers=True)
