"""Each reader compares what it would allocate with the memory before it reads: one test for each check."""

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest

from clip_geometry.embeddings import FileRows
from clip_geometry.formats import read_any
from clip_geometry.registry import InputError
from support.format_cases import cloud
from support.format_clients import csv, faiss, lance, webdataset

REFUSED = "in memory and there are"


@pytest.fixture
def memory(monkeypatch):
    def allow(size):
        monkeypatch.setattr("clip_geometry.memory.memory", lambda: size)

    return allow


def test_a_table_of_text_takes_four_times_its_size(tmp_path, memory):
    """The text, its columns, and the matrix of them."""
    path = csv(tmp_path)
    memory(4 * path.stat().st_size - 1)
    with pytest.raises(InputError, match=REFUSED):
        read_any(path)
    memory(4 * path.stat().st_size)
    assert len(read_any(path)["image"]) == 60


def test_rows_and_columns_of_arrays(tmp_path, memory):
    """Rows that are streamed: only a block of them has to fit."""
    import h5py

    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["image"], file["note"] = np.ones((2 * FileRows.SPAN, 4), "f4"), np.ones((2 * FileRows.SPAN, 3), int)
    memory(16 * FileRows.SPAN - 1)
    with pytest.raises(InputError, match=f"array 'image', .*{REFUSED}"):
        read_any(tmp_path / "x.h5")
    memory(2 * 8 * 3 * FileRows.SPAN - 1)
    with pytest.raises(InputError, match=f"array 'note', .*{REFUSED}"):
        read_any(tmp_path / "x.h5")
    memory(2 * 8 * 3 * FileRows.SPAN)
    assert len(read_any(tmp_path / "x.h5")["image"]) == 2 * FileRows.SPAN


def test_a_chunk_may_be_larger_than_its_array(tmp_path, memory):
    import zarr

    group = zarr.create_group(tmp_path / "x.zarr")
    group.create_array("image", shape=(5, 4), chunks=(10**5, 4), dtype="f4")[:] = cloud(5)
    memory(10**6)
    with pytest.raises(InputError, match=f"a chunk of .* {REFUSED}"):
        read_any(tmp_path / "x.zarr")


def test_columns_beside_mapped_vectors(tmp_path, memory):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(cloud(5).reshape(-1)), 4)
    table = pa.table({"image": vectors, "text": ["x" * 1000] * 5})
    feather.write_feather(table, tmp_path / "x.feather", compression="uncompressed")
    memory(5000)
    with pytest.raises(InputError, match=f"columns text, .*{REFUSED}"):
        read_any(tmp_path / "x.feather")


def test_a_compressed_table(tmp_path, memory):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(cloud(500).reshape(-1)), 4)
    feather.write_feather(pa.table({"image": vectors}), tmp_path / "x.feather", compression="lz4")
    memory(7999)  # of 500 × 4 numbers
    with pytest.raises(InputError, match=REFUSED):
        read_any(tmp_path / "x.feather")


def test_an_index_and_a_copy_of_its_rows(tmp_path, memory):
    """Of IVF; the rows of flat indexes are memory-mapped."""
    path = faiss(tmp_path, "IVF4,Flat")
    memory(2 * path.stat().st_size - 1)
    with pytest.raises(InputError, match=REFUSED):
        read_any(path)


def test_vectors_of_a_table_of_lance(tmp_path, memory):
    path = lance(tmp_path)
    memory(60 * 8 * 4 - 1)
    with pytest.raises(InputError, match=f"column image, .*{REFUSED}"):
        read_any(path)


def test_shards(tmp_path, memory):
    path = webdataset(tmp_path)
    memory(sum(shard.stat().st_size for shard in path.iterdir()) - 1)
    with pytest.raises(InputError, match=REFUSED):
        read_any(path)


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
