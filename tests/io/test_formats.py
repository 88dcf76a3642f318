"""Whatever program wrote them, rows have the same bits, and the modality, ids and columns that belong to them."""

import pickle
import subprocess
import sys
from importlib import import_module

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from clip_geometry.data import load_dataset
from clip_geometry.embedding.loop import embed
from clip_geometry.embeddings import LazyRows, pair
from clip_geometry.encoders import resolve_encoder
from clip_geometry.io.sources import formats, read, read_embeddings, read_sets
from clip_geometry.progress import quiet
from clip_geometry.registry import InputError
from support import format_clients as written
from support.format_cases import DTYPES, FORMATS, assert_same_bits, cloud, vector_column, write
from support.format_clients import ALL, IDS, IMAGE, LABELS, NOTES, TEXT, WHOLE, N

STREAMED = (
    "hdf5",
    "hdf5-chunked",
    "zarr",
    "zarr-2",
    "faiss",
    "faiss-hnsw",
    "faiss-ids",
    "arrow",
    "datasets",
    "parquet",
)


@pytest.fixture(params=["in memory", "streamed"])
def held(request, monkeypatch):
    """Rows are read at once, or when they are asked for, as those of a file that is large for the memory."""
    monkeypatch.setattr("clip_geometry.embeddings.LARGE", 10**9 if request.param == "in memory" else 1)
    return request.param


@pytest.mark.parametrize("name", WHOLE)
def test_two_modalities_with_all_that_belongs_to_them(tmp_path, name):
    found = read(WHOLE[name](tmp_path))
    assert set(found) == {"image", "text"}
    for modality, rows in {"image": IMAGE, "text": TEXT}.items():
        side = found[modality]
        vectors = np.asarray(side.vectors)
        if name == "csv":  # the shortest digits that are this float32 and no other
            assert vectors.dtype == np.float64
            vectors = vectors.astype(np.float32)
        assert_same_bits(vectors, rows)
        assert side.modality == modality
        assert side.item_id.tolist() == IDS
        assert side.labels.tolist() == LABELS
        assert side.metadata["note"].tolist() == NOTES


@pytest.mark.parametrize("name", ALL)
def test_rows_are_chosen_as_numpy_chooses_them(tmp_path, name, held):
    vectors = read(ALL[name](tmp_path))["image"].vectors
    whole = np.asarray(vectors)
    chosen = np.random.default_rng(0).integers(0, N, 40)
    is_lazy = held == "streamed" and name in STREAMED
    assert isinstance(vectors, LazyRows) == is_lazy or name == "lance"
    slices = slice(3, 31), slice(0, 0), slice(50, 999), slice(None, None, 7)
    for rows in (*slices, 5, -1, chosen, whole[:, 0] > 0, np.zeros(0, int)):
        assert_same_bits(np.asarray(vectors[rows]), whole[rows])
    if is_lazy:
        assert_same_bits(pickle.loads(pickle.dumps(vectors))[chosen], whole[chosen])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("suffix", [*FORMATS, ".h5", ".zarr"])
def test_every_precision_and_values_that_are_not_finite(tmp_path, suffix, dtype):
    import h5py
    import zarr

    vectors, path = cloud(dtype=dtype), tmp_path / f"x{suffix}"
    vectors[1, 2], vectors[3, 0] = np.nan, np.inf
    if suffix == ".h5":
        with h5py.File(path, "w", userblock_size=512) as file:  # what is before the format's own bytes
            file["deep/er/other_embeddings"] = vectors.astype(np.dtype(dtype).newbyteorder(">"))
    elif suffix == ".zarr":
        zarr.save_group(path, **{"deep/er/other_embeddings": vectors})
    else:
        write(path, vectors)
    for modality in ("image", "text"):
        embeddings = read_embeddings(path, modality=modality)
        assert_same_bits(np.asarray(embeddings.vectors), vectors)
        assert embeddings.modality == modality
        assert embeddings.provenance == {"source": str(path), "dtype": np.dtype(dtype).name}
    assert [side.modality for side in read(path).values()] == ["x"]
    assert [side.modality for side in read(path, unnamed="image").values()] == ["image"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_no_rows(tmp_path, suffix):
    assert read_embeddings(write(tmp_path / f"x{suffix}", cloud(0, 4)), modality="image").vectors.shape == (0, 4)


# --- arrays and tensors


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_another_byte_or_row_order(tmp_path, order):
    np.save(tmp_path / "x.npy", np.asarray(cloud().astype(">f4"), order=order))
    assert_same_bits(read_embeddings(tmp_path / "x.npy", modality="image").vectors, cloud())


def test_large_files_are_memory_mapped(tmp_path, monkeypatch):
    assert isinstance(read(write(tmp_path / "x.npy", cloud()))["x"].vectors, np.memmap)
    path = write(tmp_path / "x.pt", cloud(1000, 50))
    monkeypatch.setattr("clip_geometry.memory.memory", lambda: path.stat().st_size // 2)  # more than there is
    assert_same_bits(read(path)["x"].vectors, cloud(1000, 50))
    torch.save(torch.from_numpy(cloud(1000, 50)), path, _use_new_zipfile_serialization=False)
    with pytest.raises(InputError, match="of memory, but only"):
        read(path)


def test_tensors_of_other_kinds(tmp_path):
    tensor = torch.from_numpy(cloud()).bfloat16()
    save_file({"image": tensor}, tmp_path / "x.safetensors")
    vectors = read(tmp_path / "x.safetensors")["image"].vectors
    assert vectors.dtype == np.float32
    assert torch.equal(torch.from_numpy(vectors).bfloat16().view(torch.int16), tensor.view(torch.int16))
    torch.save(torch.ones(3, 2, requires_grad=True), tmp_path / "c.pt")
    assert read(tmp_path / "c.pt")["c"].vectors.shape == (3, 2)


# --- indexes


@pytest.mark.parametrize(
    ("factory", "ids", "expected"),
    [
        ("Flat", None, None),
        ("HNSW4,Flat", None, None),
        ("IDMap,Flat", range(100, 100 + N), list(range(100, 100 + N))),
        ("IDMap2,Flat", range(N - 1, -1, -1), list(range(N))),
        ("IDMap,HNSW4,Flat", range(N), list(range(N))),
    ],
)
def test_rows_of_an_index_are_in_the_order_of_their_ids(tmp_path, factory, ids, expected, held):
    (found,) = read(written.faiss(tmp_path, factory, ids)).values()
    place = {own: k for k, own in enumerate(range(N) if ids is None else ids)}
    order = range(N) if expected is None else expected
    assert_same_bits(np.asarray(found.vectors), IMAGE[[place[k] for k in order]])
    assert (found.item_id is None) == (expected is None)
    assert expected is None or found.item_id.tolist() == [str(k) for k in expected]


@pytest.mark.parametrize(
    "factory", ["PQ2x4", "SQ8", "IVF4,Flat", "IVF4,PQ2x4", "PCA4,Flat", "PQ2x4,RFlat", "HNSW4,SQ8"]
)
def test_an_index_without_its_rows_in_order_is_refused(tmp_path, factory):
    with pytest.raises(InputError, match=r"is a FAISS Index\w+; expected a flat index or HNSW on one"):
        read(written.faiss(tmp_path, factory))


def test_an_index_with_a_table_of_its_rows(tmp_path, held):
    written.faiss(tmp_path).rename(tmp_path / "index.faiss")
    columns = {"modality": ["image", "text"] * (N // 2), "item_id": IDS, "label": LABELS, "note": NOTES}
    pq.write_table(pa.table(columns), tmp_path / "items.parquet")
    found = read(tmp_path)
    for start, modality in enumerate(("image", "text")):
        assert_same_bits(np.asarray(found[modality].vectors), IMAGE[start::2])
        assert found[modality].item_id.tolist() == IDS[start::2]
        assert found[modality].metadata["note"].tolist() == NOTES[start::2]
    pq.write_table(pa.table({name: column[1:] for name, column in columns.items()}), tmp_path / "items.parquet")
    with pytest.raises(InputError, match=r"has 60 rows in index\.faiss, but fewer in items\.parquet"):
        read(tmp_path)


# --- tables


@pytest.mark.parametrize("kind", ["list", "large", "fixed"])
def test_columns_belong_to_the_rows(tmp_path, capsys, kind):
    vectors = cloud(3)
    columns = {"label": [5, 6, 5], "item_id": [10, 11, 12], "id": [1, 2, 3], "v": vector_column(vectors, kind)}
    columns |= {"tags": [[1, 2], [3], []], "part": pa.array(["x", "y", "x"]).dictionary_encode()}
    columns |= {"picture": [{"bytes": b"x"}] * 3, "raw": [b"x"] * 3}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", row_group_size=2)
    embeddings = read_embeddings(tmp_path / "x.parquet", modality="image")
    assert_same_bits(embeddings.vectors, vectors)
    assert list(embeddings.item_id) == ["10", "11", "12"]
    assert list(embeddings.labels) == [5, 6, 5]
    assert {name: list(column) for name, column in embeddings.metadata.items()} == {
        "id": [1, 2, 3],
        "tags": [[1, 2], [3], []],
        "part": ["x", "y", "x"],
    }
    assert "because they are not plain columns: picture, raw" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_vectors_as_text_are_those_of_a_database_dump(tmp_path, capsys, suffix):
    texts = [str(row.tolist()).replace(" ", "") for row in cloud(4)]
    path, columns = tmp_path / f"x{suffix}", {"key1": [1, 2, 3, 4], "modality": ["image", "text"] * 2, "v": texts}
    table = pa.table(columns | {"item_id": ["a", "a", "b", "b"], "key2": [4, 3, 2, 1]})
    if suffix == ".csv":
        table.to_pandas().to_csv(path, index=False)
    else:
        pq.write_table(table, path)
    sides = read(path)
    assert {name: (side.item_id.tolist(), [*side.metadata]) for name, side in sides.items()} == {
        "image": (["a", "b"], ["key1", "key2"]),
        "text": (["a", "b"], ["key1", "key2"]),
    }
    assert_same_bits(sides["text"].vectors.astype(np.float32), cloud(4)[1::2])
    assert "none" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "ids", "labels", "rows"),
    [
        ("1,2\n3,4\n", None, None, [[1.0, 2.0], [3.0, 4.0]]),
        ("0.5;1e3\n-inf;nan\n", None, None, [[0.5, 1000.0], [-np.inf, np.nan]]),
        ("id,label,d10,d2,year\n3,c,1,2.5,1999\n4,d,-3e-2,4,2000\n", "34", "cd", [[2.5, 1.0], [4.0, -0.03]]),
        ('\ufeff"v[0]","v[1]"\n1,nan\n-inf,4\n', None, None, [[1.0, np.nan], [-np.inf, 4.0]]),
        ("0,1\n1.5,2\n3,4\n", None, None, [[1.5, 2.0], [3.0, 4.0]]),
        (",0,1\ni0,1.5,2\ni1,3,4\n", ["i0", "i1"], None, [[1.5, 2.0], [3.0, 4.0]]),
    ],
)
def test_numbered_columns_of_a_text(tmp_path, text, ids, labels, rows):
    (tmp_path / "x.csv").write_text(text, encoding="utf-8")
    (found,) = read(tmp_path / "x.csv").values()
    assert_same_bits(found.vectors, np.array(rows))
    assert (found.item_id is None) == (ids is None) and (found.labels is None) == (labels is None)
    assert ids is None or found.item_id.tolist() == list(ids)
    assert labels is None or found.labels.tolist() == list(labels)


def test_numbered_columns_of_parquet_keep_their_type(tmp_path):
    columns = {f"{name}_{k}": x[:, k] for name, x in {"image": IMAGE, "text": TEXT}.items() for k in range(x.shape[1])}
    pq.write_table(pa.table({"id": IDS, **columns}), tmp_path / "x.parquet")
    found = read(tmp_path / "x.parquet")
    assert_same_bits(found["image"].vectors, IMAGE)
    assert_same_bits(found["text"].vectors, TEXT)


def test_a_table_that_does_not_say_what_pairs_or_which_modality_rows_are_of_is_remarked_on(tmp_path, capsys):
    columns = {"id": ["1", "2", "3", "4"], "kind": ["image", "text"] * 2, "v": vector_column(cloud(4))}
    columns["note"] = ["some", "texts", None, "or none"]
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    assert [*read_sets(tmp_path / "x.parquet")] == ["x"]
    assert capsys.readouterr().err.endswith("rename it to 'modality': kind\n")
    columns["modality"] = columns.pop("kind")
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    assert [*read_sets(tmp_path / "x.parquet")] == ["image", "text"]
    assert "'item_id' with the same value in paired rows" in (said := capsys.readouterr().err)
    assert said.endswith("other columns are note\n") and "rename" not in said
    columns["item_id"] = ["a", "a", "b", "b"]
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    assert [*read_sets(tmp_path / "x.parquet")] == ["image", "text"]
    assert not capsys.readouterr().err


def test_the_column_modality_splits_the_rows_of_one_vector_column(tmp_path, held):
    names = ("image", "text", "audio", "text_de")
    modality = pa.array([name for _ in range(7) for name in names]).dictionary_encode()
    columns = {"embedding": vector_column(cloud(28)), "modality": modality, "note": range(28)}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    found = read(tmp_path / "x.parquet")
    assert tuple(found) == names
    for start, name in enumerate(names):
        assert_same_bits(np.asarray(found[name].vectors), cloud(28)[start::4])
        assert found[name].metadata["note"].tolist() == [*range(start, 28, 4)]


def test_splits_of_a_dataset_are_asked_for(tmp_path):
    with pytest.raises(InputError, match="is a DatasetDict; give the folder of one of its splits"):
        read(written.datasets(tmp_path).parent)


def test_a_table_of_lancedb_gives_its_latest_version(tmp_path):
    import lancedb

    path = written.lance(tmp_path)
    table = lancedb.connect(path.parent).open_table("x")
    table.delete("note = 'a note, 3'")
    table.update(where="note = 'a note, 40'", values={"note": "changed"})
    stored = table.to_arrow()
    found = read(path)["image"]
    assert_same_bits(np.asarray(found.vectors), np.stack(stored["image"].to_numpy(zero_copy_only=False)))
    assert found.item_id.tolist() == stored["id"].to_pylist() and len(found) == N - 1


def test_a_database_of_lancedb_has_one_table_or_one_of_each_modality(tmp_path):
    import lancedb

    def rows(x):
        return [{"vector": row.tolist()} for row in x]

    database = lancedb.connect(tmp_path / "db")
    for name, x in {"image": IMAGE, "text": TEXT, "others": TEXT}.items():
        database.create_table(name, rows(x))
    found = read(tmp_path / "db")
    assert set(found) == {"image", "text"}
    assert_same_bits(found["image"].vectors, IMAGE)
    assert_same_bits(found["text"].vectors, TEXT)
    lancedb.connect(tmp_path / "one").create_table("others", rows(TEXT))
    assert_same_bits(read(tmp_path / "one")["one"].vectors, TEXT)


def test_shards_of_webdataset_that_count_alike(tmp_path):
    import webdataset

    for shard in ("a", "b"):
        with webdataset.TarWriter(str(tmp_path / f"{shard}.tar")) as tar:
            for k in range(3):
                tar.write({"__key__": str(k), "npy": IMAGE[k : k + 1], "jpg": b"", "txt": f"é {k}", "cls": k})
    (found,) = read(tmp_path).values()
    assert found.item_id.tolist() == ["a/0", "a/1", "a/2", "b/0", "b/1", "b/2"]
    assert_same_bits(found.vectors, np.concatenate([IMAGE[:3], IMAGE[:3]]))
    assert found.metadata["text"].tolist() == ["é 0", "é 1", "é 2"] * 2 and found.labels.tolist() == [0, 1, 2] * 2


# --- folders of shards


def clip_retrieval(folder, shards, digits=1):
    """A folder as clip-retrieval writes it; `shards` maps a number to its rows."""
    for name in ("img_emb", "text_emb", "metadata"):
        (folder / name).mkdir(parents=True)
    for number, n in shards.items():
        name = f"{number:0{digits}d}"
        np.save(folder / "img_emb" / f"img_emb_{name}.npy", cloud(n, dtype=np.float16, seed=number))
        np.save(folder / "text_emb" / f"text_emb_{name}.npy", cloud(n, dtype=np.float16, seed=100 + number))
        table = {"image_path": [f"{number}.jpg"] * n, "caption": [f"caption {k}" for k in range(n)]}
        pq.write_table(pa.table(table), folder / "metadata" / f"metadata_{name}.parquet")
    return folder


@pytest.mark.parametrize("digits", [1, 4])
def test_clip_retrieval_shards_come_in_numeric_order_and_pair_by_position(tmp_path, digits):
    shards = {2: 3, 10: 4, 0: 2}
    sides = read(clip_retrieval(tmp_path, shards, digits))
    assert [*sides] == ["image", "text"]
    expected = [cloud(n, dtype=np.float16, seed=number) for number, n in sorted(shards.items())]
    assert_same_bits(sides["image"].vectors, np.concatenate(expected))
    assert list(sides["text"].metadata["text"][:3]) == ["caption 0", "caption 1", "caption 0"]
    assert list(sides["image"].metadata["image_path"][:3]) == ["0.jpg", "0.jpg", "2.jpg"]
    assert [list(index) for index in pair(sides["image"], sides["text"])] == [[*range(9)]] * 2


def test_clip_retrieval_of_a_single_shard_of_images(tmp_path):
    (tmp_path / "img_emb").mkdir()
    np.save(tmp_path / "img_emb" / "img_emb_0.npy", cloud())
    sides = read(tmp_path)
    assert list(sides) == ["image"] and isinstance(sides["image"].vectors, np.memmap)
    with pytest.raises(InputError, match="holds image embeddings; text embeddings were expected"):
        read_embeddings(tmp_path, modality="text")


def _truncated(folder):
    path = folder / "img_emb" / "img_emb_1.npy"
    path.write_bytes(path.read_bytes()[:-1])


SPOILED = {
    r"img_emb_1\.npy has the shape \(3, 5\); expected \(3, 4\), the rows of its metadata and the columns": (
        lambda folder: np.save(folder / "img_emb" / "img_emb_1.npy", cloud(3, 5))
    ),
    r"img_emb_1\.npy has the shape \(3, 4\); expected \(1, 4\)": (
        lambda folder: pq.write_table(pa.table({"caption": ["a"]}), folder / "metadata" / "metadata_1.parquet")
    ),
    "lacks shard 1 of metadata": lambda folder: (folder / "metadata" / "metadata_1.parquet").unlink(),
    "lacks shard 1 of image": lambda folder: (folder / "img_emb" / "img_emb_1.npy").unlink(),
    r"text_emb_1\.npy and text_emb_01\.npy have the same shard number": (
        lambda folder: np.save(folder / "text_emb" / "text_emb_01.npy", cloud(3))
    ),
    r"has no shards such as img_emb/img_emb_0\.npy": lambda folder: [each.unlink() for each in folder.glob("*_emb/*")],
    r"img_emb_1\.npy is not a readable \.npy file": _truncated,
}


@pytest.mark.parametrize("sentence", SPOILED)
def test_clip_retrieval_folders_that_do_not_fit(tmp_path, sentence):
    SPOILED[sentence](clip_retrieval(tmp_path, {0: 2, 1: 3}))
    with pytest.raises(InputError, match=sentence):
        read(tmp_path)


# --- folders with a file or a store for each modality


def test_a_folder_has_a_file_for_each_modality(tmp_path, capsys):
    """Other files may lie beside them."""
    for seed, name in enumerate(("image", "text_de")):
        write(tmp_path / f"{name}.npy", cloud(seed=seed))
    write(tmp_path / "audio_emb.safetensors", cloud(seed=2))
    np.save(tmp_path / "labels.npy", np.arange(7))
    np.save(tmp_path / "pixels.npy", np.zeros((7, 2, 2, 3), np.uint8))
    np.save(tmp_path / "center.npy", np.zeros((1, 5), np.float32))
    np.save(tmp_path / "names.npy", np.array(["a", None]), allow_pickle=True)
    (tmp_path / "classes.json").write_text("[]")
    (tmp_path / "backup.tar").write_bytes(b"x")
    (tmp_path / "gone.npy").symlink_to("nowhere")
    (tmp_path / "folder.npy").mkdir()
    pq.write_table(pa.table({"caption": ["a"]}), tmp_path / "captions.parquet")
    found = read(tmp_path)
    assert [*found] == ["image", "audio", "text_de"]
    for seed, name in enumerate(("image", "text_de", "audio")):
        assert_same_bits(found[name].vectors, cloud(seed=seed))
        assert found[name].modality == name
    assert "left out" in capsys.readouterr().err  # the pickle
    write(tmp_path / "image.npz", cloud())
    with pytest.raises(InputError, match=r"has image rows in image\.npy and image\.npz: give one of these"):
        read(tmp_path)


def test_a_folder_without_rows_or_with_a_name_that_pipelines_cannot_carry_is_refused(tmp_path):
    np.save(tmp_path / "labels.npy", np.arange(7))
    with pytest.raises(InputError, match="is a directory without embeddings; expected a store"):
        read(tmp_path)
    np.save(tmp_path / "a+b.npy", cloud())
    with pytest.raises(InputError, match=r"a\+b\.npy 'a\+b' is not a modality name"):
        read(tmp_path)


def test_a_folder_of_stores_has_the_sides_of_all(tmp_path):
    """The only side of a store, and its texts, are called as the store; others keep their names."""
    model = resolve_encoder("scenes-clip/fresh")
    data = load_dataset("scenes", size=3)
    for name, part in {"en": data, "text_again": data.only("text")}.items():
        embed(model, part, tmp_path / name, device="cpu", progress=quiet)
    np.save(tmp_path / "audio.npy", cloud())
    assert list(found := read(tmp_path)) == ["image", "audio", "en", "text_again"]
    assert found["en"].modality == "en"
    assert np.array_equal(found["en"].vectors, found["text_again"].vectors)
    assert found["en"].item_id.tolist() == found["image"].item_id.tolist()
    np.save(tmp_path / "en.npy", cloud())
    with pytest.raises(InputError, match=r"has en rows in en and en\.npy: give one of these"):
        read(tmp_path)


# --- names


@pytest.mark.parametrize("name", ["text.npy", "TXT.npy", "text_emb.parquet", "text_features.npz"])
def test_a_file_that_names_no_side_goes_by_its_own_name(tmp_path, name):
    path = write(tmp_path / name, cloud())
    if name.endswith(".npz"):
        np.savez(path, rows=cloud())
    assert [*read(path)] == ["text"]
    with pytest.raises(InputError, match="holds text embeddings; image embeddings were expected"):
        read_embeddings(path, modality="image")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pt", ".parquet"])
def test_one_file_with_an_array_for_each_modality(tmp_path, suffix):
    names, path = ("image", "text", "audio", "text_de"), tmp_path / f"x{suffix}"
    arrays = {f"{name}_emb": cloud(seed=seed) for seed, name in enumerate(names)}
    tensors = {name: torch.from_numpy(x) for name, x in arrays.items()}
    tensors |= {"logit_scale": torch.tensor(4.6), "labels": torch.arange(7)}
    if suffix == ".npz":
        np.savez(path, ids=np.arange(7), labels=np.arange(7), **arrays)
    elif suffix == ".parquet":
        pq.write_table(pa.table({name: list(x) for name, x in arrays.items()} | {"labels": range(7)}), path)
    else:
        save_file(tensors, path) if suffix == ".safetensors" else torch.save(tensors, path)
    found = read(path)
    assert sorted(found) == sorted(names)
    for seed, name in enumerate(names):
        assert_same_bits(found[name].vectors, cloud(seed=seed))
        assert found[name].labels.tolist() == [*range(7)]


def test_two_files_are_images_and_texts_unless_they_say_otherwise(tmp_path, capsys):
    a, b = cloud(seed=1), cloud(seed=2)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    for kind in ("image", "text"):
        save_file({kind: torch.from_numpy(b)}, tmp_path / f"{kind}.safetensors")
    plain, other = tmp_path / "a.npy", tmp_path / "b.npy"
    image, text = tmp_path / "image.safetensors", tmp_path / "text.safetensors"
    found = read_sets(plain, other)
    assert {name: side.vectors.tolist() for name, side in found.items()} == {"image": a.tolist(), "text": b.tolist()}
    assert [*read_sets(plain, text)] == ["image", "text"]
    assert "despite their order" not in capsys.readouterr().err
    assert {side.modality for side in read_sets(text, image).values()} == {"image", "text"}
    assert "despite their order" in capsys.readouterr().err
    assert {name: side.modality for name, side in read_sets(text, text).items()} == {"image": "image", "text": "text"}
    assert "both sets hold text rows" in capsys.readouterr().err
    with pytest.raises(InputError, match="holds text rows, and so does an earlier set; give one set of each"):
        read_sets(text, plain)
    assert [*read_sets(plain, other, image)] == ["a", "b", "image"]
    with pytest.raises(InputError, match="holds image rows, and so does an earlier set"):
        read_sets(image, image, plain)


# --- the registry


@pytest.mark.parametrize(
    ("name", "package"), [("hdf5", "h5py"), ("zarr", "zarr"), ("lance", "lancedb"), ("faiss", "faiss")]
)
def test_a_missing_library_is_one_sentence(tmp_path, monkeypatch, name, package):
    path = ALL[name](tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"needs {package}.*, which is not installed: pip install {package}"):
        read(path)


def test_a_file_imports_no_library_of_another_format(tmp_path):
    outside = ["h5py", "zarr", "lancedb", "datasets", "faiss", "webdataset", "pyarrow"]
    np.save(tmp_path / "image.npy", cloud())
    code = f"""import sys; from clip_geometry.io.sources import read; read({str(tmp_path / "image.npy")!r})
print([name for name in {outside} if name in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_format_says_what_it_holds():
    suffixes = [suffix for each in formats().values() for suffix in each.get("suffixes", ())]
    assert len(suffixes) == len(set(suffixes))
    for each in formats().values():
        assert each["holds"] and each["title"] and ("suffixes" in each or "recognizes" in each)
        for key in {"read", "write", "recognizes"} & each.keys():
            module, _, name = each[key].rpartition(".")
            assert hasattr(import_module(f"clip_geometry.{module}"), name)
