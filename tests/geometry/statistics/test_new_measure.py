"""A new measure is a short function of a statistic and an entry of the catalog; every mode then has it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
# whose statistic without each block needs the rows in memory
WITHOUT_ERROR_STREAMED = {"Spectrum", "Partition", "KernelSums", "CrossKernelSums", "LinearKernels"}
NO_ERROR = {"Neighbors"}  # of which the jackknife computes every subset again


@pytest.fixture(scope="module")
def numbers():
    script = TESTS / "support" / "toy_measures.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=TESTS)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_every_statistic_has_a_toy(numbers):
    from clip_geometry.geometry import statistics
    from clip_geometry.geometry.statistics import Statistic

    known = {each.__name__ for each in vars(statistics).values() if isinstance(each, type) and each is not Statistic}
    assert {f"toy_{name}" for name in known - {"BlockedRows"}} == numbers["direct"].keys()


def test_the_table_has_the_value_and_the_error_of_the_function(numbers):
    for name, (value, error) in numbers["direct"].items():
        (row,) = (row for key, row in numbers["memory"].items() if key.split()[0] == name and "text" not in key.split())
        assert row[0] == pytest.approx(value, rel=1e-9) and row[1] == pytest.approx(error, rel=1e-6), name


def test_every_number_has_an_error_and_a_null_value(numbers):
    for key, (value, error, null) in numbers["memory"].items():
        assert error > 0 and abs(null - value) > 1e-6, key


@pytest.mark.parametrize("mode", ["streamed", "engine"])
def test_streamed_rows_give_the_same_numbers(numbers, mode):
    in_memory = {"toy_Projections"}  # which an engine does not have
    for key, row in numbers["memory"].items():
        name = key.split()[0]
        if mode == "engine" and name in in_memory:
            continue
        value, error, _ = numbers[mode][key]
        assert value == pytest.approx(row[0], rel=1e-9), key
        if name.removeprefix("toy_") in WITHOUT_ERROR_STREAMED | NO_ERROR | {"Projections"}:
            continue
        assert error == pytest.approx(row[1], rel=1e-6), key


def test_lists_and_tables_have_it(numbers):
    assert "Toy of Moments" in numbers["listed"] and "f(statistic)" in numbers["listed"]
    assert all(title in numbers["table"] for title in numbers["titles"])
