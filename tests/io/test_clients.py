"""What a format's own client has written: the same bits, ids, labels and metadata."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from clip_geometry.embeddings import LazyRows
from clip_geometry.io.format import formats
from clip_geometry.io.sources import read_any
from clip_geometry.registry import InputError
from support import format_clients as written
from support.format_cases import DTYPES, assert_same_bits, cloud
from support.format_clients import ALL, IDS, IMAGE, LABELS, NOTES, TEXT, WHOLE, N

HELD = ("csv", "faiss-ivf", "webdataset")  # which have to fit into memory


@pytest.fixture(params=["in memory", "streamed"])
def held(request, monkeypatch):
    """Rows are read at once, or when they are asked for, as those of a file that is large for the memory."""
    monkeypatch.setattr("clip_geometry.embeddings.LARGE", 10**9 if request.param == "in memory" else 1)
    return request.param


@pytest.mark.parametrize("name", WHOLE)
def test_two_modalities_with_all_that_belongs_to_them(tmp_path, name, held):
    found = read_any(WHOLE[name](tmp_path))
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
    vectors = read_any(ALL[name](tmp_path))["image"].vectors
    whole = np.asarray(vectors)
    chosen = np.random.default_rng(0).integers(0, N, 40)
    is_lazy = held == "streamed" and name not in HELD
    assert isinstance(vectors, LazyRows | np.memmap if is_lazy else np.ndarray)
    slices = slice(3, 31), slice(0, 0), slice(50, 999), slice(None, None, 7)
    for rows in (*slices, 5, -1, chosen, whole[:, 0] > 0, np.zeros(0, int)):
        assert_same_bits(np.asarray(vectors[rows]), whole[rows])
    if is_lazy:
        assert_same_bits(pickle.loads(pickle.dumps(vectors))[chosen], whole[chosen])


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_precision(tmp_path, suffix, dtype, held):
    import h5py
    import zarr

    vectors = cloud(dtype=dtype)
    vectors[1, 2], vectors[3, 0] = np.nan, np.inf
    if suffix == ".h5":
        with h5py.File(tmp_path / "x.h5", "w", userblock_size=512) as file:  # what is before the format's own bytes
            file["vectors"] = vectors.astype(np.dtype(dtype).newbyteorder(">"))
            file["deep/er/other_embeddings"] = vectors
    else:
        zarr.save_group(tmp_path / "x.zarr", vectors=vectors, **{"deep/er/other_embeddings": vectors})
    found = read_any(tmp_path / f"x{suffix}")
    assert set(found) == {"vectors", "other"}
    for side in found.values():
        assert_same_bits(np.asarray(side.vectors), vectors)


def test_a_single_batch_of_datasets_is_memory_mapped(tmp_path):
    import datasets

    datasets.Dataset.from_dict({"image": IMAGE.tolist()}).cast_column(
        "image", datasets.List(datasets.Value("float32"))
    ).save_to_disk(tmp_path / "x")
    vectors = read_any(tmp_path / "x")["image"].vectors
    assert isinstance(vectors, np.memmap)
    assert_same_bits(vectors, IMAGE)


@pytest.mark.parametrize(
    ("factory", "ids", "expected"),
    [
        ("Flat", None, None),
        ("IVF4,Flat", None, None),
        ("HNSW4,Flat", None, None),
        ("IDMap,Flat", range(100, 100 + N), list(range(100, 100 + N))),
        ("IDMap2,Flat", range(N - 1, -1, -1), list(range(N))),
        ("IDMap,HNSW4,Flat", range(N), list(range(N))),
        ("IVF4,Flat", [2**40 - 3 * k for k in range(N)], sorted(2**40 - 3 * k for k in range(N))),
        ("IVF8_HNSW4,Flat", None, None),
    ],
)
def test_rows_of_an_index_are_in_the_order_of_their_ids(tmp_path, factory, ids, expected, held):
    import faiss

    path = written.faiss(tmp_path, factory, ids)
    (found,) = read_any(path).values()
    index = faiss.read_index(str(path))
    if factory.startswith("IVF"):
        index.set_direct_map_type(faiss.DirectMap.Hashtable)
    order = range(N) if expected is None else expected
    if "IDMap" not in factory:
        assert_same_bits(np.asarray(found.vectors), np.stack([index.reconstruct(k) for k in order]))
    place = {own: k for k, own in enumerate(range(N) if ids is None else ids)}
    assert_same_bits(np.asarray(found.vectors), IMAGE[[place[k] for k in order]])
    assert (found.item_id if expected is None else found.item_id.tolist()) == (
        None if expected is None else [str(k) for k in expected]
    )


def test_sparse_sizes_of_inverted_lists(tmp_path):
    """Of 500 lists most are empty, and FAISS then writes the sizes of the others only."""
    import faiss

    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(8), 8, 500)
    index.train(np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32))
    index.add(IMAGE)
    faiss.write_index(index, str(tmp_path / "x.index"))
    assert b"sprs" in (tmp_path / "x.index").read_bytes()
    assert_same_bits(read_any(tmp_path / "x.index")["x"].vectors, IMAGE)


@pytest.mark.parametrize(
    "factory", ["PQ2x4", "SQ8", "IVF4,PQ2x4", "IVF4,SQ8", "PQ2x4fs", "PCA4,Flat", "PQ2x4,RFlat", "HNSW4,SQ8"]
)
def test_an_index_without_its_rows_is_refused(tmp_path, factory):
    with pytest.raises(InputError, match=r"is a FAISS Index\w+, which does not keep the rows as they were added"):
        read_any(written.faiss(tmp_path, factory))


def test_an_index_of_another_kind_is_refused(tmp_path):
    import faiss

    faiss.write_index_binary(faiss.IndexBinaryFlat(64), str(tmp_path / "x.faiss"))
    with pytest.raises(InputError, match=r"is no readable FAISS file, .* \(Index type"):
        read_any(tmp_path / "x.faiss")


def test_splits_of_a_dataset_are_asked_for(tmp_path):
    folder = written.datasets(tmp_path).parent
    with pytest.raises(InputError, match="is a DatasetDict of the splits train: give the folder of one of them"):
        read_any(folder)


def test_images_of_a_dataset_are_left_out_with_a_note(tmp_path, capsys):
    import datasets
    from PIL import Image

    pixels = [Image.new("RGB", (2, 2))] * 3
    datasets.Dataset.from_dict({"vector": cloud(3).tolist(), "image": pixels, "id": [3, 1, 2]}).save_to_disk(
        tmp_path / "x"
    )
    (found,) = read_any(tmp_path / "x").values()
    assert found.item_id.tolist() == ["3", "1", "2"] and found.metadata == {}
    assert "which are no plain columns: image" in capsys.readouterr().err


def test_a_table_that_has_changed_gives_its_latest_version(tmp_path, held):
    import lancedb

    path = written.lance(tmp_path)
    table = lancedb.connect(path.parent).open_table("x")
    table.delete("note = 'a note, 3'")
    table.update(where="note = 'a note, 40'", values={"note": "changed"})
    stored = table.to_arrow()
    found = read_any(path)["image"]
    vectors = found.vectors if held == "in memory" else found.vectors[:]
    assert_same_bits(vectors, np.stack(stored["image"].to_numpy(zero_copy_only=False)))
    assert found.item_id.tolist() == stored["id"].to_pylist() and len(found) == N - 1
    if held == "streamed":  # rows of the version that was opened, whatever is written since
        table.delete("true")
        assert_same_bits(found.vectors[:], vectors)


def test_a_database_has_one_table_or_one_of_each_modality(tmp_path):
    import lancedb

    def rows(x):
        return [{"vector": row.tolist()} for row in x]

    database = lancedb.connect(tmp_path / "db")
    database.create_table("image", rows(IMAGE))
    assert set(read_any(tmp_path / "db")) == {"image"}
    database.create_table("text", rows(TEXT))
    found = read_any(tmp_path / "db")
    assert_same_bits(found["image"].vectors, IMAGE)
    assert_same_bits(found["text"].vectors, TEXT)
    assert found["text"].modality == "text"
    database.create_table("others", rows(TEXT))
    assert set(read_any(tmp_path / "db")) == {"image", "text"}
    lancedb.connect(tmp_path / "one").create_table("others", rows(TEXT))
    assert_same_bits(read_any(tmp_path / "one")["one"].vectors, TEXT)


def test_shards_of_webdataset_that_count_alike(tmp_path):
    import webdataset

    for shard in ("a", "b"):
        with webdataset.TarWriter(str(tmp_path / f"{shard}.tar")) as tar:
            for k in range(3):
                tar.write({"__key__": str(k), "npy": IMAGE[k : k + 1], "jpg": b"", "txt": f"é {k}", "cls": k})
    (found,) = read_any(tmp_path).values()
    assert found.item_id.tolist() == ["a/0", "a/1", "a/2", "b/0", "b/1", "b/2"]
    assert_same_bits(found.vectors, np.concatenate([IMAGE[:3], IMAGE[:3]]))
    assert found.metadata["text"].tolist() == ["é 0", "é 1", "é 2"] * 2 and found.labels.tolist() == [0, 1, 2] * 2


def test_tars_beside_files_of_modalities_are_not_read(tmp_path):
    np.save(tmp_path / "image.npy", IMAGE)
    (tmp_path / "backup.tar").write_bytes(b"x")
    assert set(read_any(tmp_path)) == {"image"}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_numbers_without_a_header(tmp_path, delimiter):
    x = IMAGE.astype(np.float64) * np.pi
    np.savetxt(tmp_path / "x.csv", x, delimiter=delimiter)  # %.18e
    (found,) = read_any(tmp_path / "x.csv").values()
    assert_same_bits(found.vectors, x)
    assert found.item_id is None and found.labels is None


@pytest.mark.parametrize("has_index", [False, True])
def test_numbered_columns_of_pandas(tmp_path, has_index):
    import pandas as pd

    x = IMAGE.astype(np.float64) / 3
    pd.DataFrame(x, index=[f"i{k}" for k in range(N)]).to_csv(tmp_path / "x.csv", index=has_index)
    (found,) = read_any(tmp_path / "x.csv").values()
    assert_same_bits(found.vectors, x)
    assert found.item_id is None or found.item_id.tolist() == [f"i{k}" for k in range(N)]
    assert (found.item_id is not None) == has_index


@pytest.mark.parametrize(
    ("text", "ids", "labels", "rows"),
    [
        ("1,2\n3,4\n", None, None, [[1.0, 2.0], [3.0, 4.0]]),
        ("id,label,x,y\n3,c,1,2.5\n4,d,-3e-2,4\n", ["3", "4"], ["c", "d"], [[1.0, 2.5], [-0.03, 4.0]]),
        ("d10,d2,year\n1,2,1999\n3,4,2000\n", None, None, [[2.0, 1.0], [4.0, 3.0]]),
        ('\ufeff"v[0]","v[1]"\n1,nan\n-inf,4\n', None, None, [[1.0, np.nan], [-np.inf, 4.0]]),
    ],
)
def test_columns_by_place_and_by_name(tmp_path, text, ids, labels, rows):
    (tmp_path / "x.csv").write_text(text, encoding="utf-8")
    (found,) = read_any(tmp_path / "x.csv").values()
    assert_same_bits(found.vectors, np.array(rows))
    assert (found.item_id is None) == (ids is None) and (found.labels is None) == (labels is None)
    assert ids is None or found.item_id.tolist() == ids
    assert labels is None or found.labels.tolist() == labels


def test_an_index_with_a_table_of_its_rows(tmp_path, held):
    import pyarrow as pa
    import pyarrow.parquet as pq

    written.faiss(tmp_path).rename(tmp_path / "index.faiss")
    columns = {"modality": ["image", "text"] * (N // 2), "item_id": IDS, "label": LABELS, "note": NOTES}
    pq.write_table(pa.table(columns), tmp_path / "items.parquet")
    found = read_any(tmp_path)
    for start, modality in enumerate(("image", "text")):
        assert_same_bits(np.asarray(found[modality].vectors), IMAGE[start::2])
        assert found[modality].item_id.tolist() == IDS[start::2]
        assert found[modality].metadata["note"].tolist() == NOTES[start::2]
    pq.write_table(pa.table({name: column[1:] for name, column in columns.items()}), tmp_path / "items.parquet")
    with pytest.raises(InputError, match=r"has 60 rows in index\.faiss and fewer in items\.parquet"):
        read_any(tmp_path)


@pytest.mark.parametrize(("name", "package"), [("hdf5", "h5py"), ("zarr", "zarr"), ("lance", "lancedb")])
def test_a_missing_library_is_one_sentence(tmp_path, monkeypatch, name, package):
    path = ALL[name](tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError) as caught:
        read_any(path)
    assert str(caught.value) == f"{path} needs {package}, which is not installed: pip install {package}"
    assert package in {each.package for each in formats().values()}


def test_formats_import_no_library_until_a_file_is_read():
    outside = ["h5py", "zarr", "lancedb", "datasets", "faiss", "webdataset", "pyarrow.csv"]
    code = f"""import sys; from clip_geometry.io.format import formats; formats()
print([name for name in {outside} if name in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_format_says_what_it_holds():
    suffixes = [suffix for each in formats().values() for suffix in each.suffixes]
    assert len(suffixes) == len(set(suffixes))
    for each in formats().values():
        assert each.holds and each.title and (each.suffixes or each.recognizes)


def test_a_class_of_thousands_of_digits_stays_text(tmp_path):
    """`int` refuses more than 4,300 digits with a traceback."""
    import webdataset

    with webdataset.TarWriter(str(tmp_path / "x.tar")) as shard:
        for k in range(3):
            shard.write({"__key__": str(k), "npy": IMAGE[k], "cls": "9" * 6000})
    (side,) = read_any(tmp_path / "x.tar").values()
    assert side.labels.tolist() == ["9" * 6000] * 3
