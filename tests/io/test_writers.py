"""Every writer against the program that it writes for: the same bits, and the same ten nearest rows."""

import datetime

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

import clip_geometry as cg
from clip_geometry.embeddings import Embeddings, LazyRows
from clip_geometry.io.export import item_table
from clip_geometry.io.sources import formats
from clip_geometry.registry import InputError
from clip_geometry.rows.streamed import StreamedRows
from support.format_cases import DTYPES, assert_same_bits, cloud
from support.shipped import K, assert_same_top, best

N, D = 60, 24


def sets(dtype=np.float32):
    """Images, and captions in another order, of which an image has one or two. `row` counts them all."""
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


# what a client gives: the rows by column, and the scores and numbers of the ten nearest of all rows


def by_parquet(folder, q):
    frames = {name: pd.read_parquet(folder / f"{name}.parquet") for name in ("image", "text")}
    rows = {name: np.stack(frame["embedding"]) for name, frame in frames.items()}
    scores = q.astype(float) @ np.concatenate([*rows.values()]).astype(float).T
    return rows, best(scores, K)


def by_faiss(folder, q):
    faiss = pytest.importorskip("faiss")
    index = faiss.read_index(str(folder / "index.faiss"))
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT and index.is_trained
    table = pq.read_table(folder / "items.parquet")
    assert table["row"].to_pylist() == list(range(index.ntotal))
    return {"all": index.reconstruct_n(0, index.ntotal)}, index.search(q.astype(np.float32), K)


CLIENTS = {name: globals().get(f"by_{name}") for name, each in formats().items() if "write" in each}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("to", CLIENTS)
def test_the_client_reads_the_same_bits_and_finds_the_same_rows(tmp_path, to, dtype):
    given, q, out = sets(dtype), queries(dtype), tmp_path / "out"
    cg.export(given, out, to=to)
    rows, top = CLIENTS[to](out, q)
    kept = {"faiss": np.float32}.get(to, dtype)
    whole = np.concatenate([side.vectors for side in given.values()])
    expected = {name: side.vectors for name, side in given.items()} if set(rows) == set(given) else {"all": whole}
    for name, array in expected.items():
        assert_same_bits(rows[name], array.astype(kept))
    assert_same_top(top, best(q.astype(float) @ whole.astype(float).T, K), 1)


@pytest.mark.parametrize("to", CLIENTS)
def test_rows_out_of_memory_are_read_in_blocks(tmp_path, to, monkeypatch):
    """Rows on a disk, of several shards, a subset of a set and rows that are computed: none is read as a whole."""
    given, q = sets(), queries()
    monkeypatch.setattr("clip_geometry.io.export.GROUP", 16)
    asked = []

    def streamed(x):
        def read(rows):
            found = torch.from_numpy(np.asarray(x[rows if isinstance(rows, slice) else rows.numpy()]))
            asked.append(len(found))
            return found

        return StreamedRows(read, x.shape, torch.float32)

    image, text = given.values()
    sharded = LazyRows([image.vectors[:25], image.vectors[25:]])
    sources = {
        "image": Embeddings(sharded, "image", image.item_id, metadata=image.metadata),
        "text": Embeddings(streamed(text.vectors), "text", text.item_id, metadata=text.metadata),
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

    monkeypatch.setattr("clip_geometry.io.export.GROUP", 16)
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
    scaled = {
        name: Embeddings(side.vectors * np.float32(3), name, side.item_id, metadata=side.metadata)
        for name, side in sets().items()
    }
    cg.export(scaled, tmp_path / "out", to=to, normalize=True)
    for rows in CLIENTS[to](tmp_path / "out", queries())[0].values():
        assert rows.dtype == np.float32 and np.linalg.norm(rows.astype(float), axis=1) == pytest.approx(1, abs=1e-6)


def test_rows_that_are_not_finite(tmp_path):
    """An index cannot rank them; where rows are only stored, they stay what they are."""
    given = sets()
    given["text"].vectors[20, 3] = np.nan
    with pytest.raises(InputError, match="text rows have NaN or infinity in row 20; remove or repair"):
        cg.export(given, tmp_path / "out", to="faiss")
    assert list(tmp_path.iterdir()) == []
    cg.export(given, tmp_path / "out", to="parquet")
    assert np.isnan(by_parquet(tmp_path / "out", queries())[0]["text"]).sum() == 1


def test_a_table_keeps_what_belongs_to_its_rows(tmp_path):
    captions = {"text": np.array(["p", "q", "r", "s"], dtype=object)}
    ids = np.array(["a", "b", "c"], dtype=object)
    given = {
        "image": Embeddings(cloud(3), "image", ids, np.array([2, 0, 2]), provenance={"model": "m", "n": 3}),
        "text": Embeddings(cloud(4, seed=1), "text", ["c", "a", "b", "a"], language="de", metadata=captions),
        "text_de": Embeddings(cloud(2), "text_de", pair_on="label", labels=[0, 1]),
    }
    assert list(cg.export(given, tmp_path / "out", to="parquet")) == [
        "image.parquet",
        "text.parquet",
        "text_de.parquet",
    ]
    paths = sorted((tmp_path / "out").iterdir())
    for again in (cg.read(tmp_path / "out"), {path.stem: cg.read(path)[path.stem] for path in paths}):
        for modality, side in given.items():
            assert_same_bits(again[modality].vectors, side.vectors)
            assert (again[modality].language, again[modality].pair_on) == (side.language, side.pair_on)
        assert [list(again[name].item_id) for name in ("image", "text")] == [["a", "b", "c"], ["c", "a", "b", "a"]]
        assert list(again["image"].labels) == [2, 0, 2] and again["text"].labels is None
        assert list(again["text"].metadata["text"]) == ["p", "q", "r", "s"]
        assert again["image"].provenance["model"] == "m"
    cg.export(tmp_path / "out", tmp_path / "again", to="parquet")
    assert_same_bits(cg.read(tmp_path / "again")["text"].vectors, given["text"].vectors)


def test_columns_of_all_kinds_in_the_table_of_an_index():
    """What the modalities disagree on becomes text; what one lacks is missing there."""
    mixed = np.array([1, "two", None], dtype=object)
    days = [datetime.date(2024, 1, day) for day in (1, 2, 3)]
    metadata = {"odd": mixed, "day": days, "number": np.arange(3, dtype=np.int32)}
    image = Embeddings(np.eye(3), "image", ["a", "b", "c"], [1, 2, 3], metadata=metadata)
    metadata = {"odd": ["p", "q", "r"], "pair": np.eye(3)[:, :2], "number": np.arange(3)}
    text = Embeddings(np.eye(3), "text", ["a", "b", "c"], ["x", "y", "z"], metadata=metadata)
    table = item_table({"image": image, "text": text}).to_pydict()
    assert table["modality"] == ["image"] * 3 + ["text"] * 3
    assert table["label"] == ["1", "2", "3", "x", "y", "z"]
    assert table["odd"] == ["1", "two", None, "p", "q", "r"]
    assert table["day"] == [*days, None, None, None]
    assert table["pair"] == [None, None, None, [1, 0], [0, 1], [0, 0]]
    assert table["number"] == [0, 1, 2, 0, 1, 2]


def test_what_cannot_be_exported(tmp_path):
    image, text = Embeddings(np.eye(3), "image"), Embeddings(np.eye(3)[:, :2], "text")
    calls = {
        "unknown format 'fais'; did you mean 'faiss'": (image, "out", "fais"),
        r"different numbers of columns \(image 3, text 2\)": ({"image": image, "text": text}, "out", "faiss"),
        "is one file, but there are 2 modalities; give a folder": (
            {"image": image, "text": text},
            "out.parquet",
            "parquet",
        ),
        "has no rows; expected at least one to export": (Embeddings(np.empty((0, 3)), "image"), "out", "faiss"),
    }
    for sentence, (source, out, to) in calls.items():
        with pytest.raises(InputError, match=sentence):
            cg.export(source, tmp_path / out, to=to)
    zero = Embeddings(np.zeros((3, 4), np.float32), "image")
    with pytest.raises(InputError, match=r"the image set has a zero row \(row 0\), which has no direction"):
        cg.export(zero, tmp_path / "out", to="parquet", normalize=True)
    assert list(tmp_path.iterdir()) == []


def test_another_layout_of_faiss_is_refused(tmp_path, monkeypatch):
    faiss = pytest.importorskip("faiss")
    whole = faiss.serialize_index
    monkeypatch.setattr(faiss, "serialize_index", lambda index: np.append(whole(index), np.uint8(0)))
    with pytest.raises(InputError, match="writes flat indexes in another layout"):
        cg.export(sets(), tmp_path / "out", to="faiss")


def test_rows_without_ids_pair_as_before(tmp_path):
    """By position where there are as many, and not at all where there are not: an export invents no pairs."""
    rng = np.random.default_rng(0)
    for n in (5, 4):
        cg.export({"image": rng.normal(size=(5, 3)), "text": rng.normal(size=(n, 3))}, tmp_path / f"{n}", to="faiss")
        found = cg.read(tmp_path / f"{n}")
        assert all(side.item_id is None for side in found.values())
        if n == 5:
            assert [each.tolist() for each in cg.pair(found["image"], found["text"])] == [[0, 1, 2, 3, 4]] * 2
        else:
            with pytest.raises(InputError, match="paired"):
                cg.pair(found["image"], found["text"])
