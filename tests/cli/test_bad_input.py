"""Whatever is wrong, the user reads one sentence and the status is 2."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

DATA = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)


def npy(path, array):
    np.save(path, array, allow_pickle=True)
    return path


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])
    return path


def truncated_parquet(folder):
    pd.DataFrame({"v": list(DATA)}).to_parquet(folder / "x.parquet")
    return cut(folder / "x.parquet")


def truncated_safetensors(folder):
    save_file({"embeddings": DATA}, folder / "x.safetensors")
    return cut(folder / "x.safetensors")


def text_file(folder):
    (folder / "x.npy").write_text("hello")
    return folder / "x.npy"


def empty_file(folder):
    (folder / "x.npy").touch()
    return folder / "x.npy"


def not_a_number(value):
    rows = DATA.copy()
    rows[3, 1] = value
    return rows


FILES = {
    "missing file": (lambda f: f / "none.npy", "none.npy"),
    "empty directory": (lambda f: f, "directory|folder"),
    "pickled objects": (lambda f: npy(f / "x.npy", np.array([{"a": 1}], dtype=object)), "pickle|object"),
    "truncated npy": (lambda f: cut(npy(f / "x.npy", DATA)), "x.npy"),
    "truncated parquet": (truncated_parquet, "x.parquet"),
    "truncated safetensors": (truncated_safetensors, "x.safetensors"),
    "empty file": (empty_file, "empty"),
    "text file": (text_file, "x.npy"),
    "one dimension": (lambda f: npy(f / "x.npy", DATA[:, 0]), r"\(8,\)"),
    "three dimensions": (lambda f: npy(f / "x.npy", DATA[None]), r"\(1, 8, 4\)"),
    "complex": (lambda f: npy(f / "x.npy", DATA.astype(complex)), "complex128"),
    "strings": (lambda f: npy(f / "x.npy", DATA.astype(str)), "holds <U32 values"),
    "NaN": (lambda f: npy(f / "x.npy", not_a_number(np.nan)), "NaN or infinity in row 3"),
    "infinity": (lambda f: npy(f / "x.npy", not_a_number(np.inf)), "NaN or infinity in row 3"),
    "zero rows under normalize": (lambda f: npy(f / "x.npy", np.where(np.arange(8)[:, None] == 5, 0, DATA)), "row 5"),
    "no rows": (lambda f: npy(f / "x.npy", DATA[:0]), "0 rows; expected at least 2"),
    "one row": (lambda f: npy(f / "x.npy", DATA[:1]), "1 row; expected at least 2"),
}


@pytest.mark.parametrize("case", FILES)
def test_unusable_embeddings(refused, tmp_path, case):
    make, message = FILES[case]
    sentence = refused("measure", make(tmp_path))
    assert_mentions(sentence, message)


def assert_mentions(sentence, pattern):
    import re

    assert re.search(pattern, sentence), sentence


def test_different_dimensions(refused, sets, tmp_path):
    other = npy(tmp_path / "o.npy", DATA)
    sentence = refused("measure", sets[0], other, "--measures", "modality_gap")
    assert "needs one space, but image has dimension 6 and text has dimension 4" in sentence


def test_a_paired_measure_by_name_on_unequal_lengths(refused, sets, tmp_path):
    short = npy(tmp_path / "s.npy", np.load(sets[1])[:30])
    sentence = refused("measure", sets[0], short, "--measures", "matching_cosine")
    assert_mentions(sentence, "^matching_cosine.* needs pairs: 40 image rows and 30 text rows")


def test_a_paired_measure_unnamed_is_left_out_and_the_rest_runs(cli, sets, tmp_path):
    short = npy(tmp_path / "s.npy", np.load(sets[1])[:30])
    outcome = cli("measure", sets[0], short)
    assert outcome.status == 0
    assert "needs pairs" in outcome.out
    assert "modality_gap" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--measures", "isoscor"], "unknown measure 'isoscor'; did you mean 'isoscore'"),
        (["--measures", ","], "measures is empty"),
        (["--pipeline", "normalise"], "unknown pipeline step 'normalise'; did you mean 'normalize'"),
        (["--pipeline", "center[both]"], "unknown scope 'both'"),
        (["--raw", "--pipeline", "center"], "--raw and --pipeline were both given"),
        (["--measures", "silhouette"], "silhouette needs labels; give one per row (labels, --labels FILE)"),
        (["--measures", "modality_gap"], "modality_gap needs two modalities, only image was given"),
        (["--by", "breed"], "no column 'breed' to group by"),
        (["--json", "none/here.jsonl"], "the folder none does not exist"),
        (["--json", "."], "is a directory"),
        (["--json", "image.npy/x.jsonl"], "image.npy is a file, not a folder, so image.npy/x.jsonl cannot be written"),
        (["--json", "/proc/x.jsonl"], "cannot write to /proc/x.jsonl: No such file or directory"),
        (["--blocks", "1"], "blocks is 1; expected 0 or from 2 to the number of items, which is 40"),
        (["--blocks", "41"], "blocks is 41; expected 0 or from 2 to the number of items, which is 40"),
    ],
)
def test_wrong_options_of_measure(refused, sets, arguments, message):
    assert message in refused("measure", sets[0], *arguments)


def test_a_measure_across_modalities_after_unshared_centering(refused, sets):
    sentence = refused("measure", *sets, "--pipeline", "normalize,center", "--measures", "modality_gap")
    assert "center was fitted on each modality by itself; write center[pooled]" in sentence


@pytest.mark.parametrize(
    ("labels", "message"),
    [(["a"] * 40, "all 40 labels are equal"), (["a", "b"], "2 labels were given for 40 image rows")],
)
def test_unusable_labels(refused, sets, tmp_path, labels, message):
    (tmp_path / "l.txt").write_text("\n".join(labels))
    assert message in refused("measure", sets[0], "--labels", tmp_path / "l.txt")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["open_clip:ViT-B-23/fresh", "scenes"], "did you mean 'ViT-B-32'"),
        (["opn_clip:ViT-B-32/fresh", "scenes"], "open_clip"),
        (["scenes-clip/fresh", "scens"], "did you mean 'scenes'"),
        (["scenes-clip/fresh", "scenes", "sed=1"], "unknown option 'sed'; did you mean 'seed'"),
        (["scenes-clip/fresh", "scenes", "seed=one"], "seed"),
        (["scenes-clip/fresh", "scenes", "--split", "tset"], "split"),
        (["scenes-clip/fresh", "scenes", "--precision", "fp8"], "precision"),
        (["scenes-clip/fresh", "scenes", "--prompt", "no place"], "{}"),
        (["scenes-clip/fresh", "scenes", "datas.seed=1"], "unknown prefix 'datas'"),
    ],
)
def test_wrong_arguments_of_embed(refused, arguments, message):
    assert message in refused("embed", *arguments, "-o", "out")
    assert not Path("out").exists()


def test_a_device_that_is_not_there(refused):
    sentence = refused("embed", "scenes-clip/fresh", "scenes", "--device", "cuda:99", "-o", "out")
    assert sentence.startswith("device 'cuda:99' was asked for")


def test_a_folder_without_images(refused, tmp_path):
    (tmp_path / "photos").mkdir()
    sentence = refused("embed", "scenes-clip/fresh", tmp_path / "photos", "-o", "out")
    assert "photos" in sentence and "image" in sentence


CONFIG = "name: t\nexperiment: geometry\nmodel: scenes-clip/fresh\npairs: {name: scenes, size: 4}\n"


@pytest.mark.experiments
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CONFIG + "pipline: [normalize]", "unknown key 'pipline'; did you mean 'pipeline'"),
        (CONFIG + "seed: one", "key 'seed' is 'one': input should be a valid integer"),
        (CONFIG + "batch_size: 0", "batch_size"),
        (CONFIG + "seed: -1", "key 'seed' is -1"),
        (CONFIG + "measures: []", "key 'measures' is []"),
        (CONFIG + "measures: [isoscor]", "unknown measure 'isoscor'; did you mean 'isoscore'"),
        (CONFIG + "pipeline: [normalise]", "unknown pipeline step 'normalise'"),
        (CONFIG.replace("scenes-clip/fresh", "open_clip:ViT-B-23/fresh"), "did you mean 'ViT-B-32'"),
        (CONFIG.replace("size: 4", "siez: 4"), "did you mean 'size'"),
        (CONFIG.replace("geometry", "geometri"), "unknown experiment 'geometri'; did you mean 'geometry'"),
        (CONFIG.replace("experiment: geometry\n", ""), "key 'experiment' is missing"),
        (CONFIG.replace("name: t", "name: ../t"), "name"),
        (CONFIG + "sweep: {seed: 3}", "'sweep' must map dotted keys to non-empty lists"),
        ("name: !!python/object:os.system t", "could not determine a constructor for the tag"),
        ("- a list", "a YAML mapping was expected"),
    ],
)
def test_wrong_configs(refused, tmp_path, text, message):
    (tmp_path / "c.yaml").write_text(text)
    assert message in refused("run", tmp_path / "c.yaml")


@pytest.mark.experiments
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.yaml"], "none.yaml does not exist"),
        (["."], "is a directory"),
        (["c.yaml", "seed"], "'seed' is not of the form key=value"),
        (["c.yaml", "--smoke"], "has no section 'smoke'"),
    ],
)
def test_wrong_arguments_of_run(refused, tmp_path, arguments, message):
    (tmp_path / "c.yaml").write_text(CONFIG)
    assert message in refused("run", *arguments)


def test_wrong_arguments_of_compare_and_list(refused, sets, cli, tmp_path):
    assert "does not exist" in refused("compare", "a", "b")
    assert "there is no list of 'mesures'; did you mean 'measures'" in refused("list", "mesures")
    cli("measure", sets[0], "--json", tmp_path / "a.jsonl")
    assert "1 run given; compare needs at least two" in refused("compare", tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_text(json.dumps({"a": 1}))
    said = refused("compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert "lacks cell: it is damaged or another kind of file" in said


def test_rows_of_another_kind_cannot_be_compared(refused, sets, cli, tmp_path):
    from clip_geometry.results import Results

    cli("measure", sets[0], "--json", tmp_path / "a.jsonl")
    Results(tmp_path / "b.jsonl").append("cell", [{"value": 1.5}])
    assert "no finished result rows of a run" in refused("compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl")


def test_a_group_that_is_too_small_is_named(refused, sets, tmp_path):
    (tmp_path / "l.txt").write_text("\n".join(["a"] * 39 + ["b"]))
    sentence = refused("measure", sets[0], "--labels", tmp_path / "l.txt", "--by", "label")
    assert sentence == "in the group of label b: image has 1 row; expected at least 2"


def test_blocks_are_of_items_and_of_each_group(cli, refused, sets, tmp_path):
    """Image and text of one position are one item; a group has fewer items than the whole."""
    assert "the number of items, which is 40" in refused("measure", *sets, "--blocks", "41")
    (tmp_path / "l.txt").write_text("\n".join(["a"] * 30 + ["b"] * 10))
    by = ("--labels", tmp_path / "l.txt", "--by", "label", "--measures", "isoscore")
    assert refused("measure", sets[0], *by, "--blocks", "11") == (
        "in the group of label b: blocks is 11; expected 0 or from 2 to the number of items, which is 10"
    )
    assert cli("measure", sets[0], *by, "--blocks", "10").status == 0
    assert cli("measure", sets[0], *by).status == 0


def test_a_full_disk_is_one_sentence(refused, sets, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("clip_geometry.files.os.fsync", full)
    sentence = refused("measure", sets[0], "--measures", "isoscore", "--json", tmp_path / "a.jsonl", out_may_be=True)
    assert sentence == f"cannot use {tmp_path / 'a.jsonl'}: No space left on device"
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(refused, sets):
    sets[0].chmod(0)
    assert "image.npy" in refused("measure", sets[0])


def test_in_a_process_of_its_own_too(tmp_path):
    """What the fixtures do in this process holds for the installed command; --debug keeps the traceback."""
    command = [str(Path(sys.executable).with_name("clip-geometry")), "measure", "none.npy"]
    plain = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (plain.returncode, plain.stdout) == (2, "")
    assert plain.stderr.startswith("clip-geometry: ") and plain.stderr.count("\n") == 1
    debug = subprocess.run([*command, "--debug"], capture_output=True, text=True, cwd=tmp_path)
    assert "Traceback" in debug.stderr


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (0.0, "has a zero row (row 5), which has no direction; remove such rows first"),
        (np.nan, "has NaN or infinity in row 5; remove or repair such rows first"),
    ],
)
def test_the_file_and_the_row_of_what_cannot_be_measured_are_named(refused, cli, tmp_path, row, said):
    rows = np.random.default_rng(0).normal(size=(2, 30, 4))
    good = npy(tmp_path / "a.npy", rows[0])
    rows[1, 5] = row
    bad = npy(tmp_path / "b.npy", rows[1])
    (tmp_path / "l.txt").write_text("\n".join("ab"[k >= 4] for k in range(30)))
    assert refused("measure", good, bad) == f"{bad} {said}"
    assert refused("compare", good, bad) == f"{bad} {said}"
    assert refused("measure", bad, "--labels", tmp_path / "l.txt", "--by", "label") == f"{bad} {said}"  # not of group b
    assert refused("fit", "normalize", bad, "-o", "map.safetensors") == f"{bad} {said}"
    np.savez(tmp_path / "both.npz", image=rows[0], text=rows[1])
    assert refused("measure", tmp_path / "both.npz") == f"{tmp_path / 'both.npz'} (text) {said}"
    assert cli("fit", "normalize,center", good, "-o", "map.safetensors").status == 0
    assert refused("apply", "map.safetensors", bad, "-o", "out") == f"{bad} {said}"


def test_a_row_that_only_the_pipeline_makes_zero_is_not_blamed_on_the_file(refused, tmp_path):
    half = np.random.default_rng(0).integers(-9, 9, (15, 4))
    rows = np.concatenate([half, -half, np.zeros((1, 4))]) + 4.0  # of whole numbers, the mean is exact
    path = npy(tmp_path / "a.npy", rows)
    said = refused("measure", path, "--pipeline", "center,normalize")
    assert "zero row (row 30)" in said and "a.npy" not in said
