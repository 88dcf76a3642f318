"""Every benchmark runs, and reports what it measured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
BENCHMARKS = sorted(path for path in FOLDER.glob("*.py") if path.name != "contest.py")
CONTEST = """
from contest import Contest, main

def setup(n):
    return ([1.0] * n,)

def ours(rows):
    return sum(rows) + {error}

def peer(rows):
    bytearray(50_000_000)[::4096] = bytes(12208)
    return float(len(rows))

main([Contest("sum", setup, ours, peer, "numpy", [{{"n": 500}}], {{"n": 3}}, 1e-6, rounds=3, {claims})])
"""


def run(script, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(FOLDER), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, env=environment)


def test_there_are_benchmarks():
    assert BENCHMARKS


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_benchmark_runs_and_both_sides_agree(path, tmp_path):
    ran = run(path, "--quick", "--json", tmp_path / "rows.json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    written = json.loads((tmp_path / "rows.json").read_text())
    assert written["machine"]["cores"] >= 1
    assert written["rows"]
    for row in written["rows"]:
        assert row["ratio"] > 0
        assert f"{row['ratio']:.1f}" in ran.stdout
        assert row["difference"] <= row["tolerance"]


def test_a_contest_reports_medians_memory_and_the_difference(tmp_path):
    (tmp_path / "sums.py").write_text(CONTEST.format(error="1e-7", claims="memory=0.5"))
    ran = run(tmp_path / "sums.py", "--json", tmp_path / "rows.json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (row,) = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert row["difference"] == pytest.approx(1e-7, rel=1e-3)
    assert {who: len(seconds) for who, seconds in row["all_seconds"].items()} == {"ours": 3, "peer": 3}
    assert row["seconds"]["ours"] == sorted(row["all_seconds"]["ours"])[1]
    assert row["held"]
    if sys.platform == "linux":
        assert 40 < row["megabytes"]["peer"] < 60  # 50 million bytes
        assert row["megabytes"]["ours"] < 10


@pytest.mark.parametrize(
    ("error", "claims", "words"), [("1e-5", "", "1e-05"), ("0", "faster=1e9", "≥ 1000000000.0 ×: NOT held")]
)
def test_another_value_and_a_claim_that_fails_are_a_failure(tmp_path, error, claims, words):
    (tmp_path / "sums.py").write_text(CONTEST.format(error=error, claims=claims))
    ran = run(tmp_path / "sums.py")
    assert ran.returncode == 1
    assert words in ran.stdout


def test_a_crash_of_one_side_is_not_a_result(tmp_path):
    (tmp_path / "sums.py").write_text(CONTEST.format(error="missing", claims=""))
    ran = run(tmp_path / "sums.py")
    assert ran.returncode != 0
    assert "NameError" in ran.stderr
