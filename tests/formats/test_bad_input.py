"""Bad input: one clear sentence each."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from clip_geometry.formats import read_any, read_embeddings, read_labels
from clip_geometry.registry import InputError
from support.format_cases import FORMATS, cloud, write


def test_missing_file_and_directory(tmp_path):
    with pytest.raises(InputError, match=r"x\.npy does not exist"):
        read_embeddings(tmp_path / "x.npy", modality="image")
    with pytest.raises(InputError, match="is a directory, but neither a store nor a clip-retrieval folder"):
        read_embeddings(tmp_path, modality="image")
    with pytest.raises(InputError, match="is a directory; a file of labels was expected"):
        read_labels(tmp_path)


@pytest.mark.parametrize("suffix", FORMATS)
def test_empty_file(tmp_path, suffix):
    (tmp_path / f"x{suffix}").touch()
    with pytest.raises(InputError, match=r"is empty \(0 bytes\)"):
        read_embeddings(tmp_path / f"x{suffix}", modality="image")


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("content", [b"1.0 2.0\n3.0 4.0\n" * 9, b"\0" * 50, b"x"])
def test_file_of_something_else(tmp_path, suffix, content):
    (tmp_path / f"x{suffix}").write_bytes(content)
    with pytest.raises(
        InputError, match=rf"x\{suffix} (is no (readable )?\{suffix} file|cannot be read as a checkpoint)"
    ) as caught:
        read_embeddings(tmp_path / f"x{suffix}", modality="image")
    assert "unsafe" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("kept", [0.02, 0.3, 0.6, 0.99])
def test_truncated_file(tmp_path, suffix, kept):
    path = write(tmp_path / f"x{suffix}", cloud(50, 20))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    what = "cannot be read as a checkpoint of tensors: it is damaged" if suffix == ".pt" else "damaged or cut short"
    with pytest.raises(InputError, match=what):
        read_embeddings(path, modality="image")


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_damaged_content(tmp_path, suffix):
    path = write(tmp_path / f"x{suffix}", cloud(500, 20))
    data = bytearray(path.read_bytes())
    if suffix == ".npz":
        data[len(data) // 2] ^= 1  # its checksum tells
    else:
        data[4:60] = b"\xff" * 56  # the header of the first page
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged or cut short"):
        read_embeddings(path, modality="image")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_pickled_objects_are_not_loaded(tmp_path, suffix):
    objects = np.array([{"a": 1}, None], dtype=object)
    (np.save if suffix == ".npy" else np.savez)(tmp_path / f"x{suffix}", objects)
    with pytest.raises(InputError, match="holds pickled Python objects, which are not loaded"):
        read_embeddings(tmp_path / f"x{suffix}", modality="image")


def test_unknown_extension(tmp_path):
    for name, hint in {
        "x.parqet": "did you mean '.parquet'",
        "x.doc": "known are .npy, .npz",
        "x": "known are",
    }.items():
        (tmp_path / name).write_text("x")
        with pytest.raises(InputError, match=f"unknown extension.*{hint}"):
            read_embeddings(tmp_path / name, modality="image")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
@pytest.mark.parametrize("shape", [(12,), (2, 3, 2), ()])
def test_arrays_that_are_no_matrix(tmp_path, suffix, shape):
    path = write(tmp_path / f"x{suffix}", np.ones(shape, np.float32))
    with pytest.raises(InputError, match=f"{len(shape)} dimensions, shape .*; embeddings are rows and columns"):
        read_embeddings(path, modality="image")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
@pytest.mark.parametrize("dtype", ["complex64", "int64", "uint8", "bool"])
def test_dtypes_that_are_no_embeddings(tmp_path, suffix, dtype):
    path = write(tmp_path / f"x{suffix}", np.ones((3, 2), dtype))
    with pytest.raises(InputError, match=f"holds {dtype} values; embeddings are float16, float32 or float64"):
        read_embeddings(path, modality="image")


@pytest.mark.parametrize("array", [np.array([["a", "b"]]), np.ones((2, 2), np.longdouble), np.zeros((2, 2), "f4,f4")])
def test_further_dtypes_of_numpy(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(InputError, match="values; embeddings are float16, float32 or float64"):
        read_embeddings(tmp_path / "x.npy", modality="text")


def test_float8_in_safetensors(tmp_path):
    save_file({"image": torch.ones(2, 2).to(torch.float8_e4m3fn)}, tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="holds float8_e4m3fn values; embeddings are bfloat16"):
        read_any(tmp_path / "x.safetensors")


def test_rows_without_columns(tmp_path):
    with pytest.raises(InputError, match="rows without columns"):
        read_embeddings(write(tmp_path / "x.npy", cloud(3, 0)), modality="image")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [1, 2], "b": ["x", "y"]}, "has no vector column: none of a, b is a list of floating point"),
        ({"v": [[1, 2], [3, 4]]}, "has no vector column"),
        ({"v": [[1.0, 2.0], [3.0, 4.0], [5.0]]}, "'v', is ragged: row 0 has 2 values and row 2 has 1"),
        ({"v": [[1.0, 2.0], None]}, "has no vector in 1 of 2 rows"),
        ({"v": [[1.0, 2.0], [None, 4.0]]}, "has 1 missing values inside its vectors"),
        ({"v": [[], []], "k": [1, 2]}, "has no vector column|rows without columns"),
        ({"v": [[1.0]], "0": [[2.0]]}, "vector column '0' is no name of a modality"),
    ],
)
def test_parquet_without_proper_vectors(tmp_path, columns, message):
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=message):
        read_any(tmp_path / "x.parquet")


@pytest.mark.parametrize("ids", [["a", None, None], [1, None, 2], ["a", "", "b"], [0.5, float("nan"), 1.0]])
def test_missing_ids_are_refused(tmp_path, ids):
    """They were the string "None" and paired with each other."""
    table = pa.table({"item_id": ids, "embedding": cloud(3).tolist()})
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(InputError, match="missing ids would pair with each other"):
        read_any(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    "facts",
    ["{", "[]", '{"modality": "pooled"}', '{"pair_on": 3}', '{"provenance": "mine"}', "[" * 10_000, "\ud800"],
)
def test_facts_of_a_table_that_somebody_else_wrote(tmp_path, facts):
    table = pa.table({"embedding": cloud(3).tolist()})
    metadata = {b"clip_geometry": facts.encode(errors="surrogatepass")}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"the metadata of .*x\.parquet"):
        read_any(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("l.json", "[" + "9" * 5000 + "]", "digits"),
        ("l.json", "[" * 100_000, "is nested too deeply"),
        ("l.json", f"[{2**70}, 1]", "integers beyond 64 bits"),
        ("l.json", "[1, NaN]", "NaN is no JSON number"),
        ("l.csv", "label\n" + "x" * 200_000 + "\n", "field larger than field limit"),
        ("l.txt", "a\0b\nc", None),
    ],
)
def test_labels_of_every_kind_of_damage(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    if message is None:
        assert read_labels(tmp_path / name).tolist() == ["a\0b", "c"]
        return
    with pytest.raises(InputError, match=message):
        read_labels(tmp_path / name)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "header", ["_" * 60_000 + "x,b", ",".join(f"image_{k}" for k in range(16_000))], ids=["underscores", "columns"]
)
def test_a_header_of_any_length_is_read_in_linear_time(tmp_path, header):
    """A regular expression took minutes for the first, and looking columns up by name for the second."""
    line = ",".join("0.5" for _ in header.split(","))
    (tmp_path / "x.csv").write_text(f"{header}\n{line}\n{line}\n")
    (side,) = read_any(tmp_path / "x.csv").values()
    assert side.vectors.shape == (2, len(header.split(",")))


@pytest.mark.parametrize("name", ["../image", "image/../x", "<b>", "0", "a-to-b"])
@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pt"])
def test_names_of_arrays_that_name_no_modality(tmp_path, suffix, name):
    """Modalities become names of files and keys of results."""
    arrays = {name: cloud(), "text": cloud(seed=1)}
    path = tmp_path / f"x{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    elif suffix == ".pt":
        torch.save({key: torch.from_numpy(x) for key, x in arrays.items()}, path)
    else:
        save_file({key: torch.from_numpy(x) for key, x in arrays.items()}, path)
    with pytest.raises(InputError, match=rf"x\{suffix}: array .* is no name of a modality"):
        read_any(path)


def test_an_archive_without_arrays_is_one_sentence(tmp_path):
    np.savez(tmp_path / "x.npz")
    with pytest.raises(InputError, match="holds no array of rows"):
        read_any(tmp_path / "x.npz")


def test_a_header_with_a_truth_value_for_a_length_is_one_sentence(tmp_path):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (True, 3), }".ljust(117) + b"\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(12))
    with pytest.raises(InputError, match=r"declares the shape \(True, 3\)"):
        read_any(tmp_path / "x.npy")


@pytest.mark.parametrize("key", ["maps", "model_options", "data_options", "encoder"])
@pytest.mark.parametrize("value", [3, "x", [1], [[1]]])
def test_an_origin_of_the_wrong_type_is_one_sentence(tmp_path, key, value):
    """Each of these ended in a traceback when the rows were measured."""
    np.save(tmp_path / "image.npy", cloud())
    (tmp_path / "image.npy.json").write_text(json.dumps({"clip_geometry": {key: value}}))
    facts = {"modality": "image", "provenance": {key: value}}
    table = pa.table({"embedding": cloud().tolist()}).replace_schema_metadata({"clip_geometry": json.dumps(facts)})
    pq.write_table(table, tmp_path / "image.parquet")
    for name in ("image.npy", "image.parquet"):
        with pytest.raises(InputError, match=rf"{key}.* should be a valid"):
            read_any(tmp_path / name)
