"""Each reader compares what it would allocate with the memory before it reads: one test for each check."""

import json
import tarfile
from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest

import clip_geometry as cg
from clip_geometry.embeddings import LazyRows
from clip_geometry.files import npy_bytes
from clip_geometry.formats import read_any
from clip_geometry.formats.arrays import Stored
from clip_geometry.registry import InputError
from support.format_cases import cloud
from support.format_clients import csv, faiss, lance

REFUSED = "in memory and there are"


@pytest.fixture
def memory(monkeypatch):
    def allow(size):
        monkeypatch.setattr("clip_geometry.memory.memory", lambda: size)

    return allow


def unopened():
    raise AssertionError("read before its size was checked")


def test_a_table_of_text_takes_four_times_its_size(tmp_path, memory):
    """The text, its columns, and the matrix of them."""
    path = csv(tmp_path)
    memory(4 * path.stat().st_size - 1)
    with pytest.raises(InputError, match=REFUSED):
        read_any(path)
    memory(4 * path.stat().st_size)
    assert len(read_any(path)["image"]) == 60


def test_rows_of_an_array_are_checked_before_the_file_is_opened(memory):
    rows = Stored((5, 4), np.dtype("<f4"), unopened)
    memory(79)
    with pytest.raises(InputError, match=REFUSED):
        rows.rows("x")


def test_of_many_rows_the_array_of_a_block_has_to_fit(memory):
    """Two blocks of rows are streamed if one fits."""
    rows = Stored((2 * LazyRows.SPAN, 4), np.dtype("<f4"), unopened)
    memory(16 * LazyRows.SPAN - 1)
    with pytest.raises(InputError, match=REFUSED):
        rows.rows("x")
    memory(16 * LazyRows.SPAN)
    with pytest.raises(AssertionError, match="read before"):
        rows.rows("x")


@pytest.mark.parametrize("shape", [(5,), (5, 3)])
def test_a_column_of_an_array_is_checked_before_the_file_is_opened(memory, shape):
    column = Stored(shape, np.dtype("<i8"), unopened)
    memory(8 * int(np.prod(shape)) - 1)
    with pytest.raises(InputError, match=REFUSED):
        column.column("x")


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
    memory((tmp_path / "x.feather").stat().st_size - 1)
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
    with pytest.raises(InputError, match=f"column 'image', .*{REFUSED}"):
        read_any(path)


def test_a_member_of_a_shard(tmp_path, memory):
    with tarfile.open(tmp_path / "x.tar", "w") as shard:
        for name, content in {
            "0.npy": npy_bytes(cloud(1)),
            "0.json": json.dumps({"note": "x" * 5000}).encode(),
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            shard.addfile(member, BytesIO(content))
    memory(5000)
    with pytest.raises(InputError, match=rf"'0\.json', .*{REFUSED}"):
        read_any(tmp_path / "x.tar")


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


def test_rows_for_a_map_are_checked_before_they_are_in_memory(tmp_path, memory):
    memory(7 * 4 * 8 - 1)
    with pytest.raises(InputError, match=f"the map of these rows .*{REFUSED}"):
        cg.export(cg.Embeddings(cloud(), "image"), tmp_path / "x.parquet", to="embedding-atlas", neighbors=3)


def test_rows_without_columns_are_refused_by_readers_in_blocks(tmp_path):
    import h5py

    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["image"] = np.zeros((5, 0), np.float32)
    empty = pa.table({"image": pa.array([[], []], pa.list_(pa.float32()))})
    feather.write_feather(empty, tmp_path / "x.feather", compression="uncompressed")
    for name in ("x.h5", "x.feather"):
        with pytest.raises(InputError, match="rows without columns"):
            read_any(tmp_path / name)
