import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import csv
from safetensors.torch import save_file

from clip_geometry.io.sources import read_any, read_embeddings, read_sets
from clip_geometry.registry import InputError
from support.format_cases import DTYPES, FORMATS, assert_same_bits, cloud, vector_column, write


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_of_one_array_is_read_bit_for_bit(tmp_path, suffix, dtype):
    vectors = cloud(dtype=dtype)
    vectors[1, 2], vectors[3, 0] = np.nan, np.inf
    path = write(tmp_path / f"x{suffix}", vectors)
    for modality in ("image", "text"):
        embeddings = read_embeddings(path, modality=modality)
        assert_same_bits(embeddings.vectors, vectors)
        assert embeddings.modality == modality
        assert embeddings.provenance == {"source": str(path), "dtype": np.dtype(dtype).name}
    assert [side.modality for side in read_any(path).values()] == ["x"]
    assert [side.modality for side in read_any(path, unnamed="image").values()] == ["image"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_no_rows_are_read(tmp_path, suffix):
    embeddings = read_embeddings(write(tmp_path / f"x{suffix}", cloud(0, 4)), modality="image")
    assert embeddings.vectors.shape == (0, 4)


def test_npy_is_memory_mapped(tmp_path):
    path = write(tmp_path / "x.npy", cloud())
    assert isinstance(read_embeddings(path, modality="image").vectors, np.memmap)


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_another_byte_or_row_order(tmp_path, order):
    vectors = cloud()
    np.save(tmp_path / "x.npy", np.asarray(vectors.astype(">f4"), order=order))
    assert_same_bits(read_embeddings(tmp_path / "x.npy", modality="image").vectors, vectors)


def test_bfloat16_becomes_float32_exactly_and_is_recorded(tmp_path):
    tensor = torch.from_numpy(cloud()).bfloat16()
    save_file({"image": tensor}, tmp_path / "x.safetensors")
    embeddings = read_any(tmp_path / "x.safetensors")["image"]
    assert embeddings.provenance["dtype"] == "bfloat16" and embeddings.vectors.dtype == np.float32
    assert torch.equal(torch.from_numpy(embeddings.vectors).bfloat16().view(torch.int16), tensor.view(torch.int16))


@pytest.mark.parametrize("names", [("image", "text"), ("img_emb", "text_emb"), ("image_features", "text_features")])
def test_an_array_is_the_modality_that_its_name_says(tmp_path, names):
    sides, labels = {names[0]: cloud(seed=1), names[1]: cloud(seed=2)}, np.array([3, 1, 4, 1, 5, 9, 2])
    np.savez(tmp_path / "x.npz", labels=labels, **sides)
    both = read_any(tmp_path / "x.npz")
    for modality, name in zip(("image", "text"), names, strict=True):
        assert_same_bits(both[modality].vectors, sides[name])
        assert_same_bits(read_embeddings(tmp_path / "x.npz", modality=modality).vectors, sides[name])
        assert list(both[modality].labels) == list(labels)


def test_a_side_that_the_file_names_otherwise_is_not_taken_for_the_one_asked_for(tmp_path):
    np.savez(tmp_path / "x.npz", text=cloud())
    with pytest.raises(InputError, match="holds text embeddings; image embeddings were expected"):
        read_embeddings(tmp_path / "x.npz", modality="image")


@pytest.mark.parametrize("name", ["text.npy", "TXT.npy", "text_emb.parquet", "text_features.npz"])
def test_a_file_that_names_no_side_goes_by_its_own_name(tmp_path, name):
    path = write(tmp_path / name, cloud())
    if name.endswith(".npz"):
        np.savez(path, rows=cloud())
    assert [*read_any(path)] == ["text"]
    with pytest.raises(InputError, match="holds text embeddings; image embeddings were expected"):
        read_embeddings(path, modality="image")


@pytest.mark.parametrize("kind", ["list", "large", "fixed"])
def test_parquet_columns_belong_to_the_rows(tmp_path, kind):
    vectors = cloud(3)
    columns = {"label": [5, 6, 5], "item_id": [10, 11, 12], "note": ["p", "q", "r"], "v": vector_column(vectors, kind)}
    columns |= {"tags": [[1, 2], [3], []], "part": pa.array(["x", "y", "x"]).dictionary_encode()}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", row_group_size=2)
    embeddings = read_embeddings(tmp_path / "x.parquet", modality="image")
    assert_same_bits(embeddings.vectors, vectors)
    assert list(embeddings.item_id) == ["10", "11", "12"]
    assert list(embeddings.labels) == [5, 6, 5]
    assert {name: list(column) for name, column in embeddings.metadata.items()} == {
        "note": ["p", "q", "r"],
        "tags": [[1, 2], [3], []],
        "part": ["x", "y", "x"],
    }


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_vectors_as_text_are_those_of_a_database_dump(tmp_path, capsys, suffix):
    vectors = cloud(4).astype(np.float32)
    texts = [str(row.tolist()).replace(" ", "") for row in vectors]
    path, columns = tmp_path / f"x{suffix}", {"key": [1, 2, 3, 4], "modality": ["image", "text"] * 2, "v": texts}
    table = pa.table(columns | {"item_id": ["a", "a", "b", "b"]})
    csv.write_csv(table, path) if suffix == ".csv" else pq.write_table(table, path)
    sides = read_any(path)
    assert {name: (side.item_id.tolist(), [*side.metadata]) for name, side in sides.items()} == {
        "image": (["a", "b"], ["key"]),
        "text": (["a", "b"], ["key"]),
    }
    assert_same_bits(sides["text"].vectors.astype(np.float32), vectors[1::2])
    assert "none" not in capsys.readouterr().err


def test_a_table_that_does_not_say_what_pairs_or_which_modality_rows_are_of_is_remarked_on(tmp_path, capsys):
    columns = {"id": ["1", "2", "3", "4"], "kind": ["image", "text"] * 2, "v": vector_column(cloud(4))}
    columns["note"] = ["some", "texts", None, "or none"]
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    assert [*read_sets(tmp_path / "x.parquet")] == ["x"]
    assert capsys.readouterr().err.endswith("under another name, rename that one: id, kind\n")
    columns["modality"] = columns.pop("kind")
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    assert [*read_sets(tmp_path / "x.parquet")] == ["image", "text"]
    assert "'item_id' with the same value in rows that pair" in (said := capsys.readouterr().err)
    assert said.endswith("other columns are id, note\n") and "rename" not in said
    columns["item_id"] = ["a", "a", "b", "b"]
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    assert [*read_sets(tmp_path / "x.parquet")] == ["image", "text"]
    assert not capsys.readouterr().err


def test_a_folder_with_one_file_for_each_side(tmp_path):
    write(tmp_path / "image.npy", cloud(seed=1))
    write(tmp_path / "text.safetensors", cloud(seed=2))
    sides = read_any(tmp_path)
    assert_same_bits(sides["image"].vectors, cloud(seed=1))
    assert_same_bits(sides["text"].vectors, cloud(seed=2))
    write(tmp_path / "image.npz", cloud())
    with pytest.raises(InputError, match=r"has image rows in image\.npy and image\.npz: give one of these"):
        read_any(tmp_path)


def test_a_parameter_is_a_tensor(tmp_path):
    torch.save(torch.ones(3, 2, requires_grad=True), tmp_path / "c.pt")
    assert read_any(tmp_path / "c.pt")["c"].vectors.shape == (3, 2)


def test_an_archive_may_hold_ids_and_metadata(tmp_path):
    np.savez(tmp_path / "x.npz", image=cloud(3), item_id=np.array(["a", "b", "c"]), note=np.array([b"p", b"q", b"r"]))
    found = read_any(tmp_path / "x.npz")["image"]
    assert found.item_id.tolist() == ["a", "b", "c"] and found.metadata["note"].tolist() == ["p", "q", "r"]


def test_a_large_pt_file_is_memory_mapped(tmp_path, monkeypatch):
    path = write(tmp_path / "x.pt", cloud(1000, 50))
    monkeypatch.setattr("clip_geometry.memory.memory", lambda: path.stat().st_size // 2)  # more than there is
    mapped = read_any(path)["x"].vectors
    assert_same_bits(mapped, cloud(1000, 50))
    torch.save(torch.from_numpy(cloud(1000, 50)), path, _use_new_zipfile_serialization=False)
    with pytest.raises(InputError, match="in memory and there are"):
        read_any(path)
