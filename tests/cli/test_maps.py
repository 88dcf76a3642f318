"""`fit`, `apply` and `ship`: what a user types, and what `measure` and other programs then read."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from clip_geometry import Pipeline
from clip_geometry.config import read_yaml
from clip_geometry.embeddings import Embeddings
from clip_geometry.io.export import export
from clip_geometry.io.sources import read
from clip_geometry.results import read_rows
from clip_geometry.search.repairs import Known, repairs
from clip_geometry.search.shipping import SavedPipeline, item_map, targets
from clip_geometry.transforms import Procrustes
from support.shipped import SEARCHES, assert_same_top, ours, scale_of


@pytest.fixture
def x(sets):
    """The rows of image.npy and text.npy."""
    return {path.stem: np.load(path) for path in sets}


@pytest.fixture
def ok(cli):
    def run(*arguments):
        outcome = cli(*arguments)
        assert outcome.status == 0, outcome.err
        return outcome.out

    return run


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


def test_one_set_gives_one_map_for_everything(ok, sets, x):
    out = ok("fit", "normalize,whiten(3)[image]", sets[0], "-o", "m.safetensors")
    lines = ["pipeline: normalize → whiten(3)", f"fitted on: {sets[0]}", "rows: 6 → 3", "map: m.safetensors"]
    assert out.splitlines() == lines
    expected = Pipeline("normalize,whiten(3)[image]").fit(x).transform(x)
    for path in sets:
        ok("apply", "m.safetensors", path, "-o", f"out-{path.stem}", "--no-normalize")
        found = read(f"out-{path.stem}")
        assert list(found) == [path.stem]  # a file called text.npy holds texts
        assert found[path.stem].vectors == pytest.approx(expected[path.stem], abs=1e-6)


@pytest.mark.parametrize(
    "steps",
    [
        "normalize,center[pooled],pca(4)[text],normalize",
        "normalize,least_squares[text-to-image]",
        "normalize,isoclip(1, 1)",
        "normalize,realign[text-to-image]",
    ],
)
def test_fit_and_apply_do_what_measure_does_with_a_pipeline(ok, sets, steps):
    ok("fit", steps, *sets, "-o", "m.safetensors")
    ok("apply", "m.safetensors", sets[0].parent, "-o", "moved", "--no-normalize")
    names = "modality_gap,isoscore,matching_cosine"
    ok("measure", "moved", "--raw", "--measures", names, "--json", "after.jsonl")
    ok("measure", *sets, "--pipeline", steps, "--measures", names, "--json", "at-once.jsonl")
    after, at_once = read_rows("after.jsonl"), read_rows("at-once.jsonl")
    assert [row.value for row in after] == pytest.approx([row.value for row in at_once], rel=1e-4)
    assert [(row.measure, row.n, row.d) for row in after] == [(row.measure, row.n, row.d) for row in at_once]


def test_three_modalities_of_several_dimensions(ok, x):
    np.savez("all.npz", **x, audio=x["image"][:, :4])
    assert "audio: 4 → 6" in ok("fit", "normalize,least_squares[all-to-image]", "all.npz", "-o", "m.safetensors")
    ok("apply", "m.safetensors", "all.npz", "-o", "moved")
    assert {name: each.dim for name, each in read("moved").items()} == dict.fromkeys(("image", "text", "audio"), 6)


def test_ids_labels_columns_and_origin_are_kept(ok, store):
    ok("fit", "normalize,center[pooled]", store, "-o", "m.safetensors")
    ok("apply", "m.safetensors", store, "-o", "moved")
    before, after = read(store), read("moved")
    for modality, side in after.items():
        assert list(side.item_id) == list(before[modality].item_id) and side.language == before[modality].language
        assert {key: list(each) for key, each in side.metadata.items()} == {
            key: list(each) for key, each in before[modality].metadata.items()
        }
    assert list(after["image"].labels) == list(before["image"].labels)
    (applied,) = after["text"].provenance["maps"]
    assert applied["pipeline"] == ["normalize", "center[pooled]", "normalize"] and applied["version"]
    assert (applied["file"], applied["fitted_on"]) == ("m.safetensors", "coco/train:pooled")
    ok("fit", "pca(2)", "moved/text.parquet", "-o", "second.safetensors")
    ok("apply", "second.safetensors", "moved", "-o", "twice")
    maps = read("twice")["image"].provenance["maps"]
    assert [each["pipeline"] for each in maps] == [applied["pipeline"], ["pca(2)", "normalize"]]
    out = ok("measure", "twice", "--measures", "isoscore")
    assert "the map is taken as given" in out and "rows were made unit length after the map" in out


def test_pairs_are_those_of_the_ids(ok, store, x):
    """The texts of the store are shuffled; by position they would be mapped onto strangers."""
    ok("fit", "procrustes[text-to-image]", store, "-o", "m.safetensors")
    fitted = Pipeline.load("m.safetensors")
    assert np.allclose(fitted.affine("text").W, Procrustes().fit(x["text"], x["image"]).W_, atol=1e-10)
    assert np.allclose(fitted.affine("image").W, np.eye(6))


def test_rows_are_unit_length_unless_told_otherwise_and_stay_in_their_format(ok, sets, x):
    folder, said = sets[0].parent, "rows were scaled to unit length after the map"
    np.savez("both.npz", **{name: rows.astype(np.float64) for name, rows in x.items()})
    ok("fit", "normalize,center[each]", folder, "-o", "m.safetensors")
    assert said in ok("apply", "m.safetensors", folder, "-o", "moved")
    assert said not in ok("apply", "m.safetensors", "both.npz", "-o", "as-it-is", "--no-normalize")
    files = [{path.name for path in Path(name).iterdir()} for name in ("moved", "as-it-is")]
    assert files[0] == {"image.npy", "image.npy.json", "text.npy", "text.npy.json"}
    assert files[1] == {"image.parquet", "text.parquet"}
    expected = Pipeline("normalize,center[each]").fit(x).transform(x)
    for name, rows in expected.items():
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        assert np.load(f"moved/{name}.npy") == pytest.approx(unit, abs=1e-6)
        side = read("as-it-is")[name].vectors
        assert side.dtype == np.float64 and side == pytest.approx(rows, abs=1e-12)


def test_a_saved_repair_is_applied_where_it_is_a_map(ok, refused, sets, x):
    known = Known({name: rows.astype(float) for name, rows in x.items()})
    for name in ("center", "zscore"):
        repairs[name].make().fit(known).save(f"{name}.safetensors")
    assert "pipeline: center\n" in ok("apply", "center.safetensors", sets[0].parent, "-o", "moved")
    repair = repairs["center"].make().fit(known)
    for name, side in read("moved").items():
        assert side.vectors == pytest.approx(item_map(repair, name)(known.rows[name]), abs=1e-6)
    said = refused("apply", "zscore.safetensors", sets[0].parent, "-o", "other")
    assert said.startswith("zscore changes scores, not only rows")


def test_large_sets_are_fitted_and_moved_in_blocks(ok, sets, x, monkeypatch):
    """In the order of the rows, a row group at a time, to the numbers of the rows in memory."""
    monkeypatch.setattr("clip_geometry.io.export.GROUP", 16)
    monkeypatch.setattr("clip_geometry.embeddings.LARGE", 0)
    steps = "normalize,whiten(4)[pooled],procrustes[text-to-image]"
    ok("fit", steps, *sets, "-o", "m.safetensors")
    ok("apply", "m.safetensors", sets[0].parent, "-o", "blocks", "--no-normalize")
    expected = Pipeline(steps).fit(x, (np.arange(40),) * 2).transform(x)
    for modality, side in read("blocks").items():
        assert np.allclose(side.vectors, expected[modality], atol=1e-6)


# --- ship


@pytest.mark.parametrize("to", SEARCHES)
def test_a_map_and_a_repair_search_without_this_package(ok, sets, x, to):
    x = {name: rows.astype(float) for name, rows in x.items()}
    ok("fit", "normalize,center[each]", *sets, "-o", "center.safetensors")
    repair = repairs["zscore"].make().fit(Known(x))
    repair.save("zscore.safetensors")
    paths = sets if targets[to].stores_rows else []
    Path("zscore").mkdir()  # an empty folder is as good as none
    for name, each in (("center", SavedPipeline(Pipeline.load("center.safetensors"))), ("zscore", repair)):
        out = ok("ship", f"{name}.safetensors", *paths, "-o", name, "--to", to)
        assert f"repair: {each.name}\n" in out and out.endswith(f"{to}: {name}\n")
        for query in x:
            found = SEARCHES[to](Path.cwd() / name, query, x[query][:9] + 0.3, x)
            assert_same_top(found, ours(each, query, x[query][:9] + 0.3, x), scale_of(each))


def test_rows_of_one_modality_in_the_lengths_that_the_map_gives(ok, sets, x):
    x = {name: rows.astype(float) for name, rows in x.items()}
    ok("fit", "normalize,center[each]", *sets, "-o", "center.safetensors")
    np.save("rows.npy", x["text"])
    options = ("--as", "text", "--no-normalize", "--to", "faiss")
    ok("ship", "center.safetensors", "rows.npy", "-o", "index", *options)
    items, repair = {"text": x["text"]}, SavedPipeline(Pipeline.load("center.safetensors"), normalize=False)
    found = SEARCHES["faiss"](Path.cwd() / "index", "image", x["image"], items)
    assert_same_top(found, ours(repair, "image", x["image"], items), 1.0)


# --- mistakes


MISTAKES = read_yaml(Path(__file__).with_name("wrong_commands.yaml"))["maps"]


@pytest.mark.parametrize(("command", "message"), MISTAKES.items())
def test_mistakes_are_one_sentence_and_nothing_is_written(refused, sets, x, command, message):
    np.save("other.npy", x["text"])
    np.save("short.npy", x["text"][:30])
    np.savez("both.npz", **x)
    for name in ("full", "narrow"):
        Path(name).mkdir()
    Path("full/m.safetensors").write_text("mine")
    narrow = {"image": x["image"], "text": x["text"][:, :3]}
    np.savez("narrow.npz", **narrow)
    for name, rows in narrow.items():
        np.save(f"narrow/{name}.npy", rows)
    fitted = Pipeline("scale(128),center[each]").fit(x)
    fitted.save("each.safetensors")
    np.save("mean.npy", np.stack([fitted.chains["image"][1].mean_ / 128, x["image"][0].astype(float)]))
    np.save("huge.npy", np.where(np.arange(40)[:, None] == 34, np.float32(3e38), x["image"]))
    Pipeline("center").fit(x).save("refusing.safetensors")
    for name in ("zscore", "quantile"):
        repairs[name].make().fit(Known(x)).save(f"{name}.safetensors")
    before = sorted(Path().rglob("*"))
    assert message in refused(*command.split())
    assert sorted(Path().rglob("*")) == before and Path("full/m.safetensors").read_text() == "mine"


def test_a_folder_is_there_whole_or_not_at_all(ok, refused, sets, x, monkeypatch):
    np.savez("both.npz", **x)
    Path(".m.safetensors.0123.tmp").touch()  # which a killed command left
    Path(".moved.0123.tmp").mkdir()
    ok("fit", "center[each]", "both.npz", "-o", "m.safetensors")
    from clip_geometry.io import tables

    write = tables.write_parquet

    def full(side, path):
        if side.modality == "text":
            raise OSError(28, "No space left on device")
        write(side, path)

    monkeypatch.setattr(tables, "write_parquet", full)
    said = refused("apply", "m.safetensors", "both.npz", "-o", "moved")
    assert said == "cannot write to moved: No space left on device"
    assert not list(Path().glob(".*")) and not Path("moved").exists()


# --- warnings


def test_a_warning_of_ours_is_one_line_and_comes_once(cli, sets, x):
    """The Gaussian behind the null values goes through the same steps, and warns of the same."""
    for path, rows in zip(sets, x.values(), strict=True):
        np.save(path, rows[:4])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        outcome = cli("measure", *sets, "--pipeline", "procrustes[text-to-image]", "--measures", "modality_gap")
    assert outcome.status == 0 and outcome.err == (
        "clip-geometry: warning: procrustes was fitted on pairs of rank 4 in dimension 6, which leave part of the "
        "map free; it is completed nearest to the identity\n"
    )


def test_warnings_of_others_look_as_they_do(cli, sets, monkeypatch):
    def warn(*_, **__):
        warnings.warn("something else", UserWarning, stacklevel=1)
        return ()

    monkeypatch.setattr("clip_geometry.transforms.parse_pipeline", warn, raising=False)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        assert "something else" not in cli("fit", "center", sets[0], "-o", "m.safetensors").err
    assert [str(warning.message) for warning in seen] == ["something else"]  # handed on to whoever shows them
