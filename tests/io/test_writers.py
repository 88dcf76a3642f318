"""Every writer against the program that it writes for: the same bits, and the same ten nearest rows."""

import datetime
import sys

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

import clip_geometry as cg
from clip_geometry.embeddings import Embeddings, LazyRows, pair
from clip_geometry.io.format import formats
from clip_geometry.io.writing import item_table
from clip_geometry.registry import InputError
from clip_geometry.rows.streamed import StreamedRows
from support.format_cases import DTYPES, assert_same_bits
from support.shipped import K, assert_same_top, best

N, D = 60, 24
PAIRED = ("clip-retrieval", "datasets")


def sets(dtype=np.float32):
    """Images, and captions in another order, of which an image has one or two. Rows are of unit length, so that a
    cosine of a client is the inner product of another; `row` counts them all."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(N + 90, D))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(dtype)
    ids = [f"item {k}" for k in range(N)]
    image = Embeddings(rows[:N], "image", ids, np.arange(N) % 5, metadata={"row": np.arange(N)})
    owners = rng.permutation([*range(N), *range(30)])
    captions = [f"caption {k}" for k in range(90)]
    text = Embeddings(rows[N:], "text", [ids[k] for k in owners], metadata={"text": captions, "row": N + np.arange(90)})
    return {"image": image, "text": text}


def queries(dtype=np.float32):
    rows = np.random.default_rng(1).normal(size=(7, D))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(dtype)


# what a client gives: the rows by column, and the scores and numbers of the ten nearest images, or of all rows


def by_clip_retrieval(folder, q):
    rows = {name: np.load(folder / f"{name}_emb" / f"{name}_emb_0.npy") for name in ("img", "text")}
    return {"image": rows["img"], "text": rows["text"]}, best(q.astype(float) @ rows["img"].astype(float).T, K)


def by_parquet(folder, q):
    frames = {name: pd.read_parquet(folder / f"{name}.parquet") for name in ("image", "text")}
    rows = {name: np.stack(frame["embedding"]) for name, frame in frames.items()}
    scores = q.astype(float) @ np.concatenate([*rows.values()]).astype(float).T
    return rows, best(scores, K)


def by_datasets(folder, q):
    datasets, faiss = pytest.importorskip("datasets"), pytest.importorskip("faiss")
    found = datasets.load_from_disk(str(folder))
    arrays = found.with_format("numpy", dtype=None)
    rows = {name: np.stack(arrays[f"{name}_embedding"][:]) for name in ("image", "text")}
    found.add_faiss_index("image_embedding", metric_type=faiss.METRIC_INNER_PRODUCT)
    scores, numbers = found.search_batch("image_embedding", q.astype(np.float32), k=K)
    return rows, (scores, numbers)


def by_faiss(folder, q):
    faiss = pytest.importorskip("faiss")
    index = faiss.read_index(str(folder / "index.faiss"))
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT and index.is_trained
    table = pq.read_table(folder / "items.parquet")
    assert table["row"].to_pylist() == list(range(index.ntotal))
    return {"all": index.reconstruct_n(0, index.ntotal)}, index.search(q.astype(np.float32), K)


def by_lancedb(folder, q):
    table = pytest.importorskip("lancedb").connect(str(folder)).open_table("embeddings")
    found = [table.search(each).distance_type("cosine").limit(K).to_list() for each in q]
    scores = np.array([[1 - hit["_distance"] for hit in hits] for hits in found])
    column = table.to_arrow().combine_chunks()["vector"].chunk(0)
    rows = column.flatten().to_numpy().reshape(len(column), -1)
    return {"all": rows}, (scores, np.array([[hit["row"] for hit in hits] for hits in found]))


CLIENTS = {name: globals().get(f"by_{name.replace('-', '_')}") for name, each in formats().items() if each.write}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("to", CLIENTS)
def test_the_client_reads_the_same_bits_and_finds_the_same_rows(tmp_path, to, dtype):
    given, q, out = sets(dtype), queries(dtype), tmp_path / "out"
    cg.export(given, out, to=to)
    rows, top = CLIENTS[to](out, q)
    kept = {"faiss": np.float32}.get(to, dtype)
    if to in PAIRED:
        i, j = pair(given["image"], given["text"])
        expected = {"image": given["image"].vectors[i], "text": given["text"].vectors[j]}
        assert len(i) == 90
    else:
        expected = {name: side.vectors for name, side in given.items()}
    whole = expected["image"] if to in PAIRED else np.concatenate([*expected.values()])
    expected = expected if set(rows) == set(expected) else {"all": whole}
    for name, array in expected.items():
        assert_same_bits(rows[name], array.astype(kept))
    ours = best(q.astype(float) @ whole.astype(float).T, K)
    # a client that multiplies in float16 is off by 5e-4 of a cosine; otherwise 1e-5
    assert_same_top(top, ours, 500 if to == "lancedb" and dtype == np.float16 else 1)


@pytest.mark.parametrize("to", CLIENTS)
def test_rows_out_of_memory_are_read_in_blocks(tmp_path, to, monkeypatch):
    """Rows on a disk, of several shards, a subset of a set and rows that are computed: none is read as a whole."""
    given, q = sets(), queries()
    monkeypatch.setattr("clip_geometry.io.writing.GROUP", 16)
    asked = []

    def streamed(x):
        def read(rows):
            found = torch.from_numpy(np.asarray(x[rows if isinstance(rows, slice) else rows.numpy()]))
            asked.append(len(found))
            return found

        return StreamedRows(read, x.shape, torch.float32)

    sharded = LazyRows([given["image"].vectors[:25], given["image"].vectors[25:]])
    sources = {
        "image": Embeddings(sharded, "image", given["image"].item_id, metadata=given["image"].metadata),
        "text": Embeddings(
            streamed(given["text"].vectors), "text", given["text"].item_id, metadata=given["text"].metadata
        ),
    }
    cg.export(sources, tmp_path / "out", to=to)
    assert 0 < max(asked) <= 16
    (tmp_path / "plain").mkdir()
    cg.export(given, tmp_path / "plain" / "out", to=to)
    rows, plain = (CLIENTS[to](folder / "out", q)[0] for folder in (tmp_path, tmp_path / "plain"))
    for name in rows:
        assert_same_bits(rows[name], plain[name])


@pytest.mark.parametrize("to", CLIENTS)
def test_nothing_is_left_of_a_failure_and_nothing_is_overwritten(tmp_path, to, monkeypatch):
    def read(rows):
        if not isinstance(rows, slice) or rows.stop > 16:
            raise OSError(5, "Input/output error")
        return torch.zeros(rows.stop - rows.start, D)

    monkeypatch.setattr("clip_geometry.io.writing.GROUP", 16)
    given, out = sets(), tmp_path / "out"
    broken = Embeddings(StreamedRows(read, (N, D), torch.float32), "image", given["image"].item_id)
    with pytest.raises((InputError, OSError), match="Input/output error"):
        cg.export({"image": broken, "text": given["text"]}, out, to=to)
    assert list(tmp_path.iterdir()) == []
    cg.export(given, out, to=to)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=r"(is not empty|exists)"):
        cg.export(given, out, to=to)
    assert files == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("to", CLIENTS)
def test_normalized_rows(tmp_path, to):
    given, q = sets(), queries()
    scaled = {
        name: Embeddings(side.vectors * np.float32(3), name, side.item_id, metadata=side.metadata)
        for name, side in given.items()
    }
    cg.export(scaled, tmp_path / "out", to=to, normalize=True)
    for rows in CLIENTS[to](tmp_path / "out", q)[0].values():
        assert rows.dtype == np.float32 and np.linalg.norm(rows.astype(float), axis=1) == pytest.approx(1, abs=1e-6)
    zero = Embeddings(np.zeros((3, 4), np.float32), "image")
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="image embeddings have a row of zeros, which cannot be made unit length"):
        cg.export(zero, tmp_path / "other" / "out", to=to, normalize=True)
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.parametrize("to", CLIENTS)
def test_rows_that_are_not_finite(tmp_path, to):
    """An index cannot rank them; where rows are only stored, they stay what they are."""
    given = sets()
    given["text"].vectors[20, 3] = np.nan
    if to in ("faiss", "lancedb"):
        with pytest.raises(InputError, match="text rows have NaN or infinity in row 20; remove or repair"):
            cg.export(given, tmp_path / "out", to=to)
        assert list(tmp_path.iterdir()) == []
    else:
        cg.export(given, tmp_path / "out", to=to)
        assert np.isnan(CLIENTS[to](tmp_path / "out", queries())[0]["text"]).sum() == 1


def test_faiss_says_what_it_changes(tmp_path, capsys):
    cg.export({"image": Embeddings(2 * np.eye(4), "image")}, tmp_path / "a", to="faiss")
    said = capsys.readouterr().err
    assert "float64 rows are rounded" in said
    assert "rows have lengths from 2 to 2, so the index ranks by inner product and not by cosine" in said
    cg.export({"image": Embeddings(np.eye(4, dtype=np.float32), "image")}, tmp_path / "b", to="faiss")
    assert capsys.readouterr().err == ""


def test_a_lancedb_table_in_a_database_that_exists(tmp_path):
    lancedb = pytest.importorskip("lancedb")
    database = lancedb.connect(str(tmp_path))
    database.create_table("other", data=[{"a": 1}])
    assert cg.export(sets(), tmp_path / "photos.lance", to="lancedb").keys() == {"photos.lance"}
    assert database.open_table("photos").count_rows() == 150 and database.open_table("other").count_rows() == 1
    assert database.open_table("photos").search().where("modality = 'text'").limit(200).to_arrow().num_rows == 90


def test_columns_of_all_kinds(tmp_path):
    """What the modalities disagree on becomes text or a column of each; what one lacks is missing there."""
    mixed = np.array([1, "two", None], dtype=object)
    days = [datetime.date(2024, 1, day) for day in (1, 2, 3)]
    image = Embeddings(np.eye(3), "image", ["a", "b", "c"], [1, 2, 3], metadata={"odd": mixed, "day": days})
    text = Embeddings(
        np.eye(3), "text", ["a", "b", "c"], ["x", "y", "z"], metadata={"odd": ["p", "q", "r"], "pair": np.eye(3)[:, :2]}
    )
    cg.export({"image": image, "text": text}, tmp_path / "f", to="faiss")
    table = pq.read_table(tmp_path / "f" / "items.parquet").to_pydict()
    assert table["modality"] == ["image"] * 3 + ["text"] * 3
    assert table["label"] == ["1", "2", "3", "x", "y", "z"]
    assert table["odd"] == ["1", "two", None, "p", "q", "r"]
    assert table["day"] == [*days, None, None, None]
    assert table["pair"] == [None, None, None, [1, 0], [0, 1], [0, 0]]
    datasets = pytest.importorskip("datasets")
    cg.export({"image": image, "text": text}, tmp_path / "d", to="datasets")
    found = datasets.load_from_disk(str(tmp_path / "d"))
    assert found["item_id"][:] == ["a", "b", "c"] and found["label"][:] == [1, 2, 3]
    assert found["text_label"][:] == ["x", "y", "z"] and found["text_odd"][:] == ["p", "q", "r"]


def test_datasets_in_several_files(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr("clip_geometry.io.datasets.SHARD", "2KB")
    cg.export(sets()["image"], tmp_path / "d", to="datasets")
    assert len(list((tmp_path / "d").glob("data-*-of-*.arrow"))) > 2
    found = datasets.load_from_disk(str(tmp_path / "d"))
    assert found["row"][:] == list(range(N))


def test_rows_without_a_pair_are_counted(tmp_path, capsys):
    image = Embeddings(np.eye(3), "image", ["a", "b", "c"])
    text = Embeddings(np.eye(3), "text", ["b", "a", "b"])
    cg.export({"image": image, "text": text}, tmp_path / "d", to="clip-retrieval")
    assert "1 of 3 image rows have no text row and are left out" in capsys.readouterr().err


def test_an_unknown_format(tmp_path):
    with pytest.raises(InputError, match="unknown format 'fais'; did you mean 'faiss'"):
        cg.export(sets(), tmp_path / "out", to="fais")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported(tmp_path):
    image, text = Embeddings(np.eye(3), "image"), Embeddings(np.eye(3)[:, :2], "text")
    for to in ("faiss", "lancedb"):
        with pytest.raises(InputError, match=r"different numbers of columns \(image 3, text 2\)"):
            cg.export({"image": image, "text": text}, tmp_path / "out", to=to)
    with pytest.raises(InputError, match="is one file and there are 2 modalities; give a folder"):
        cg.export({"image": image, "text": text}, tmp_path / "out.parquet", to="parquet")
    with pytest.raises(InputError, match="leave the ending out"):
        cg.export(image, tmp_path / "x.faiss", to="faiss")
    with pytest.raises(InputError, match="has no rows; expected at least one to export"):
        cg.export(Embeddings(np.empty((0, 3)), "image"), tmp_path / "out", to="faiss")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("to", "name", "package"),
    [("faiss", "faiss", "faiss-cpu"), ("lancedb", "lancedb", "lancedb"), ("datasets", "datasets", "datasets")],
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, to, name, package):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=f"is not installed: pip install {package}$"):
        cg.export(sets(), tmp_path / "out", to=to)
    assert list(tmp_path.iterdir()) == []


def test_another_layout_of_faiss_is_refused(tmp_path, monkeypatch):
    faiss = pytest.importorskip("faiss")
    whole = faiss.serialize_index
    monkeypatch.setattr(faiss, "serialize_index", lambda index: np.append(whole(index), np.uint8(0)))
    with pytest.raises(InputError, match="writes a flat index in a layout of its own"):
        cg.export(sets(), tmp_path / "out", to="faiss")


@pytest.mark.parametrize("to", ["faiss", "lancedb"])
def test_rows_without_ids_pair_as_before(tmp_path, to):
    """By position where there are as many, and not at all where there are not: an export invents no pairs."""
    rng = np.random.default_rng(0)
    for n in (5, 4):
        sets = {"image": rng.normal(size=(5, 3)), "text": rng.normal(size=(n, 3))}
        cg.export(sets, tmp_path / f"out{n}", to=to)
        found = cg.read_any(tmp_path / f"out{n}")
        assert all(side.item_id is None for side in found.values())
        if n == 5:
            assert [each.tolist() for each in cg.pair(found["image"], found["text"])] == [[0, 1, 2, 3, 4]] * 2
        else:
            with pytest.raises(InputError, match="paired"):
                cg.pair(found["image"], found["text"])


def test_clip_retrieval_has_all_columns(tmp_path, capsys):
    metadata = {"url": np.array(["u", "v"]), "path": np.array(["a.jpg", "b.jpg"])}
    image = Embeddings(np.eye(2), "image", item_id=["a", "b"], metadata=metadata)
    text = Embeddings(np.eye(2)[[0, 0, 1]], "text", item_id=["a", "a", "b"])
    said = cg.export({"image": image, "text": text}, tmp_path / "out", to="clip-retrieval")
    assert said["metadata"] == "of each row: item_id, url, image_path"
    table = pq.read_table(tmp_path / "out/metadata/metadata_0.parquet").to_pydict()
    assert table == {"item_id": ["a", "a", "b"], "url": ["u", "u", "v"], "image_path": ["a.jpg", "a.jpg", "b.jpg"]}
    assert cg.read_any(tmp_path / "out")["image"].item_id is None
    assert "rows pair by position" in capsys.readouterr().err


def test_columns_of_different_integers_stay_integers():
    given = {
        name: Embeddings(np.eye(3), name, labels=np.arange(3, dtype=dtype))
        for name, dtype in (("image", np.int32), ("text", np.int64))
    }
    assert item_table(given)["label"].to_pylist() == [0, 1, 2, 0, 1, 2]
