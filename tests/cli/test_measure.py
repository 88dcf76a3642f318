"""`measure`: the table, the file of `--json`, and what is said beside the numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.display.table import LEAST_WIDTH
from clip_geometry.measuring.records import CORE
from clip_geometry.measuring.table import numbers_table


@pytest.fixture
def rows(cli, sets, tmp_path):
    def run(*options):
        outcome = cli("measure", *sets, *options, "--json", tmp_path / "rows.jsonl")
        assert outcome.status == 0, outcome.err
        return outcome, cg.read_rows(tmp_path / "rows.jsonl")

    return run


def value_of(rows, measure, modality):
    (found,) = [row.value for row in rows if (row.measure, row.at.get("modality")) == (measure, modality)]
    return found


def test_the_core_of_unit_rows_and_of_rows_as_they_are(rows, sets):
    image, text = (np.load(path).astype(float) for path in sets)
    outcome, found = rows()
    assert list(dict.fromkeys(row.measure for row in found)) == list(CORE)
    assert all(row.measure in outcome.out for row in found) and "pipeline: normalize" in outcome.out
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (image, text)]
    assert value_of(found, "modality_gap", "both") == pytest.approx(float(cg.geometry.modality_gap(*unit)))
    (sets[0].parent / "rows.jsonl").unlink()
    outcome, found = rows("--raw")
    assert "pipeline: raw; " in outcome.out
    assert value_of(found, "modality_gap", "both") == pytest.approx(float(cg.geometry.modality_gap(image, text)))


def test_all_by_a_column(rows, tmp_path):
    (tmp_path / "labels.txt").write_text("\n".join(["10"] * 10 + ["9"] * 30))
    outcome, found = rows("--all", "--labels", tmp_path / "labels.txt", "--by", "label")
    sizes = {(row.at["label"], row.at["modality"]): row.n for row in found if row.measure == "average_cosine"}
    assert sizes == {(9, "image"): 30, (9, "text"): 30, (10, "image"): 10, (10, "text"): 10}
    places = [line.split()[1:3] for line in outcome.out.splitlines() if line.startswith("average_cosine")]
    assert places == [["image", "9"], ["image", "10"], ["text", "9"], ["text", "10"]]
    default = {name for name, each in cg.geometry.measures.items() if each.by_default and not each.evaluator}
    assert {row.measure for row in found} == default | set(CORE)
    assert {row.measure for row in found if row.value is None and "101" in row.note} == {"lid"}


def test_what_is_said_beside_the_numbers(cli, sets, tmp_path):
    image, text = sets
    some = ("--measures", "average_cosine,cone_min_cosine")
    exchanged = cli("measure", text, image, *some)
    assert "holds texts and" in exchanged.err and "so they are used as such despite their order" in exchanged.err
    assert exchanged.out == cli("measure", image, text, *some).out
    assert "±: standard error, jackknife over 20 blocks of items" in exchanged.out
    assert "no ± where no standard error of the measure can be trusted" in exchanged.out
    assert "±" not in cli("measure", image, *some, "--blocks", "0").out
    np.save(tmp_path / "few.npy", np.load(image)[:15])
    assert "there are too few rows for 20 blocks" in cli("measure", "few.npy", *some).out
    np.save(tmp_path / "many.npy", np.random.default_rng(0).normal(size=(4001, 3)))
    slow = cli("measure", "many.npy", "--measures", "uniformity").out
    assert "no ± where time grows with n² and there are more than 4000 rows" in slow
    np.save(tmp_path / "short.npy", np.load(text)[:30])
    unpaired = cli("measure", image, "short.npy")
    assert unpaired.status == 0 and "needs pairs" in unpaired.out and "modality_gap" in unpaired.out
    np.save(text, np.random.default_rng(0).permutation(np.load(text)))
    remarked = cli("measure", *sets, *some, "--json", "rows.jsonl")
    (remark,) = (line for line in remarked.out.splitlines() if line.startswith("remark: "))
    assert "the pairs match no better than random ones" in remark
    found = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert all(row["remarks"] == [remark.removeprefix("remark: ")] for row in found)


def test_sizes_and_the_full_size_fit_80_columns(cli, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(240, 8)) * np.linspace(2, 0.5, 8)
    for name, shift in (("image", 0.5), ("text", -0.5)):
        np.save(tmp_path / f"{name}.npy", x + rng.normal(size=x.shape) + shift)
    monkeypatch.setenv("COLUMNS", "80")
    names = "retrieval[mixed].image.same_modality_at_10,participation_ratio,average_cosine,isoscore"
    outcome = cli("measure", ".", "--measures", names, "--blocks", 0, "--full-size", 480, "--json", "rows.jsonl")
    assert outcome.status == 0, outcome.err
    table = next(block for block in outcome.out.split("\n\n") if "n/2" in block).splitlines()
    assert table[0].split() == ["measure", "set", "n/4", "n/2", "n", "at", "480"]  # n/8 is left out for the width
    assert max(map(len, outcome.out.splitlines())) <= 80
    row = next(row for row in cg.read_rows("rows.jsonl") if row.measure == "participation_ratio")
    (line,) = [line for line in table if line.split()[:2] == ["participation_ratio", "image"]]
    assert line.split("  ")[-1].strip() == "{value:.3f} [{low:.3f}, {high:.3f}]".format(**row.expected)


def test_large_sets_are_streamed_and_say_so(rows, sets, monkeypatch):
    names = ("--measures", "isoscore,effective_rank,modality_gap")
    _, expected = rows(*names)
    (sets[0].parent / "rows.jsonl").unlink()
    monkeypatch.setattr("clip_geometry.embeddings.LARGE", 0)
    outcome, found = rows(*names)
    assert "rows were streamed: in float64 they take more than 200 MB" in outcome.out
    assert "no ± where rows are streamed" in outcome.out and all(row["streamed"] for row in found)
    assert [row.value for row in found] == pytest.approx([row.value for row in expected], abs=1e-9)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_number_is_printed_whole(rows, monkeypatch, width):
    """A line of the table for each row holds its set and its numbers, however narrow the terminal."""
    monkeypatch.setenv("COLUMNS", str(width))
    names = "isoscore,modality_silhouette[sqeuclidean],isotropy_i2[canonical],cone_mean_cosine"
    outcome, found = rows("--measures", names)
    lines = outcome.out.splitlines()
    for measure, place, n, value, null, *_ in numbers_table(found).rows:
        numbers = " ".join([value, null]).replace("−", "-").split()
        begins = [[place, *size, *numbers] for size in ([], [n])]  # n where there is space
        some = [line.split()[1:] for line in lines if line.startswith(measure[:LEAST_WIDTH])]
        assert any(words[: len(begin)] == begin for words in some for begin in begins), measure
    assert ("range" in outcome.out, "  direction" in outcome.out) == (width == 200, width >= 80)
    table = [line for line in lines if "±" in line and line[0] not in "±n"]
    assert len(table) == len(found) and max(map(len, table)) <= max(width, 72)  # of what cannot be folded


# --- processes


def test_ctrl_c_is_one_sentence():
    """Processes that are interrupted while they work; only what was embedded is found again."""
    code = (
        "import os, signal, sys; from clip_geometry.cli import main\n"
        "import clip_geometry.measuring.records as m, clip_geometry.encoders as e\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which jobs in the background ignore
        "m.given_sets = e.config_class = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)\n"
        "for command in sys.argv[1:]:\n"
        "    if os.fork() == 0: sys.argv = ['clip-geometry', *command.split()]; main()\n"
        "    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)"
    )
    commands = (f"measure {__file__}", "embed x y -o z")
    done = subprocess.run([sys.executable, "-c", code, *commands], capture_output=True, text=True)
    assert done.stdout == "130\n130\n"
    said = "clip-geometry: interrupted"
    assert done.stderr == f"{said}\n{said}; run the same embed command again to continue\n"


def test_waiting_threads_sleep():
    """What OpenMP reads when torch is loaded is set before, and what the user has set is kept."""
    code = (
        "import os, sys; from clip_geometry.cli import main\n"
        "assert 'torch' not in sys.modules\n"
        "sys.argv = ['clip-geometry', '--version']\n"
        "try: main()\n"
        "except SystemExit: print(os.environ.get('GOMP_SPINCOUNT'))"
    )
    plain = {key: value for key, value in os.environ.items() if key not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    for mine, count in (({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")):
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=plain | mine)
        assert child.stdout.splitlines()[-1] == count, child.stderr


def test_links_are_followed_and_devices_written_to(cli, sets, tmp_path):
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(real)
    assert cli("measure", sets[0], "--json", link).status == 0
    assert link.is_symlink() and real.read_text()
    assert cli("measure", sets[0], "--json", "/dev/null").status == 0
    assert Path("/dev/null").is_char_device()
