"""Files and folders that hold any number of modalities."""

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from clip_geometry.data import load_dataset, resolve_dataset
from clip_geometry.embedding.loop import embed
from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders import resolve_encoder
from clip_geometry.io.export import export
from clip_geometry.io.sources import read_any, read_sets
from clip_geometry.progress import quiet
from clip_geometry.registry import InputError
from support.format_cases import cloud

NAMES = ("image", "text", "audio", "text_de")


@pytest.fixture
def sets():
    ids = [f"item {k}" for k in range(7)]
    return {name: Embeddings(cloud(seed=k), name, item_id=ids) for k, name in enumerate(NAMES)}


def assert_same(found, sets):
    assert [*found] == [*sets]
    for name, each in found.items():
        assert each.modality == name
        assert each.vectors.dtype == np.float32
        assert np.array_equal(each.vectors, sets[name].vectors)


def test_a_folder_has_a_file_for_each_modality(tmp_path, sets, capsys):
    for name, each in sets.items():
        np.save(tmp_path / f"{name}.npy", each.vectors)
    np.save(tmp_path / "labels.npy", np.arange(7))
    np.save(tmp_path / "pixels.npy", np.zeros((7, 2, 2, 3), np.uint8))
    np.save(tmp_path / "center.npy", np.zeros((1, 5), np.float32))
    np.save(tmp_path / "names.npy", np.array(["a", None]), allow_pickle=True)
    (tmp_path / "classes.json").write_text("[]")
    (tmp_path / "gone.npy").symlink_to("nowhere")
    (tmp_path / "folder.npy").mkdir()
    pq.write_table(pa.table({"caption": ["a"]}), tmp_path / "captions.parquet")
    found = read_any(tmp_path)
    assert_same({name: found[name] for name in NAMES}, sets)
    assert [*found] == ["image", "text", "audio", "text_de"]
    assert "left out" in capsys.readouterr().err  # the pickle


def test_a_folder_that_holds_no_rows_is_refused(tmp_path):
    np.save(tmp_path / "labels.npy", np.arange(7))
    with pytest.raises(InputError, match="is a directory, but neither a store nor"):
        read_any(tmp_path)


def test_a_file_in_a_folder_is_called_by_a_name_that_pipelines_can_carry(tmp_path):
    np.save(tmp_path / "image.npy", cloud())
    np.save(tmp_path / "a+b.npy", cloud())
    with pytest.raises(InputError, match=r"a\+b\.npy 'a\+b' is no name of a modality"):
        read_any(tmp_path)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pt", ".parquet"])
def test_one_file_with_an_array_for_each_modality(tmp_path, sets, suffix):
    arrays, path = {f"{name}_emb": each.vectors for name, each in sets.items()}, tmp_path / f"x{suffix}"
    tensors = {name: torch.from_numpy(x) for name, x in arrays.items()}
    tensors |= {"logit_scale": torch.tensor(4.6), "labels": torch.arange(7)}
    if suffix == ".npz":
        np.savez(path, ids=np.arange(7), labels=np.arange(7), **arrays)
    elif suffix == ".parquet":
        pq.write_table(pa.table({name: list(x) for name, x in arrays.items()} | {"labels": range(7)}), path)
    else:
        save_file(tensors, path) if suffix == ".safetensors" else torch.save(tensors, path)
    found = read_any(path)
    assert_same({name: found[name] for name in NAMES}, sets)
    assert all(side.labels.tolist() == [*range(7)] for side in found.values())


def long_table(sets):
    return {
        "embedding": [row for each in sets.values() for row in each.vectors],
        "modality": [name for name in sets for _ in range(7)],
        "item_id": [key for each in sets.values() for key in each.item_id],
        "label": [k % 2 for _ in sets for k in range(7)],
        "note": [f"{name} {k}" for name in sets for k in range(7)],
    }


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow"])
def test_a_table_with_a_column_of_modalities(tmp_path, sets, suffix):
    columns, path = long_table(sets), tmp_path / f"x{suffix}"
    table = pa.table({**columns, "modality": pa.array(columns["modality"]).dictionary_encode()})
    if suffix == ".parquet":
        pq.write_table(table, path)
    elif suffix == ".feather":
        feather.write_feather(table, path)
    else:  # as the datasets package writes
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    found = read_any(path)
    assert_same(found, sets)
    assert found["audio"].item_id.tolist() == [f"item {k}" for k in range(7)]
    assert found["audio"].labels.tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert found["text_de"].metadata["note"].tolist() == [f"text_de {k}" for k in range(7)]


def test_a_folder_of_stores_has_the_sides_of_all(tmp_path):
    """The only side of a store, and its texts, are called as the store; others keep their names."""
    model = resolve_encoder("scenes-clip/fresh")
    data = load_dataset(resolve_dataset("scenes", size=3))
    for name, part in {"en": data, "text_again": data.only("text")}.items():
        embed(model, part, tmp_path / name, device="cpu", progress=quiet)
    np.save(tmp_path / "audio.npy", cloud())
    assert list(found := read_any(tmp_path)) == ["image", "audio", "en", "text_again"]
    assert found["en"].modality == "en"
    assert np.array_equal(found["en"].vectors, found["text_again"].vectors)
    assert found["en"].item_id.tolist() == found["image"].item_id.tolist()
    np.save(tmp_path / "en.npy", cloud())
    with pytest.raises(InputError, match=r"has en rows in en and en\.npy: give one of these"):
        read_any(tmp_path)
    embed(model, data.only("image"), tmp_path / "image", device="cpu", progress=quiet)
    (tmp_path / "en.npy").unlink()
    with pytest.raises(InputError, match="has image rows in en and image: give one of these"):
        read_any(tmp_path)


@pytest.mark.parametrize("to", ["parquet", "clip-retrieval"])
def test_exports_carry_any_modality(tmp_path, sets, to):
    export(sets, tmp_path / "out", to=to)
    found = read_any(tmp_path / "out")
    assert_same({name: found[name] for name in NAMES}, sets)
    assert found["audio"].item_id.tolist() == sets["audio"].item_id.tolist()


def test_rows_of_all_sides_are_aligned_in_clip_retrieval(tmp_path, sets):
    """Five items in another order, one of them with two texts."""
    order = np.array([4, 2, 2, 0, 6, 5])
    sets = {**sets, "text": sets["text"].take(order), "audio": sets["audio"].take(np.arange(7)[::-1])}
    export(sets, tmp_path / "out", to="clip-retrieval")
    found = read_any(tmp_path / "out")
    rows = {tuple(np.concatenate([found[name].vectors[k] for name in NAMES])) for k in range(6)}
    ids = {name: {key: k for k, key in enumerate(each.item_id)} for name, each in sets.items()}
    expected = [
        [sets["text"].vectors[k] if name == "text" else sets[name].vectors[ids[name][key]] for name in NAMES]
        for k, key in enumerate(sets["text"].item_id)
    ]
    assert rows == {tuple(np.concatenate(parts)) for parts in expected}
    assert len(found["image"]) == 6


def test_two_files_are_images_and_texts_unless_they_say_otherwise(tmp_path, capsys):
    a, b = cloud(seed=1), cloud(seed=2)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    for kind in ("image", "text"):
        save_file({kind: torch.from_numpy(b)}, tmp_path / f"{kind}.safetensors")
    plain, other = tmp_path / "a.npy", tmp_path / "b.npy"
    image, text = tmp_path / "image.safetensors", tmp_path / "text.safetensors"
    assert {name: side.vectors.tolist() for name, side in read_sets(plain, other).items()} == {
        "image": a.tolist(),
        "text": b.tolist(),
    }
    assert [*read_sets(plain, text)] == ["image", "text"]
    assert "whatever their order" not in capsys.readouterr().err
    assert {side.modality for side in read_sets(text, image).values()} == {"image", "text"}
    assert "whatever their order" in capsys.readouterr().err
    assert {name: side.modality for name, side in read_sets(text, text).items()} == {"image": "image", "text": "text"}
    assert "both sets hold text rows" in capsys.readouterr().err
    with pytest.raises(InputError, match="holds text rows and was given as image: give IMAGE, then TEXT"):
        read_sets(text, plain)
    three = read_sets(plain, other, image)
    assert [*three] == ["a", "b", "image"]
    with pytest.raises(InputError, match="holds image rows, and so does a set before it"):
        read_sets(image, image, plain)
