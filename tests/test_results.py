import json

import pytest

from clip_geometry.registry import InputError
from clip_geometry.results import Record, Results, read_rows, to_frame


def rows(*values):
    return [{"measure": "m", "value": value, "at": {"layer": k}} for k, value in enumerate(values)]


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "results.jsonl")


def values(results):
    return [row["value"] for row in results.read()]


def test_a_record_has_the_keys_that_were_given_in_their_order():
    record = Record("m", 1.5, n=3, at={"layer": 2}, repeats=7)
    assert list(record) == ["measure", "value", "standard_error", "n", "at", "repeats"]
    assert (record.value, record.d, record["repeats"], record.get("d", "absent")) == (1.5, None, 7, "absent")
    assert record.to_json() == json.dumps(dict(record))
    assert list(Record.from_json('{"n": 3, "measure": "m"}')) == ["n", "measure"]


def test_records_merge_like_dictionaries():
    record, changes = Record("m", 1.5, n=3), {"value": 2.5, "d": 4}
    assert record | changes == dict(record) | changes
    assert changes | record == changes | dict(record)
    assert isinstance(changes | record, Record) and next(iter(changes | record)) == "value"
    assert record == dict(record) and record.value == 1.5


@pytest.mark.parametrize("text", ['{"value": "1.5"}', '{"at": ["layer"]}', "[]", "{", '{"value": NaN}'])
def test_text_that_is_no_record(text):
    with pytest.raises(InputError, match="the record"):
        Record.from_json(text)


@pytest.mark.parametrize("lost", range(1, 150, 7))
def test_a_torn_end_costs_the_last_cell_only(results, lost):
    results.append("a", rows(1.5))
    whole = results.path.read_bytes()
    results.append("b", rows(2.5, 3.5, 4.5))
    torn = results.path.read_bytes()[:-lost]
    results.path.write_bytes(torn)
    assert len(torn) > len(whole)
    assert values(results) == [1.5] or lost == 1  # only the newline was lost: the rows are whole
    results.append("b", rows(2.5, 3.5, 4.5))
    assert values(results) == [1.5, 2.5, 3.5, 4.5]


def test_a_cell_torn_twice_is_not_taken_for_a_whole_one(results):
    results.append("a", rows(1.5, 2.5, 3.5))
    first_two = b"\n".join(results.path.read_bytes().splitlines()[:2]) + b"\n"
    results.path.write_bytes(first_two + first_two)
    assert results.read() == []


def test_rows_come_back_in_order_from_a_file_or_its_folder(results):
    assert results.read() == []
    results.append("a", rows(1.5, 2.5))
    results.append("b", [Record("m", 3.5, repeats=7)])
    assert values(results) == [1.5, 2.5, 3.5] and results.finished() == {"a", "b"}
    frame = to_frame(results.read())
    assert frame["at.layer"].tolist()[:2] == [0, 1] and frame["repeats"].tolist()[2] == 7
    results.append("c", rows(4.5))
    with pytest.raises(InputError, match="has no finished result rows"):  # b says nothing of its place
        read_rows(results.path)
    results.path.unlink()
    results.append("a", rows(1.5))
    assert read_rows(results.path) == read_rows(results.path.parent) == results.read()


def test_read_rows_says_what_is_missing(tmp_path):
    with pytest.raises(InputError, match="does not exist; a run folder holds"):
        read_rows(tmp_path)
    with pytest.raises(InputError, match="does not exist; give a run folder"):
        read_rows(tmp_path / "x.jsonl")
    (tmp_path / "y.jsonl").write_text(json.dumps({"some": "json"}))
    with pytest.raises(InputError, match=r"line 1 of .* lacks cell"):
        read_rows(tmp_path / "y.jsonl")
    (tmp_path / "y.jsonl").write_text(json.dumps({"cell": "a", "cell_row": 0, "cell_rows": 2}))
    with pytest.raises(InputError, match="has no finished result rows"):
        read_rows(tmp_path / "y.jsonl")


@pytest.mark.parametrize(
    "wrong",
    [
        {"cell_row": "0"},
        {"cell_row": -1},
        {"value": "1.5"},
        {"value": [1.5]},
        {"at": ["layer"]},
        {"at": {"layer": [1]}},
        {"n": 1.5},
        {"pipeline": "normalize"},
        {"measure": 3},
    ],
)
def test_lines_that_are_no_rows(results, wrong):
    """The cell is computed again; a reader who has nothing else says which line."""
    (row,) = rows(1.5)
    results.append("a", [{**row, "measure": "m"}])
    results.append("b", [row])
    line = json.loads(results.path.read_text().splitlines()[1])
    with results.path.open("a") as file:
        file.write(json.dumps({**line, "cell": "c", **wrong}) + "\n")
    assert results.finished() == {"a", "b"}
    with pytest.raises(InputError, match="line 3 of "):
        read_rows(results.path)


@pytest.mark.parametrize("text", ['{"cell": NaN}', "[" * 100_000, '{"cell": ' + "9" * 5000 + "}", "\x1b[2J", "{}}"])
def test_lines_that_are_no_json_count_as_torn(results, text):
    results.append("a", rows(1.5))
    with results.path.open("a") as file:
        file.write(text + "\n")
    assert values(results) == [1.5]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_not_written(results, value):
    with pytest.raises(InputError, match="are not finite"):
        results.append("a", rows(value))
    assert not results.path.exists()
