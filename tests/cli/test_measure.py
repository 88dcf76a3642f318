import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.display.numbers import in_ascii, with_error
from clip_geometry.display.table import LEAST_WIDTH
from clip_geometry.geometry import average_cosine, measures, modality_gap, null_value
from clip_geometry.measuring.records import CORE
from clip_geometry.measuring.table import numbers_table
from clip_geometry.results import read_rows


def value_of(rows, measure, modality):
    (row,) = [row for row in rows if (row["measure"], row["at"].get("modality")) == (measure, modality)]
    return row


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.fixture
def rows(cli, sets, tmp_path):
    def run(*options):
        outcome = cli("measure", *sets, *options, "--json", tmp_path / "rows.jsonl")
        assert outcome.status == 0, outcome.err
        return outcome, read_rows(tmp_path / "rows.jsonl")

    return run


def test_rows_are_made_unit_length_first(rows, sets):
    outcome, found = rows()
    image, text = (np.load(path).astype(float) for path in sets)
    assert "pipeline: normalize" in outcome.out
    assert value_of(found, "modality_gap", "both")["value"] == pytest.approx(
        float(modality_gap(unit(image), unit(text)))
    )
    assert value_of(found, "average_cosine", "text")["value"] == pytest.approx(float(average_cosine(text)))


def test_raw_takes_them_as_they_are(rows, sets):
    outcome, found = rows("--raw")
    image, text = (np.load(path) for path in sets)
    assert "pipeline: raw; " in outcome.out
    assert value_of(found, "modality_gap", "both")["value"] == pytest.approx(float(modality_gap(image, text)))


def test_the_core_is_measured_and_all_adds_every_default_measure(rows):
    _, core = rows()
    assert [name for name in CORE if name in {row["measure"] for row in core}] == list(CORE)
    assert list(dict.fromkeys(row["measure"] for row in core)) == list(CORE)


def test_every_default_measure_has_a_row_or_a_note(rows):
    _, found = rows("--all")
    default = {name for name, measure in measures.items() if measure.by_default and not measure.evaluator}
    assert {row["measure"] for row in found} == default | set(CORE)
    notes = {row["measure"]: row["note"] for row in found if row["value"] is None}
    assert notes.pop("lid").startswith("x has 40 rows; expected at least 101")
    assert set(notes.values()) == {"needs labels; give one per row (labels, --labels FILE)"}


def test_the_table_shows_each_row(rows):
    outcome, found = rows()
    for row in found:
        assert row["measure"] in outcome.out
    gap = value_of(found, "modality_gap", "both")
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("modality_gap ")]
    assert f"{gap['value']:.3f}" in line and "↓  closer" in line


def test_named_measures_only_and_in_their_order(rows):
    _, found = rows("--measures", "isoscore, silhouette[cosine],average_cosine".replace("silhouette[cosine],", ""))
    assert [row["measure"] for row in found] == ["isoscore"] * 2 + ["average_cosine"] * 2


def test_rows_say_where_they_come_from(rows, sets):
    _, found = rows("--pipeline", "normalize,center[pooled]", "--seed", "3", "--measures", "isoscore")
    row = value_of(found, "isoscore", "image")
    assert row["pipeline"] == ["normalize", "center[pooled]"]
    assert row["fitted_on"] == f"{sets[0]} + {sets[1]}:pooled"
    assert (row["n"], row["d"], row["dtype"], row["seed"]) == (40, 6, "float32", 3)
    assert str(sets[0]) in row["dataset"]
    assert "torch" in row["versions"]


def test_null_values_are_those_of_the_library(rows):
    _, found = rows("--measures", "modality_gap,isoscore")
    expected = null_value("modality_gap", 40, 6, prepare=lambda x: x / x.norm(dim=1, keepdim=True))
    assert value_of(found, "modality_gap", "both")["null_value"] == pytest.approx(float(expected), rel=1e-9)
    assert value_of(found, "isoscore", "text")["null_value"] != value_of(found, "isoscore", "text")["value"]


def test_labels(rows, tmp_path):
    (tmp_path / "labels.txt").write_text("\n".join(["cat", "dog"] * 20))
    _, found = rows("--all", "--labels", tmp_path / "labels.txt")
    assert -1 < value_of(found, "silhouette", "image")["value"] < 1
    assert {row["measure"] for row in found if row["value"] is None} == {"lid"}  # of a hundred neighbors


def test_by_a_column(rows, tmp_path, sets):
    (tmp_path / "labels.txt").write_text("\n".join(["cat"] * 10 + ["dog"] * 30))
    _, found = rows("--labels", tmp_path / "labels.txt", "--by", "label", "--measures", "average_cosine")
    places = {(row["at"]["label"], row["at"]["modality"]): row for row in found}
    assert {key: row["n"] for key, row in places.items()} == {
        ("cat", "image"): 10, ("cat", "text"): 10, ("dog", "image"): 30, ("dog", "text"): 30,
    }  # fmt: skip
    image = np.load(sets[0])
    assert places["dog", "image"]["value"] == pytest.approx(float(average_cosine(image[10:])))


def test_layers_that_are_mixed_are_said(cli, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    vectors = np.random.default_rng(0).normal(size=(60, 3))
    for layers, name in (([0, 1, 2] * 20, "several"), ([4] * 60, "one")):
        pq.write_table(pa.table({"embedding": list(vectors), "layer": layers}), tmp_path / f"{name}.parquet")
    names = ("--measures", "average_cosine")
    note = "remark: 3 layers of rows together; by layer (--by layer) each is measured on its own\n"
    assert cli("measure", tmp_path / "several.parquet", *names).out.count(note) == 1
    assert "remark" not in cli("measure", tmp_path / "several.parquet", *names, "--by", "layer").out
    assert "remark" not in cli("measure", tmp_path / "one.parquet", *names).out


def test_an_older_json_file_is_kept_and_an_empty_one_filled(rows, refused, sets, tmp_path):
    older, empty = tmp_path / "older.jsonl", tmp_path / "rows.jsonl"
    older.write_text("mine\n")
    sentence = refused("measure", sets[0], "--json", older)
    assert sentence == f"{older} exists; choose another name or remove it first"
    assert older.read_text() == "mine\n"
    empty.touch()
    _, found = rows("--measures", "isoscore")
    assert len(found) == 2


def test_links_are_followed_and_devices_written_to(rows, cli, sets, tmp_path):
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(real)
    assert cli("measure", sets[0], "--json", link).status == 0
    assert link.is_symlink() and real.read_text()
    assert cli("measure", sets[0], "--json", "/dev/null").status == 0
    assert Path("/dev/null").is_char_device()


def values_of(outcome):
    assert outcome.status == 0, outcome.err
    return [line.split()[:4] for line in outcome.out.splitlines() if line.startswith("average_cosine")]


NAMED = ("--measures", "average_cosine", "--blocks", "0")


def test_exchanged_files_go_where_their_names_say(cli, sets, tmp_path):
    image, text = sets
    straight, exchanged = (cli("measure", *paths, *NAMED) for paths in ((image, text), (text, image)))
    assert values_of(straight) == values_of(exchanged)
    said = f"{text} holds texts and {image} images: they are taken as such, whatever their order\n"
    assert (straight.err, exchanged.err) == ("", said)
    assert [line[1] for line in values_of(cli("measure", text, *NAMED))] == ["text"]
    for modality, rows in zip(("image", "text"), sets, strict=True):
        (tmp_path / modality).mkdir()
        rows.rename(tmp_path / modality / rows.name)
    folders = cli("measure", tmp_path / "text", tmp_path / "image", *NAMED)
    assert values_of(folders) == values_of(straight) and "whatever their order" in folders.err


def test_a_name_that_contradicts_is_refused_and_two_of_one_kind_are_compared(cli, refused, sets, tmp_path):
    image, text = sets
    other = tmp_path / "rows.npy"
    other.write_bytes(image.read_bytes())
    for given, what in (((text, other), "text rows and was given as image"), ((other, image), "image rows and was")):
        assert what in refused("measure", *given, *NAMED)
    values_of(cli("measure", other, text, *NAMED))
    (tmp_path / "b").mkdir()
    alike = cli("measure", image, other.rename(tmp_path / "b" / "image.npy"), *NAMED)
    assert [line[1] for line in values_of(alike)] == ["image", "text"]
    assert "both sets hold image rows: those of" in alike.err


def test_labels_of_one_side_only_are_told(cli, sets, tmp_path):
    np.save(tmp_path / "text.npy", np.load(sets[1])[:30])
    (tmp_path / "l.txt").write_text("".join(f"{k % 3}\n" for k in range(40)))
    outcome = cli("measure", *sets, "--labels", tmp_path / "l.txt", "--measures", "silhouette", "--blocks", "0")
    assert outcome.err == "the 40 labels are not those of the 30 text rows, which get none\n"


def test_remarks_stand_below_the_table_and_in_the_rows(cli, sets, tmp_path):
    np.save(sets[1], np.random.default_rng(0).permutation(np.load(sets[1])))
    outcome = cli("measure", *sets, *NAMED, "--json", tmp_path / "rows.jsonl")
    (remark,) = (line for line in outcome.out.splitlines() if line.startswith("remark: "))
    assert "the pairs match no better than random ones" in remark
    found = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert all(row["remarks"] == [remark.removeprefix("remark: ")] for row in found)
    (tmp_path / "l.txt").write_text("".join(f"{k % 2}\n" for k in range(40)))
    grouped = cli("measure", *sets, "--labels", tmp_path / "l.txt", "--by", "label", *NAMED)
    assert "remark on 0: the pairs" in grouped.out and "remark on 1: the pairs" in grouped.out


def test_every_row_shows_its_n(cli, sets, tmp_path):
    short = tmp_path / "s.npy"
    np.save(short, np.load(sets[1])[:30])
    lines = {line.split()[0]: line.split() for line in cli("measure", sets[0], short).out.splitlines() if line}
    assert lines["modality_gap"][1:3] == ["both", "70"]


@pytest.mark.parametrize(
    ("command", "ending"),
    [(f"measure {__file__}", ""), ("embed x y -o z", "; the same embed command continues")],
    ids=["measure", "embed"],
)
def test_ctrl_c_is_one_sentence(command, ending):
    """A process that is interrupted while it works; only what was embedded is found again."""
    code = (
        "import os, signal, sys; from clip_geometry.cli import main\n"
        "import clip_geometry.measuring.measurement as m, clip_geometry.encoders as e\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which jobs in the background ignore
        "m.given_sets = e.config_class = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)\n"
        f"sys.argv = ['clip-geometry', *{command.split()}]; main()"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert child.returncode == 130
    assert child.stderr == f"clip-geometry: interrupted{ending}\n"


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


NARROW = "isoscore,modality_silhouette[sqeuclidean],isotropy_i2[canonical],cone_mean_cosine"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_every_number_is_printed_whole(rows, monkeypatch, width):
    """A line of the table for each row holds its set and its numbers, however narrow the terminal.

    n, which stands above the table, is left out before.
    """
    monkeypatch.setenv("COLUMNS", str(width))
    outcome, found = rows("--measures", NARROW)
    lines = outcome.out.splitlines()
    for measure, place, n, value, null, *_ in numbers_table(found).rows:
        numbers = " ".join([value, null]).replace("−", "-").split()
        begins = [[place, *size, *numbers] for size in ([], [n])]  # n where there is space
        some = [line.split()[1:] for line in lines if line.startswith(measure[:LEAST_WIDTH])]
        assert any(words[: len(begin)] == begin for words in some for begin in begins), measure
    assert ("range" in outcome.out, "  direction" in outcome.out) == (width >= 100, width >= 80)
    assert all("↓" in line or "↑" in line for line in lines if line.startswith("isoscore"))
    assert all(line == line.rstrip() for line in lines)
    table = [line for line in lines if "±" in line and line[0] not in "±n"]
    assert len(table) == len(found)
    assert max(map(len, table)) <= max(width, 72)  # of what cannot be folded


def test_only_text_is_folded(rows, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    outcome, _ = rows("--measures", NARROW)
    lines = outcome.out.splitlines()
    (first,) = [k for k, line in enumerate(lines) if line.startswith("modality_silhouette ")]
    assert "±" in lines[first] and lines[first + 1] == "[sqeuclidean]"


def test_standard_errors_that_are_left_out_have_a_reason(cli, sets, tmp_path):
    few = tmp_path / "few.npy"
    np.save(few, np.load(sets[0])[:15])
    names = ("--measures", "average_cosine,cone_min_cosine")
    out = cli("measure", sets[0], *names).out
    assert "±: standard error, jackknife over 20 blocks of items; not shown where it is 0\n" in out
    assert "no ± where no standard error of the measure can be trusted (list measures says why)\n" in out
    out = cli("measure", few, *names).out
    assert "±: standard" not in out
    assert "no ± where the rows are too few for 20 blocks; --blocks takes fewer\n" in out
    assert "±: standard error, jackknife over 15 blocks" in cli("measure", few, *names, "--blocks", "15").out
    assert "±" not in cli("measure", few, *names, "--blocks", "0").out


def test_the_reason_for_many_rows_is_the_time(cli, tmp_path):
    np.save(tmp_path / "many.npy", np.random.default_rng(0).normal(size=(4001, 3)))
    out = cli("measure", tmp_path / "many.npy", "--measures", "uniformity").out
    assert "no ± where time grows with n² and there are more than 4000 rows\n" in out


def test_groups_come_in_the_order_of_their_numbers(cli, sets, tmp_path):
    (tmp_path / "labels.txt").write_text("\n".join(["10", "9", "b", "a"] * 10))
    out = cli("measure", sets[0], "--labels", tmp_path / "labels.txt", "--by", "label", "--measures", "isoscore").out
    groups = [line.split()[2] for line in out.splitlines() if line.startswith("isoscore")]
    assert groups == ["9", "10", "a", "b"]


def test_large_sets_are_streamed_and_say_so(cli, sets, tmp_path, monkeypatch):
    names = ("--measures", "isoscore,effective_rank", "--json", tmp_path / "rows.jsonl")
    expected = cli("measure", *sets, "--measures", "isoscore,average_cosine").out
    monkeypatch.setattr("clip_geometry.embeddings.LARGE", 0)
    out = cli("measure", *sets, *names).out
    assert "rows were streamed: in float64 they take more than 200 MB" in out
    assert "no ± where rows are streamed: measures of moments and sums have it" in out
    assert all(row["streamed"] for row in read_rows(tmp_path / "rows.jsonl"))
    assert expected.split("isoscore")[1].split()[:4] == out.split("isoscore")[1].split()[:4]  # image, value, ±


def test_couples_of_three_sets_stand_in_a_table_of_modalities(cli, tmp_path):
    """Three paths as one folder, the value above the diagonal and the null value below it, in one order."""
    rng = np.random.default_rng(4)
    for name in ("video", "audio", "text"):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(60, 8)))
    chosen = ("--measures", "modality_gap,isoscore", "--json", "rows.json")
    outcome = cli("measure", *(f"{name}.npy" for name in ("video", "audio", "text")), *chosen)
    assert outcome.status == 0, outcome.err
    found = {
        row["at"]["modality"]: row for row in read_rows(tmp_path / "rows.json") if row["measure"] == "modality_gap"
    }
    assert {frozenset(place.split("+")) for place in found} == {
        frozenset(couple) for couple in (("video", "audio"), ("video", "text"), ("audio", "text"))
    }
    table = outcome.out[outcome.out.index("\nmodality_gap\n") + 1 :].splitlines()
    order = ["audio", "text", "video"]
    assert (table[0], table[1].split()) == ("modality_gap", order)
    lines = {
        line.split()[0]: line.split()[1:] for line in table[2:5] if line.split()[:1][0] in ("video", "audio", "text")
    }
    assert list(lines) == order
    couple = next(row for place, row in found.items() if set(place.split("+")) == {"video", "text"})
    assert with_error(couple, couple["null_value"]).split() == lines["text"][-3:]  # "0.127 ± 0.056"
    assert float(lines["video"][1]) == pytest.approx(couple["null_value"], abs=1e-3)
    assert "image and text in the name of a measure" not in outcome.out
    out = " ".join(cli("measure", "audio.npy", "text.npy", "video.npy").out.split())
    assert "image and text in the name of a measure are the first and the second set: of audio+text, audio and" in out


def test_two_paths_of_one_modality_among_three_are_refused(refused, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "audio.npy", np.eye(4))
    np.save(tmp_path / "text.npy", np.eye(4))
    assert "b/audio.npy holds audio rows, and so does a set before it" in refused(
        "measure", "a/audio.npy", "text.npy", "b/audio.npy"
    )


# --- values by size


@pytest.fixture
def pairs_of_files(tmp_path):
    """Two files of 240 aligned rows in 8 dimensions."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(240, 8)) * np.linspace(2, 0.5, 8)
    for name, shift in (("image", 0.5), ("text", -0.5)):
        np.save(tmp_path / f"{name}.npy", (x + rng.normal(size=x.shape) + shift).astype(np.float32))
    return tmp_path / "image.npy", tmp_path / "text.npy"


def test_scaling_adds_a_table_that_fits_80_columns(cli, pairs_of_files, tmp_path, monkeypatch):
    names = "retrieval[mixed].image.same_modality_at_10,participation_ratio,average_cosine,isoscore"
    monkeypatch.setenv("COLUMNS", "80")
    options = "--measures", names, "--blocks", "0", "--full-size", "480", "--json", tmp_path / "rows.jsonl"
    outcome = cli("measure", *pairs_of_files, *options)
    assert outcome.status == 0, outcome.err
    table = next(block for block in outcome.out.split("\n\n") if "n/2" in block).splitlines()
    assert table[0].split() == ["measure", "set", "n/4", "n/2", "n", "at", "480"]  # n/8 is left out for the width
    assert all(len(line) <= 80 for line in outcome.out.splitlines() if str(tmp_path) not in line)
    rows = {(row.measure, row.at["modality"]): row for row in read_rows(tmp_path / "rows.jsonl")}
    assert "scaling" not in rows["average_cosine", "image"]
    row = rows["participation_ratio", "image"]
    (line,) = [line for line in table if line.split()[:2] == ["participation_ratio", "image"]]
    expected = "{value:.3f} [{low:.3f}, {high:.3f}]".format(**row.expected)
    assert line.split("  ")[-1].strip() == expected
    assert line.split()[2:5] == [in_ascii(size["value"]) for size in row.scaling[1:]]
    said = " ".join(outcome.out.split())
    assert "value by size: n = 240 items; below n the mean over random subsets" in said
    assert "at 480, nothing is expected of isoscore: it levels off, and isoscore[unbiased] estimates where" in said


def test_scaling_without_a_full_size_expects_nothing(cli, pairs_of_files, tmp_path):
    options = "--measures", "lid,isoscore", "--blocks", "0", "--scaling", "--json", tmp_path / "rows.jsonl"
    outcome = cli("measure", *pairs_of_files, *options)
    head = next(line for line in outcome.out.splitlines() if "n/2" in line)
    assert head.split() == ["measure", "set", "n/8", "n/4", "n/2", "n"]
    row = value_of(read_rows(tmp_path / "rows.jsonl"), "lid", "text")
    assert [size["n"] for size in row.scaling] == [120, 240] and row.expected is None


def test_a_full_size_is_larger_and_of_all_rows(refused, sets):
    assert (
        refused("measure", *sets, "--full-size", "40") == "the full size is 40, but 40 items were given; expected more"
    )
    assert refused("measure", *sets, "--full-size", "80", "--by", "label").startswith("a full size and groups of rows")


def test_recall_near_1_has_an_interval_and_no_error_of_0(cli, tmp_path):
    """50 of 50 found: Wilson's interval starts at 50/(50 + 1.96²) = 0.929."""
    rows = np.eye(50)
    for name in ("image", "text"):
        np.save(tmp_path / f"{name}.npy", rows)
    files = tmp_path / "image.npy", tmp_path / "text.npy"
    out = cli("measure", *files, "--measures", "retrieval.image_to_text.r_at_1", "--json", tmp_path / "r.jsonl").out
    assert "1.000 [0.929, 1.000]" in out and "[ ]: 95% interval of a share" in out and "±" not in out
    (record,) = map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines())
    assert (record["low"], record["high"]) == (pytest.approx(50 / (50 + 1.96**2), abs=1e-4), 1)
    assert record["standard_error"] > 0 and record["by_item"] == [1] * 50
