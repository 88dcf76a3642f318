"""Every target and every repair: the best items for raw queries are ours, found without clip-geometry."""

import runpy
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from clip_geometry import Pipeline
from clip_geometry.embeddings import Embeddings
from clip_geometry.registry import InputError
from clip_geometry.search.relevance import Relevance
from clip_geometry.search.repairs import InnerProduct, Known, repairs
from clip_geometry.search.shipping import SavedPipeline, targets, write_shipment
from support.mixed_index import paired, rows
from support.shipped import SEARCHES, assert_same_top, module, ours, scale_of

SETS, QUERIES = rows(n=60, d=32), rows(1, n=20, d=32)


def fitted(name):
    repair = repairs[name].make()
    if name == "whiten":  # 64 directions are more than these rows have
        repair.pipeline = "whiten(16)[pooled]"
    return repair.fit(paired(SETS))


def ship(repair, to, out):
    return write_shipment(repair, to, out, {name: Embeddings(x, name) for name, x in SETS.items()})


def is_inner_product(name):
    return issubclass(repairs[name].kind, InnerProduct)


INNER = [name for name in repairs if is_inner_product(name)]


@pytest.mark.parametrize("to", SEARCHES)
@pytest.mark.parametrize("name", INNER)
def test_top_ten_of_inner_products(tmp_path, to, name):
    repair = fitted(name)
    ship(repair, to, tmp_path / to)
    for query in SETS:
        results = SEARCHES[to](tmp_path / to, query, QUERIES[query], SETS)
        assert_same_top(results, ours(repair, query, QUERIES[query], SETS), scale_of(repair))


@pytest.mark.parametrize("to", targets)
def test_what_is_no_inner_product_is_refused(tmp_path, to):
    with pytest.raises(InputError, match="quantile is not an inner product of rows, so an index cannot hold it; sort"):
        ship(fitted("quantile"), to, tmp_path / to)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("to", SEARCHES)
@pytest.mark.parametrize("normalize", [True, False])
def test_a_saved_pipeline(tmp_path, to, normalize):
    """The cosine after the pipeline, or the inner product of rows of the lengths that it gives them."""
    pipeline = Pipeline("normalize,center[pooled]").fit(SETS)
    repair = SavedPipeline(pipeline, normalize=normalize)
    ship(repair, to, tmp_path / to)
    after = {side: pipeline.transform(sets) for side, sets in (("items", SETS), ("queries", QUERIES))}
    if normalize:
        after = {
            side: {name: x / np.linalg.norm(x, axis=1, keepdims=True) for name, x in sets.items()}
            for side, sets in after.items()
        }
    for query in SETS:
        scores = after["queries"][query] @ np.concatenate(list(after["items"].values())).T
        order = np.argsort(-scores, axis=1)[:, :10]
        results = SEARCHES[to](tmp_path / to, query, QUERIES[query], SETS)
        assert_same_top(results, (np.take_along_axis(scores, order, axis=1), order), 1.0)


def test_a_pipeline_that_is_no_space_of_all_modalities():
    with pytest.raises(InputError, match=r"write center\[pooled\] for one fit"):
        SavedPipeline(Pipeline("center").fit(SETS))
    narrow = {"image": SETS["image"], "text": SETS["text"][:, :5]}
    with pytest.raises(InputError, match="image rows have 32 and text rows have 5 dimensions, but one index needs"):
        SavedPipeline(Pipeline("center[each]").fit(narrow))
    with pytest.raises(InputError, match="cluster_center is not an affine map"):
        SavedPipeline(Pipeline("cluster_center(3)[each]").fit(SETS))


def test_the_index_of_faiss(tmp_path):
    """One index for all items, one for each modality where queries see them through different views."""
    faiss = pytest.importorskip("faiss")
    files = ship(fitted("zscore"), "faiss", tmp_path / "one")
    assert faiss.read_index(str(tmp_path / "one/items.faiss")).ntotal == 120 and "120 × 66" in files["items.faiss"]
    files = ship(fitted("zscore[centered]"), "faiss", tmp_path / "two")
    assert {"items.image.faiss", "items.text.faiss"} < set(files)
    # of 2 × 2 × 32 columns and two offsets, those that are 0 in all rows of an index are not written
    assert all("× 66 rows" in files[f"items.{name}.faiss"] for name in ("image", "text"))


def test_the_table_beside_the_index(tmp_path):
    pytest.importorskip("faiss")

    ids = np.array([f"item-{k}" for k in range(60)], dtype=object)
    sets = {
        "text": Embeddings(SETS["text"], "text", metadata={"text": np.array(["a caption"] * 60, dtype=object)}),
        "image": Embeddings(SETS["image"], "image", item_id=ids, labels=np.arange(60) % 7),
    }
    write_shipment(fitted("center"), "faiss", tmp_path / "faiss", sets)
    table = pq.read_table(tmp_path / "faiss/items.parquet").to_pydict()
    assert table["modality"] == ["text"] * 60 + ["image"] * 60
    assert table["item_id"] == [*(f"text/{k}" for k in range(60)), *ids]
    assert table["label"] == [None] * 60 + list(np.arange(60) % 7)
    assert table["text"] == ["a caption"] * 60 + [None] * 60


@pytest.mark.parametrize(
    ("to", "module", "package"),
    [("faiss", "faiss", "faiss-cpu"), ("onnx", "onnx", "onnx")],
)
def test_a_missing_package_is_one_sentence(tmp_path, monkeypatch, to, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=f"not installed: pip install {package}$"):
        ship(fitted("none"), to, tmp_path / to)
    assert not list(tmp_path.iterdir())


def test_the_scripts_need_numpy_only(tmp_path):
    """In a process that cannot import this package."""
    for name in ("nnn", "posterior[centered]"):
        ship(fitted(name), "numpy", folder := tmp_path / name)
        code = "import repair, sys; print(sorted({'clip_geometry', 'torch', 'scipy'} & set(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
        assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("name", ['"""\nopen("owned", "w").close()\n"""', "\\N{}", "\\"])
@pytest.mark.parametrize(
    ("to", "repair", "script"),
    [("numpy", "none", "repair.py"), ("faiss", "none", "search.py")],
)
def test_a_name_from_a_file_is_no_code(tmp_path, monkeypatch, to, repair, script, name):
    """The name stands in the docstring of a script. It can neither end the docstring nor make it invalid."""
    monkeypatch.chdir(tmp_path)
    repair = fitted(repair)
    repair.name = name
    ship(repair, to, tmp_path / to)
    module(tmp_path / to / script)
    assert not (tmp_path / "owned").exists()


def test_a_modality_from_a_file_is_no_path(tmp_path):
    repair = fitted("none")
    repair.terms_ = {("../image", "../image"): repair.terms_["image", "image"]}
    with pytest.raises(InputError, match=r"'\.\./image' is not a modality name"):
        ship(repair, "onnx", tmp_path / "onnx")


@pytest.mark.parametrize("to", ["faiss", "onnx"])
def test_the_order_within_a_modality_survives_float32(tmp_path, to):
    """With a label of its own for every row, none is relevant within a modality; the order of the cosine stays."""
    labels = np.arange(60)
    repair = repairs["posterior"].make().fit(Known(SETS, Relevance.of_labels(image=labels, text=labels)))
    ship(repair, to, tmp_path / to)
    for query, q in QUERIES.items():
        scores, rows = SEARCHES[to](tmp_path / to, query, q, SETS, 120)
        first = 0 if query == "image" else 60
        own = np.array([[row - first for row in each if first <= row < first + 60] for each in rows])
        unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, SETS[query])]
        assert (own[:, :10] == np.argsort(-(unit[0] @ unit[1].T), axis=1)[:, :10]).all()
        assert (np.diff(scores, axis=1) <= 0).all()


@pytest.mark.parametrize("to", ["faiss", "numpy"])
def test_shipped_programs_check_their_queries(tmp_path, to):
    ship(fitted("zscore"), to, tmp_path / to)
    for wrong in (np.ones(32), np.ones((2, 31))):
        with pytest.raises(ValueError, match=r"shape|columns"):
            SEARCHES[to](tmp_path / to, "image", wrong, SETS)


def test_a_shipped_script_names_what_it_knows_and_rows_without_a_direction(tmp_path):
    ship(fitted("zscore"), "numpy", tmp_path)
    rows = runpy.run_path(str(tmp_path / "repair.py"))["rows"]
    for role, modality in (("items", "caption"), ("query", "image")):
        with pytest.raises(ValueError, match=f"'{role}' of '{modality}' .* expected queries or items of image or text"):
            rows(role, modality, SETS["image"])
    for value in (0, np.nan):
        wrong = SETS["image"].copy()
        wrong[2] = value
        with pytest.raises(ValueError, match=r"row 2 has the length (0.0|nan) and no direction"):
            rows("items", "image", wrong)
