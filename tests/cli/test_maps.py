"""`fit` and `apply`: what a user types, and what `measure` then reads."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.embeddings import Embeddings
from clip_geometry.io.export import export
from clip_geometry.io.sources import read_any
from clip_geometry.results import read_rows
from clip_geometry.search.repairs import Known, repairs
from clip_geometry.search.shipping import item_map
from clip_geometry.transforms import LeastSquares, Pipeline, Procrustes


@pytest.fixture
def x(sets):
    """The rows of image.npy and text.npy."""
    return {path.stem: np.load(path) for path in sets}


@pytest.fixture
def store(sets, x):
    """A folder with ids in another order, labels, a column and an origin."""
    order = np.random.default_rng(1).permutation(40)
    ids = np.array([f"item-{k}" for k in range(40)], dtype=object)
    origin = {"model": "m", "dataset": "coco", "split": "train"}
    image = Embeddings(x["image"], "image", ids, np.arange(40) % 4, provenance=origin)
    words = {"text": np.array([f"caption {k}" for k in order], dtype=object)}
    text = Embeddings(x["text"][order], "text", ids[order], None, "de", metadata=words, provenance=origin)
    export({"image": image, "text": text}, "store", to="parquet")
    return Path("store")


def ok(outcome):
    assert outcome.status == 0, outcome.err
    return outcome.out


def test_one_set_gives_one_map_for_everything(cli, sets, x):
    out = ok(cli("fit", "normalize,whiten(3)", sets[0], "-o", "m.safetensors"))
    assert "pipeline: normalize → whiten(3)" in out and f"fitted on: {sets[0]}\n" in out
    assert "rows: 6 → 3, x W + b of unit rows" in out and "map: m.safetensors" in out
    expected = Pipeline("normalize,whiten(3)[image]").fit(x).transform(x)
    for path in sets:
        ok(cli("apply", "m.safetensors", path, "-o", f"out-{path.stem}", "--no-normalize"))
        found = read_any(f"out-{path.stem}")
        assert list(found) == [path.stem]  # a file called text.npy holds texts
        assert np.allclose(found[path.stem].vectors, expected[path.stem], atol=1e-6)
        assert found[path.stem].vectors.dtype == np.float32


def test_scopes_work_as_in_measure(cli, sets, x):
    """measure --pipeline gives what measuring the moved rows gives."""
    steps = "normalize,center[pooled],pca(4)[text],normalize"
    folder = sets[0].parent
    ok(cli("fit", steps, folder, "-o", folder / "m.safetensors"))
    ok(cli("apply", "m.safetensors", folder, "-o", "moved"))
    names = "modality_gap,isoscore,matching_cosine"
    ok(cli("measure", "moved", "--raw", "--measures", names, "--json", "after.jsonl"))
    ok(cli("measure", *sets, "--pipeline", steps, "--measures", names, "--json", "at-once.jsonl"))
    for after, at_once in zip(read_rows(Path("after.jsonl")), read_rows(Path("at-once.jsonl")), strict=True):
        assert after["value"] == pytest.approx(at_once["value"], rel=1e-5)
        assert (after["measure"], after["n"], after["d"]) == (at_once["measure"], at_once["n"], 4)


def test_ids_labels_columns_and_origin_are_kept(cli, store):
    ok(cli("fit", "normalize,center[pooled]", store, "-o", "m.safetensors"))
    ok(cli("apply", "m.safetensors", store, "-o", "moved"))
    before, after = read_any(store), read_any("moved")
    for modality, side in after.items():
        assert list(side.item_id) == list(before[modality].item_id)
        assert side.language == before[modality].language and side.pair_on == "item_id"
        assert {key: list(column) for key, column in side.metadata.items()} == {
            key: list(column) for key, column in before[modality].metadata.items()
        }
    assert list(after["image"].labels) == list(before["image"].labels)
    assert after["text"].provenance["dataset"] == "coco"
    (applied,) = after["text"].provenance["maps"]
    assert applied["pipeline"] == ["normalize", "center[pooled]", "normalize"]
    assert (applied["file"], applied["fitted_on"]) == ("m.safetensors", "coco/train:pooled")
    assert applied["version"]
    ok(cli("fit", "pca(2)", "moved/text.parquet", "-o", "second.safetensors"))
    ok(cli("apply", "second.safetensors", "moved", "-o", "twice"))
    twice = read_any("twice")["image"]
    assert [each["pipeline"] for each in twice.provenance["maps"]] == [
        ["normalize", "center[pooled]", "normalize"],
        ["pca(2)", "normalize"],
    ]


def test_rows_are_unit_length_unless_told_otherwise(cli, sets, x):
    folder = sets[0].parent
    ok(cli("fit", "normalize,center[each]", folder, "-o", "m.safetensors"))
    out = ok(cli("apply", "m.safetensors", folder, "-o", "moved"))
    assert "pipeline: normalize → center[each] → normalize\n" in out
    assert "rows were made unit length after the map; --no-normalize leaves the lengths that it gives\n" in out
    expected = Pipeline("normalize,center[each],normalize").fit(x).transform(x)
    for name, side in read_any("moved").items():
        assert side.vectors == pytest.approx(expected[name], abs=1e-6)
    out = ok(cli("apply", "m.safetensors", folder, "-o", "as-it-is", "--no-normalize"))
    assert "pipeline: normalize → center[each]\n" in out and "unit length" not in out
    expected = Pipeline("normalize,center[each]").fit(x).transform(x)
    for name, side in read_any("as-it-is").items():
        assert side.vectors == pytest.approx(expected[name], abs=1e-6)
    ok(cli("fit", "center[each],normalize", folder, "-o", "unit.safetensors"))
    assert "rows were made" not in ok(cli("apply", "unit.safetensors", folder, "-o", "unit"))


def test_a_row_without_direction_after_the_map(cli, refused, sets, x):
    """The mean itself, which centering makes zero."""
    np.save("mean.npy", np.stack([x["image"].mean(0), x["image"][0]]).astype(np.float64))
    np.save("wide.npy", x["image"].astype(np.float64))
    ok(cli("fit", "center", "wide.npy", "-o", "m.safetensors"))
    centers = Pipeline.load("m.safetensors").chains["any"][0].mean_
    np.save("mean.npy", np.stack([centers, x["image"][0].astype(float)]))
    said = refused("apply", "m.safetensors", "mean.npy", "-o", "moved")
    assert "after the map has a zero row (row 0), which has no direction" in said
    assert not Path("moved").exists()


def test_files_of_numpy_stay_files_of_numpy(cli, sets, x):
    folder = sets[0].parent
    ok(cli("fit", "normalize,whiten(4)[pooled]", folder, "-o", "m.safetensors"))
    out = ok(cli("apply", "m.safetensors", folder, "-o", "moved"))
    assert "image: 40 × 4, image.npy\n" in out
    assert {path.name for path in Path("moved").iterdir()} == {
        "image.npy", "image.npy.json", "text.npy", "text.npy.json",
    }  # fmt: skip
    expected = Pipeline("normalize,whiten(4)[pooled],normalize").fit(x).transform(x)
    for name in x:
        assert np.load(f"moved/{name}.npy") == pytest.approx(expected[name], abs=1e-6)
    np.savez("both.npz", **x)
    ok(cli("apply", "m.safetensors", "both.npz", "-o", "tables"))
    assert {path.name for path in Path("tables").iterdir()} == {"image.parquet", "text.parquet"}


def test_a_saved_repair_is_applied_where_it_is_a_map(cli, refused, sets, x):
    known = Known({name: rows.astype(float) for name, rows in x.items()})
    for name in ("gr_clip", "zscore", "quantile"):
        repairs[name].make().fit(known).save(f"{name}.safetensors")
    out = ok(cli("apply", "gr_clip.safetensors", sets[0].parent, "-o", "moved"))
    assert "pipeline: gr_clip\n" in out
    repair = repairs["gr_clip"].make().fit(known)
    for name, side in read_any("moved").items():
        assert side.vectors == pytest.approx(item_map(repair, name)(known.rows[name]), abs=1e-6)
        assert side.provenance["maps"][0]["pipeline"] == ["gr_clip"]
    for name in ("zscore", "quantile"):
        said = refused("apply", f"{name}.safetensors", sets[0].parent, "-o", "other")
        assert said == (
            f"{name} changes scores, not only rows, so it cannot be applied to embeddings: clip-geometry ship writes "
            "it for an index"
        )


def test_measure_says_what_it_does_not_know_of_a_map(cli, sets):
    folder = sets[0].parent
    ok(cli("fit", "normalize,whiten(3)[pooled]", folder, "-o", "m.safetensors"))
    ok(cli("apply", "m.safetensors", folder, "-o", "moved"))
    given = (
        "null and ±: the map is taken as given; if it was fitted on these rows, measure --pipeline tells what fitting "
        "alone gives\n"
    )
    lengths = "rows were made unit length after the map; --raw takes them as it left them\n"
    for options, said in (
        ((), given + lengths), (("--raw",), given), (("--pipeline", "normalize"), given + lengths),
    ):  # fmt: skip
        out = ok(cli("measure", "moved", "--measures", "isoscore", *options))
        assert said in out and (lengths in out) == (lengths in said)
    assert "the map" not in ok(cli("measure", folder, "--measures", "isoscore"))


def test_procrustes_pairs_by_id(cli, store, x):
    """The texts of the store are shuffled; by position they would be mapped onto strangers."""
    ok(cli("fit", "procrustes[text-to-image]", store, "-o", "m.safetensors"))
    fitted = Pipeline.load("m.safetensors")
    assert np.allclose(fitted.affine("text").W, Procrustes().fit(x["text"], x["image"]).W_, atol=1e-10)
    assert np.allclose(fitted.affine("image").W, np.eye(6))
    ok(cli("apply", "m.safetensors", store, "-o", "moved", "--no-normalize"))
    moved = read_any("moved")
    assert (moved["image"].vectors == x["image"]).all()
    assert np.linalg.norm(moved["text"].vectors - read_any(store)["text"].vectors) > 1


@pytest.mark.parametrize("step", ["procrustes", "procrustes[text-to-image]"])
def test_source_onto_target(cli, sets, x, step):
    """text.npy and image.npy say what they are, so the direction may be left out."""
    image, text = sets
    out = ok(cli("fit", f"normalize,{step},normalize", text, image, "-o", "m.safetensors"))
    assert "procrustes[text-to-image]" in out and f"fitted on: {text} + {image}:text-to-image" in out
    unit = {name: rows / np.linalg.norm(rows.astype(float), axis=1, keepdims=True) for name, rows in x.items()}
    fitted = Pipeline.load("m.safetensors")
    assert np.allclose(fitted.affine("text").W, Procrustes().fit(unit["text"], unit["image"]).W_, atol=1e-6)


def test_two_sets_of_one_modality(cli, x, refused):
    """Russian onto English, say: the map moves what it is given."""
    np.save("ru.npy", x["text"])
    np.save("en.npy", x["image"][:, :4])
    out = ok(cli("fit", "least_squares", "ru.npy", "en.npy", "-o", "m.safetensors"))
    assert "least_squares[source-to-target]" in out and "rows: 6 → 4, x W + b" in out
    ok(cli("apply", "m.safetensors", "ru.npy", "-o", "moved", "--as", "text", "--no-normalize"))
    expected = LeastSquares().fit(x["text"], x["image"][:, :4]).transform(x["text"])
    assert np.allclose(read_any("moved")["text"].vectors, expected, atol=1e-5)
    np.savez("both.npz", **x)
    assert "moves one set onto another (least_squares[source-to-target]), but both.npz holds image and text" in refused(
        "apply", "m.safetensors", "both.npz", "-o", "other"
    )
    sentence = refused("fit", "center,procrustes", "ru.npy", "ru.npy", "-o", "n.safetensors")
    assert "center would be fitted on SOURCE and TARGET each" in sentence and "write center[pooled]" in sentence
    ok(cli("fit", "center[pooled],procrustes", "ru.npy", "ru.npy", "-o", "n.safetensors"))
    assert np.allclose(Pipeline.load("n.safetensors").affine("text").W, np.eye(6))


def test_float64_stays_float64(cli, sets, x):
    np.save("wide.npy", x["image"].astype(np.float64))
    ok(cli("fit", "center", "wide.npy", "-o", "m.safetensors"))
    ok(cli("apply", "m.safetensors", "wide.npy", "-o", "moved", "--no-normalize"))
    found = read_any("moved")["wide"].vectors
    assert found.dtype == np.float64
    assert np.allclose(found, x["image"] - x["image"].astype(float).mean(0), rtol=1e-12, atol=1e-12)


def test_a_map_that_is_not_affine_says_so_and_is_applied(cli, sets):
    out = ok(cli("fit", "normalize,cluster_center(3)[each]", sets[0].parent, "-o", "m.safetensors"))
    assert "image: 6 → 6 (cluster_center is no affine map" in out
    assert "40 × 6" in ok(cli("apply", "m.safetensors", sets[0].parent, "-o", "moved"))


def test_a_rank_deficient_map_is_one_line_of_warning(cli, sets, x):
    for path, rows in zip(sets, x.values(), strict=True):
        np.save(path, rows[:4])
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        outcome = cli("fit", "procrustes[text-to-image]", sets[0].parent, "-o", "m.safetensors")
    assert outcome.status == 0
    assert outcome.err == (
        "clip-geometry: warning: procrustes was fitted on pairs of rank 4 in dimension 6, which leave part of the "
        "map free; it is completed nearest to the identity\n"
    )


def test_the_same_warning_comes_once(cli, sets, x):
    """The Gaussian behind the null values goes through the same steps, and warns of the same."""
    for path, rows in zip(sets, x.values(), strict=True):
        np.save(path, rows[:4])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        steps = ("--pipeline", "procrustes[text-to-image]", "--measures", "modality_gap")
        outcome = cli("measure", *sets, *steps)
    assert outcome.status == 0
    assert outcome.err.count("warning: procrustes was fitted on pairs of rank 4 in dimension 6") == 1


def test_warnings_of_others_look_as_they_do(cli, sets, monkeypatch):
    def warn(*_, **__):
        warnings.warn("something else", UserWarning, stacklevel=1)

    monkeypatch.setattr("clip_geometry.cli.maps.fit_map", warn)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        assert cli("fit", "center", sets[0], "-o", "m.safetensors").err == ""
    assert [str(warning.message) for warning in seen] == ["something else"]  # handed on to whoever shows them


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["normalise", "image.npy"], "unknown pipeline step 'normalise'; did you mean 'normalize'"),
        (["", "image.npy"], "the pipeline is empty, so there is nothing to fit"),
        (
            ["cluster_center", "image.npy"],
            "'cluster_center': missing a required argument: 'k'; write cluster_center(k, seed=0)",
        ),
        (["whiten(0)", "image.npy"], "k of whiten = 0; expected a whole number from 1 on, or None for all directions"),
        (["whiten(7)", "image.npy"], "whiten(7) needs 7 directions, but the 40 rows it is fitted on span only 6"),
        (["whiten(3)", "both.npz"], "write whiten(3)[pooled] for one fit"),
        (["whiten(3)[text]", "image.npy"], "whiten(3)[text] is to be fitted on text rows, but image.npy holds image"),
        (["whiten(3)[text]", "other.npy"], "but other.npy holds unnamed rows only"),
        (["procrustes[text-to-image]", "image.npy"], "but only image.npy was given: give the TARGET too"),
        (["isoclip(1, 1)", "image.npy"], "isoclip(1, 1) is fitted on two modalities, but only image.npy"),
        (["isoclip(1, 1)", "other.npy", "image.npy"], "it is not clear which modalities other.npy and image.npy hold"),
        (["procrustes", "both.npz"], "write procrustes[text-to-image] or procrustes[image-to-text]"),
        (["procrustes", "both.npz", "image.npy"], "both.npz holds image and text rows; say which"),
        (["procrustes[text-to-image]", "image.npy", "text.npy"], "image.npy holds image rows, but the pipeline takes"),
        (
            ["procrustes[text-to-image],least_squares[image-to-text]", "text.npy", "image.npy"],
            "the pipeline maps in two directions, text-to-image and image-to-text",
        ),
        (["center[pooled]", "other.npy", "image.npy"], "it is not clear which modalities other.npy and image.npy hold"),
        (["procrustes", "text.npy", "short.npy"], "needs pairs: 40 source rows and 30 target rows cannot be paired"),
        (["procrustes[text-to-image]", "text.npy", "short.npy"], "needs pairs: 30 image rows and 40 text rows cannot"),
        (["center", "none.npy"], "none.npy does not exist"),
        (["center", "notes.txt"], "notes.txt has the unknown extension '.txt'"),
    ],
)
def test_mistakes_of_fit(refused, sets, x, arguments, message):
    np.save("other.npy", x["text"])
    np.save("short.npy", x["text"][:30])
    np.savez("both.npz", **x)
    Path("notes.txt").write_text("hello")
    assert message in refused("fit", *arguments, "-o", "m.safetensors")
    assert not Path("m.safetensors").exists()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("m.npy", "-o m.npy is no .safetensors file, which is what a map is"),
        ("none/m.safetensors", "the folder none does not exist"),
        ("there.safetensors", "there.safetensors exists; choose another name or remove it first"),
        ("image.npy/m.safetensors", "image.npy is a file, not a folder, so image.npy/m.safetensors cannot be written"),
        ("/proc/m.safetensors", "cannot write to /proc/m.safetensors: No such file or directory"),
    ],
)
def test_where_a_map_cannot_be_written(refused, sets, out, message):
    Path("there.safetensors").write_text("mine")
    assert message in refused("fit", "center", sets[0], "-o", out)
    assert Path("there.safetensors").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["none.safetensors", "image.npy"],
            "none.safetensors does not exist; a map (.safetensors) written by fit, or a repair",
        ),
        (["image.npy", "image.npy"], "image.npy is no readable .safetensors file, damaged or cut short"),
        (["m.safetensors", "none.npy"], "none.npy does not exist"),
        (["m.safetensors", "other.npy"], "add --as image or --as text"),
        (
            ["m.safetensors", "other.npy", "--as", "sound"],
            "was fitted for image and text rows, but sound rows were given",
        ),
        (["m.safetensors", "other.npy", "--as", "both"], "--as 'both' is no name of a modality"),
        (["m.safetensors", "both.npz", "--as", "text"], "but both.npz holds image and text rows: give one file"),
        (
            ["m.safetensors", "narrow/image.npy"],
            "image rows have dimension 4, but the pipeline was fitted on",
        ),
        (["refusing.safetensors", "both.npz"], "write center[pooled] for one fit"),
    ],
)
def test_mistakes_of_apply(cli, refused, sets, x, arguments, message):
    np.save("other.npy", x["text"])
    np.savez("both.npz", **x)
    Path("narrow").mkdir()
    np.save("narrow/image.npy", x["image"][:, :4])
    Pipeline("center").fit(x).save("refusing.safetensors")
    ok(cli("fit", "center[each]", "both.npz", "-o", "m.safetensors"))
    assert message in refused("apply", *arguments, "-o", "moved")
    assert not Path("moved").exists()


def test_nothing_is_overwritten(cli, refused, sets):
    ok(cli("fit", "center", sets[0], "-o", "m.safetensors"))
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    assert "full is not empty, and nothing is overwritten" in refused("apply", "m.safetensors", sets[0], "-o", "full")
    assert "full/notes.txt is a file; a new folder" in refused(
        "apply", "m.safetensors", sets[0], "-o", "full/notes.txt"
    )
    assert refused("apply", "m.safetensors", sets[0], "-o", "full/notes.txt/a/b") == (
        "full/notes.txt is a file, not a folder, so full/notes.txt/a/b cannot be written"
    )
    assert [path.name for path in Path("full").iterdir()] == ["notes.txt"]
    Path("empty").mkdir()
    ok(cli("apply", "m.safetensors", sets[0], "-o", "empty"))
    ok(cli("apply", "m.safetensors", sets[0], "-o", "new/folder"))
    assert len(read_any("empty")["image"]) == len(read_any("new/folder")["image"]) == 40


def test_a_folder_is_there_whole_or_not_at_all(cli, refused, sets, monkeypatch):
    np.savez("both.npz", **{path.stem: np.load(path) for path in sets})
    ok(cli("fit", "center[each]", "both.npz", "-o", "m.safetensors"))
    from clip_geometry.cli import maps

    write = maps.write_parquet

    def full(side, path):
        if side.modality == "text":
            raise OSError(28, "No space left on device")
        write(side, path)

    monkeypatch.setattr(maps, "write_parquet", full)
    before = sorted(path.name for path in Path().iterdir())
    assert "cannot write to moved: No space left on device" in refused(
        "apply", "m.safetensors", "both.npz", "-o", "moved"
    )
    assert sorted(path.name for path in Path().iterdir()) == before


def test_what_killed_commands_left_is_removed(cli, sets):
    np.savez("both.npz", **{path.stem: np.load(path) for path in sets})
    Path(".m.safetensors.0123.tmp").touch()
    ok(cli("fit", "center[each]", "both.npz", "-o", "m.safetensors"))
    Path(".moved.0123.tmp").mkdir()
    Path(".moved.0123.tmp/image.parquet").touch()
    ok(cli("apply", "m.safetensors", "both.npz", "-o", "moved"))
    assert not list(Path().glob(".*"))


@pytest.mark.slow
def test_in_a_process_of_its_own(sets, tmp_path):
    """The installed command, with a warning on its own line of standard error."""
    command = str(Path(sys.executable).with_name("clip-geometry"))
    np.save(tmp_path / "few.npy", np.load(sets[0])[:4])
    fit = [command, "fit", "procrustes", "few.npy", "few.npy", "-o", "m.safetensors"]
    found = subprocess.run(fit, capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0
    assert found.stderr.startswith("clip-geometry: warning: procrustes") and found.stderr.count("\n") == 1
    apply = [command, "apply", "m.safetensors", "few.npy", "-o", "moved"]
    found = subprocess.run(apply, capture_output=True, text=True, cwd=tmp_path)
    assert found.stdout.startswith("few: 4 × 6, few.npy\n")


@pytest.mark.parametrize("steps", ["normalize,realign", "normalize,isoclip(1, 1)"])
def test_maps_without_pairs(cli, sets, x, steps):
    """Of two files that say what they hold, with different numbers of rows."""
    Path("less").mkdir()
    np.save("less/text.npy", x["text"][:30])
    out = ok(cli("fit", steps, "less/text.npy", sets[0], "-o", "m.safetensors"))
    direction = "text-to-image" if "realign" in steps else "all"
    assert f":{direction}\n" in out
    ok(cli("apply", "m.safetensors", sets[1], "-o", "moved", "--no-normalize"))
    written = steps + "[text-to-image]" * (direction != "all")
    expected = Pipeline(written).fit({"text": x["text"][:30], "image": x["image"]}).transform({"text": x["text"]})
    assert np.allclose(read_any("moved")["text"].vectors, expected["text"], atol=1e-5)


def test_large_sets_are_fitted_and_moved_in_blocks(cli, sets, x, monkeypatch):
    """In the order of the rows, a row group at a time, to the numbers of the rows in memory."""
    monkeypatch.setattr("clip_geometry.io.export.GROUP", 16)
    steps = "normalize,whiten(4)[pooled],procrustes[text-to-image]"
    for name, large in (("memory", 2**60), ("blocks", 0)):
        monkeypatch.setattr("clip_geometry.embeddings.LARGE", large)
        ok(cli("fit", steps, sets[0].parent, "-o", f"{name}.safetensors"))
        ok(cli("apply", f"{name}.safetensors", sets[0].parent, "-o", name, "--no-normalize"))
    found, expected = read_any("blocks"), Pipeline(steps).fit(x, (np.arange(40),) * 2).transform(x)
    for modality, side in read_any("memory").items():
        assert np.allclose(side.vectors, expected[modality], atol=1e-6)
        assert np.allclose(found[modality].vectors, expected[modality], atol=1e-6)


def test_a_map_that_leaves_the_range_of_float32_writes_nothing(cli, refused, sets, x):
    """The 35th of 40 rows, after some have been written."""
    rows = x["image"].astype(np.float32)
    rows[34] = 3e38
    np.save("huge.npy", rows)
    ok(cli("fit", "scale(100)", sets[0], "-o", "m.safetensors"))
    before = sorted(path.name for path in Path.cwd().iterdir())
    said = refused("apply", "m.safetensors", "huge.npy", "-o", "moved", "--no-normalize")
    assert "huge after the map has NaN or infinity in row 34" in said
    assert sorted(path.name for path in Path.cwd().iterdir()) == before
