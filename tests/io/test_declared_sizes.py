"""Each reader compares what it would allocate with the memory before it reads: one case for each check."""

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest

from clip_geometry.embeddings import FileRows
from clip_geometry.io.sources import read_any
from clip_geometry.registry import InputError
from support.format_cases import cloud
from support.format_clients import csv, faiss, lance, webdataset

VECTORS = pa.FixedSizeListArray.from_arrays(pa.array(cloud(500).reshape(-1)), 4)
STREAMED = 2 * FileRows.SPAN  # rows of which only a block has to fit


def written(write, name):
    return lambda folder: write(folder / name) or folder / name


def hdf5(path):
    import h5py

    with h5py.File(path, "w") as file:
        file["image"], file["note"] = np.ones((STREAMED, 4), "f4"), np.ones((STREAMED, 3), int)


def zarr_with_a_chunk_larger_than_its_array(path):
    import zarr

    group = zarr.create_group(path)
    group.create_array("image", shape=(5, 4), chunks=(10**5, 4), dtype="f4")[:] = cloud(5)


def mapped_vectors_with_texts(path):
    table = pa.table({"image": VECTORS[:5], "text": ["x" * 1000] * 5})
    feather.write_feather(table, path, compression="uncompressed")


def compressed_table(path):
    feather.write_feather(pa.table({"image": VECTORS}), path, compression="lz4")


def size(path):
    return sum(file.stat().st_size for file in (path.iterdir() if path.is_dir() else [path]))


# (what writes the file, how many bytes are enough for it, what is said of one less)
CASES = {
    "text, its columns and their matrix": (csv, lambda path: 4 * size(path), ""),
    "a block of rows": (written(hdf5, "x.h5"), lambda _: 16 * FileRows.SPAN, "array 'image', "),
    "a whole column": (written(hdf5, "x.h5"), lambda _: 8 * 3 * STREAMED, "array 'note', "),
    "a chunk": (written(zarr_with_a_chunk_larger_than_its_array, "x.zarr"), lambda _: 16 * 10**5, "a chunk of "),
    "columns beside mapped rows": (written(mapped_vectors_with_texts, "x.feather"), lambda _: 5000, "columns text, "),
    "a compressed table": (written(compressed_table, "x.feather"), lambda _: 8000, ""),
    "an IVF index and a copy": (lambda folder: faiss(folder, "IVF4,Flat"), lambda path: 2 * size(path), ""),
    "vectors of LanceDB": (lance, lambda _: 60 * 8 * 4, "column 'image', "),
    "shards": (webdataset, size, ""),
}


@pytest.mark.parametrize("case", CASES)
def test_what_does_not_fit_is_refused(tmp_path, monkeypatch, case):
    write, needed, what = CASES[case]
    path = write(tmp_path)
    monkeypatch.setattr("clip_geometry.memory.memory", lambda: needed(path) - 1)
    with pytest.raises(InputError, match=f"{what}.*in memory and there are"):
        read_any(path)
    monkeypatch.setattr("clip_geometry.memory.memory", lambda: 3 * needed(path))
    assert len(read_any(path)["image"]) in (5, 60, 500, STREAMED)


def altered(path, old, new, start=0):
    """The file with the first 8-byte number `old` from `start` on as `new`."""
    content = bytearray(path.read_bytes())
    place = content.index(old.to_bytes(8, "little"), start)
    content[place : place + 8] = new.to_bytes(8, "little")
    path.write_bytes(content)


def numbers_of_codes(path):
    altered(path, 60 * 8, 2**36)


def number_of_lists(path):
    altered(path, 4, 2**31, path.read_bytes().index(b"ilar"))


@pytest.mark.parametrize(("factory", "declare"), [("Flat", numbers_of_codes), ("IVF4,Flat", number_of_lists)])
def test_an_index_that_declares_more_than_its_file_has(tmp_path, factory, declare):
    """FAISS would allocate what 2 kB declare: 2^36 numbers, or 2^31 lists. Its limits are set to the file's size, and
    afterwards to what they were."""
    import faiss as library

    limits = library.get_deserialization_vector_byte_limit, library.get_deserialization_loop_limit
    before = [limit() for limit in limits]
    declare(path := faiss(tmp_path, factory))
    with pytest.raises(InputError, match="is no readable FAISS file") as caught:
        read_any(path)
    assert "bad_alloc" not in str(caught.value) and "memory" not in str(caught.value)
    assert [limit() for limit in limits] == before


@pytest.mark.parametrize("declared", [59, 61])
def test_an_index_of_lists_that_declares_another_number_of_rows(tmp_path, declared):
    """FAISS checks this of all other kinds of indexes itself."""
    altered(path := faiss(tmp_path, "IVF4,Flat"), 60, declared)
    with pytest.raises(InputError, match=f"60 rows of {declared}"):
        read_any(path)


def test_rows_without_columns_in_arrow(tmp_path):
    empty = pa.table({"image": pa.array([[], []], pa.list_(pa.float32()))})
    feather.write_feather(empty, tmp_path / "x.feather", compression="uncompressed")
    with pytest.raises(InputError, match="rows without columns"):
        read_any(tmp_path / "x.feather")
