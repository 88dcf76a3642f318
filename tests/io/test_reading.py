"""Whatever a file holds, its reader gives plain values or one sentence."""

import errno
import io
import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import save

from clip_geometry.files import npy_bytes
from clip_geometry.io import reading
from clip_geometry.io.sources import read
from clip_geometry.registry import InputError

ROWS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
TIB = 2**40


def header(shape, descr="<f4"):
    """The beginning of a .npy file that declares this shape."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def zipped(**contents):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def encrypted(content):
    """The archive whose entries say that they are encrypted, which zipfile raises RuntimeError for."""
    return content.replace(b"PK\x03\x04\x14\x00\x00", b"PK\x03\x04\x14\x00\x01").replace(
        b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"
    )


def table(**columns):
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def safetensors_header(**entries):
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


class Runs:
    def __reduce__(self):
        return os.system, ("touch canary",)


def torch_bytes(value, old=False):
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=not old)
    return buffer.getvalue()


GOOD = {
    "npy": (npy_bytes(ROWS), reading.read_npy),
    "npz": (zipped(a=npy_bytes(ROWS)), reading.read_npz),
    "parquet": (table(a=ROWS[:, 0]), reading.read_table),
    "safetensors": (save({"a": ROWS}), reading.read_safetensors),
    "pt": (torch_bytes({"a": torch.tensor(ROWS)}), reading.read_checkpoint),
}


def test_a_disk_that_fails_is_not_called_damage(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "x").write_bytes(GOOD["npy"][0])
    monkeypatch.setattr(np, "load", fail)
    with pytest.raises(InputError, match=r"x cannot be read: Input/output error$"):
        GOOD["npy"][1](tmp_path / "x")


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("npy", header((7 * TIB // 4,)), "its header declares 7696581394432 bytes, but it has 0"),
        ("npy", header((-1, 3)) + bytes(12), "its header declares -12 bytes"),
        ("npy", header((2**31, 2**31, 2**31)), "its header declares"),
        ("npz", zipped(a=header((7 * TIB,))), "its header declares"),
        ("npz", encrypted(zipped(a=npy_bytes(ROWS))), r"is not a readable \.npz file.*encrypted"),
        ("npz", zipped(a=b"no array"), "it does not begin with"),
        (
            "safetensors",
            safetensors_header(a={"dtype": "F32", "shape": [TIB], "data_offsets": [0, 4 * TIB]}),
            "readable",
        ),
        ("safetensors", b"\xff" * 16, "readable"),
        ("pt", torch_bytes({"a": torch.ones(3)}, old=True)[:40], "it is damaged"),
        ("pt", pickle.dumps(Runs()), "holds other pickled objects, which are refused"),
    ],
    ids=lambda value: "bytes" if isinstance(value, bytes) else value,  # zip files hold the time, and workers must agree
)
def test_what_a_file_declares_is_checked_and_nothing_is_run(tmp_path, monkeypatch, kind, content, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError, match=message):
        GOOD[kind][1](tmp_path / "x")
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("kind", ["npz", "parquet", "safetensors", "pt"])
def test_what_does_not_fit_into_the_memory_is_not_begun(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("clip_geometry.memory.memory", lambda: 10)
    (tmp_path / "x").write_bytes(GOOD[kind][0])
    with pytest.raises(InputError, match=r"GB of memory, but only 1e-08 GB"):
        GOOD[kind][1](tmp_path / "x")


@pytest.mark.parametrize("second", ["a.npy", "a"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_of_an_archive_twice(tmp_path, second):
    """`a.npy` and `a` are both the array a; the second would replace the first."""
    with zipfile.ZipFile(tmp_path / "x", "w") as archive:
        archive.writestr("a.npy", npy_bytes(ROWS))
        archive.writestr(second, npy_bytes(ROWS + 1))
    with pytest.raises(InputError, match="has the array 'a' twice"):
        reading.read_npz(tmp_path / "x")


def test_an_array_that_is_not_mapped_has_to_fit(tmp_path, monkeypatch):
    monkeypatch.setattr("clip_geometry.memory.memory", lambda: ROWS.nbytes - 1)
    (tmp_path / "x").write_bytes(GOOD["npy"][0])
    assert reading.read_npy(tmp_path / "x").shape == ROWS.shape
    with pytest.raises(InputError, match="of memory, but only"):
        reading.read_npy(tmp_path / "x", mmap=False)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_table_whose_text_is_not_unicode_is_refused_when_it_is_read(tmp_path, kind):
    """pyarrow reads it, and raises UnicodeDecodeError later, where the text is used."""
    buffers = [None, pa.py_buffer(np.arange(3, dtype=np.int32).tobytes()), pa.py_buffer(b"a\xff")]
    broken = pa.table({"a": pa.Array.from_buffers(pa.string(), 2, buffers), "v": [[1.0], [2.0]]})
    path = tmp_path / f"x.{kind}"
    if kind == "parquet":
        pq.write_table(broken, path)
    else:
        with pa.ipc.new_file(path, broken.schema) as file:
            file.write_table(broken)
    with pytest.raises(InputError, match="Invalid UTF8 sequence"):
        read(path)


def test_an_archive_of_zeros_is_measured_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("clip_geometry.memory.memory", lambda: 2**24)
    (tmp_path / "x").write_bytes(zipped(a=header((2**25,), "|u1") + bytes(2**25)))
    assert (tmp_path / "x").stat().st_size < 2**17
    with pytest.raises(InputError, match=r"0\.0336 GB of memory"):
        reading.read_npz(tmp_path / "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not readable JSON"),
        ("[" * 100_000, "is not readable JSON .*recursion limit"),
        ("[" * 300 + "]" * 300, "is not readable JSON .*recursion limit"),
        ("9" * 5000, "is not readable JSON .*number out of range"),
        ("[NaN]", "is not readable JSON"),
        ("-Infinity", "is not readable JSON .*invalid number"),
        ('"\\ud800"', "is not readable JSON"),
        ("\x1b[31m", "is not readable JSON"),
        ('{"n": "7"}', "^n of .* is '7': input should be a valid integer"),
        ('{"n": 1.5}', "^n of .* is 1.5: input should be a valid integer"),
        ('{"m": 7}', " lacks n;"),
        ("[7]", "input should be a valid object"),
    ],
)
def test_json(tmp_path, text, message):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match=message) as error:
        reading.read_json(tmp_path / "x.json", "a number", Settings)
    assert "a number was expected" in str(error.value) and str(error.value).isprintable()


class Settings(reading.Schema):
    n: int


def test_json_of_the_schema(tmp_path):
    (tmp_path / "x.json").write_text('\ufeff{"n": 7, "more": null}')
    assert reading.read_json(tmp_path / "x.json", "a number", Settings).n == 7


PATHS = {
    "a folder": (lambda folder: folder, "is a directory"),
    "nothing": (lambda folder: folder / "none", "does not exist"),
    "below a file": (lambda folder: folder / "file" / "x", "does not exist"),
    "a pipe": (lambda folder: os.mkfifo(folder / "pipe") or folder / "pipe", "is a device or a pipe"),
    "a device": (lambda folder: "/dev/zero", "is a device or a pipe"),
    "a loop of links": (lambda folder: (folder / "l").symlink_to(folder / "l") or folder / "l", "symbolic links"),
    "a long name": (lambda folder: folder / ("x" * 5000), "File name too long"),
    "a NUL": (lambda folder: f"{folder}/a\0b", "NUL"),
    "a newline": (lambda folder: folder / "a\nb", r"a\\nb does not exist"),
    "an escape code": (lambda folder: folder / "a\x1b[2Jb", r"a\\x1b\[2Jb does not exist"),
    "no user": (lambda folder: "~nobody-of-this-name/x", "begins with a user that does not exist"),
    "nothing in it": (lambda folder: ((folder / "empty").write_bytes(b"") and None) or folder / "empty", "is empty"),
}


@pytest.mark.parametrize("case", PATHS)
def test_paths_that_are_no_file(tmp_path, case):
    make, message = PATHS[case]
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=message) as error:
        reading.existing_file(make(tmp_path), "a table")
    assert str(error.value).isprintable() and len(str(error.value)) <= 400


def test_a_column_twice(tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "x")
    with pytest.raises(InputError, match="has two columns with the same name"):
        reading.read_table(tmp_path / "x")


def test_a_number_that_no_float_holds_is_no_readable_json():
    assert reading.parse_json('{"value": 1' + "0" * 299 + "}", "x")["value"] == 10**299
    with pytest.raises(InputError, match="a number of 401 digits"):
        reading.parse_json('{"value": 1' + "0" * 400 + "}", "x")
    assert reading.parse_json('{"id": "' + "1" * 400 + '"}', "x")["id"] == "1" * 400


def few_bytes(group=None, /, **columns):
    """A Parquet file that stores equal values once. group: number of rows of a row group."""
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="zstd", row_group_size=group)
    return buffer.getvalue()


SMALL_FILES = {  # each of 2 MB or more when it is decoded
    "numbers": lambda: few_bytes(a=np.zeros(300_000)),
    "vectors": lambda: few_bytes(a=pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(300_000, np.float16)), 100)),
    "texts": lambda: few_bytes(a=pa.array(["x" * 1000] * 3000)),
    "texts in lists": lambda: few_bytes(a=pa.array([["x" * 1000] * 3] * 1000)),
    "texts in objects": lambda: few_bytes(a=pa.array([{"b": "x" * 1000}] * 3000)),
    "texts in objects of several groups": lambda: few_bytes(500, a=pa.array([{"b": "x" * 1000}] * 3000)),
    "texts in lists of several groups": lambda: few_bytes(500, a=pa.array([["x" * 1000] * 3] * 1000)),
}


@pytest.mark.parametrize("case", SMALL_FILES)
def test_a_small_table_that_decodes_to_much_is_refused_before_it_is(tmp_path, monkeypatch, case):
    content = SMALL_FILES[case]()
    (tmp_path / "x").write_bytes(content)
    decoded = pq.read_table(io.BytesIO(content))
    assert len(content) < 50_000 and decoded.nbytes > 500_000
    monkeypatch.setattr(reading.memory, "memory", lambda: 500_000)
    before = pa.total_allocated_bytes()
    with pytest.raises(InputError, match=r"x, decoded, takes .* of memory, but only 0.0005 GB"):
        reading.read_table(tmp_path / "x")
    assert pa.total_allocated_bytes() - before < 500_000
    monkeypatch.undo()
    assert reading.read_table(tmp_path / "x").equals(decoded)


def test_numbers_are_counted_before_any_is_decoded(tmp_path, monkeypatch):
    """A batch of 65,536 long vectors would fill the memory."""
    (tmp_path / "x").write_bytes(SMALL_FILES["vectors"]())
    monkeypatch.setattr(reading.memory, "memory", lambda: 500_000)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("it was decoded"))
    with pytest.raises(InputError, match="x, decoded, takes"):
        reading.read_table(tmp_path / "x")


def test_one_column_of_a_table_is_checked_alone(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(few_bytes(a=np.zeros(300_000), b=np.zeros(300_000, np.int8).astype(bool)))
    monkeypatch.setattr(reading.memory, "memory", lambda: 500_000)
    assert reading.read_table(tmp_path / "x", columns=["b"]).column_names == ["b"]
    with pytest.raises(InputError, match="decoded"):
        reading.read_table(tmp_path / "x", columns=["a"])


def test_texts_that_an_arrow_file_holds_once_are_counted_where_they_are_used(tmp_path, monkeypatch):
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3000, np.int8)), ["x" * 1000])
    table = pa.table({"a": texts, "v": [[1.0]] * 3000})
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    monkeypatch.setattr(reading.memory, "memory", lambda: 500_000)
    with pytest.raises(InputError, match=r"columns a, takes 0\.003 GB"):
        read(tmp_path / "x.arrow")


def test_pictures_in_objects_that_do_not_repeat(tmp_path):
    """Their dictionary is full after a megabyte, and a column of two kinds of pages cannot be read with it."""
    rng = np.random.default_rng(0)
    pictures = pa.table({"img": [{"bytes": rng.bytes(3000), "path": None} for _ in range(2000)], "label": range(2000)})
    pq.write_table(pictures, tmp_path / "x", row_group_size=700)
    assert reading.read_table(tmp_path / "x").equals(pictures)
    assert reading.read_table(tmp_path / "x", columns=["img"]).equals(pictures.select(["img"]))


class PanicException(BaseException):
    """As Rust libraries raise it: no Exception."""


def test_a_panic_is_damage_and_an_interrupt_is_not():
    with pytest.raises(InputError, match=r"x is not a readable \.x file: it is damaged or cut short \(boom\)"):  # noqa: SIM117
        with reading.reading_with("x", ".x"):
            raise PanicException("boom")
    with pytest.raises(KeyboardInterrupt), reading.reading_with("x", ".x"):
        raise KeyboardInterrupt
