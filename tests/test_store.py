import numpy as np
import pytest

from clip_geometry.config import Config
from clip_geometry.data.base import DatasetConfig
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.formats import export_clip_retrieval, export_parquet, read_any, read_embeddings
from clip_geometry.registry import InputError
from clip_geometry.store import Shard, Store, indices_within, recipe_of, summary
from clip_geometry.store_reading import read_store

MODEL, DATA = EncoderConfig(model="m"), DatasetConfig(name="d")
RECIPE = recipe_of(MODEL, "w1", DATA, "r1")


def rows(shard, d=3):
    return np.random.default_rng(shard.start).normal(size=(shard.stop - shard.start, d)).astype(np.float32)


def columns(shard, modality="image"):
    indices = range(shard.start, shard.stop)
    text = {"text": [f"caption {k}" for k in indices]} if modality == "text" else {}
    return {"item_id": [f"id-{k}" for k in indices], "index": list(indices), **text}


FACTS = {"batch_sizes": [[4, 1]], "skipped": [], "truncated": 0, "device": "cpu"}


def write_store(folder, items=10, shard_size=4, modalities=("image", "text")):
    """A finished store of random rows; returns it."""
    store = Store(folder)
    with store.locked():
        store.begin(RECIPE, shard_size)
        sides = {}
        for modality in modalities:
            records = [
                store.write_shard(modality, shard, rows(shard), columns(shard, modality), FACTS)
                for shard in store.missing(modality, items, shard_size)
            ]
            sides[modality] = {"language": None, "pair_on": "item_id", **summary(records)}
        options = {"model_options": {"seed": 3}, "data_options": {}}
        store.finish({"recipe": RECIPE, **options, "encoder": {}, "sides": sides, "class_names": None})
    return store


# the key


def test_the_key_depends_on_everything_that_a_row_depends_on():
    keys = {
        recipe["key"]
        for recipe in (
            RECIPE,
            recipe_of(MODEL, "w2", DATA, "r1"),
            recipe_of(MODEL, "w1", DATA, "r2"),
            recipe_of(MODEL, "w1", DATA, "r1", batch_size=64),
            recipe_of(MODEL, "w1", DATA, "r1", batch_size=32),
            recipe_of(EncoderConfig(model="n"), "w1", DATA, "r1"),
            recipe_of(EncoderConfig(model="m", features="pooled"), "w1", DATA, "r1"),
            recipe_of(EncoderConfig(model="m", precision="bf16"), "w1", DATA, "r1"),
            recipe_of(MODEL, "w1", DatasetConfig(name="d", split="train"), "r1"),
            recipe_of(MODEL, "w1", DatasetConfig(name="d", language="ru"), "r1"),
            recipe_of(MODEL, "w1", DatasetConfig(name="d", prompt="{}"), "r1"),
        )
    }
    assert len(keys) == 11
    assert recipe_of(EncoderConfig(model="m"), "w1", DatasetConfig(name="d"), "r1")["key"] == RECIPE["key"]


def test_a_new_field_of_a_config_enters_the_key_by_itself():
    class Options(Config):
        pass

    class LayerOptions(Options):
        layer: int

    class NewModel(EncoderConfig):
        options: Options = Options()

    def key(layer):
        return recipe_of(NewModel(model="m", options=LayerOptions(layer=layer)), "w1", DATA, "r1")["key"]

    assert len({RECIPE["key"], recipe_of(NewModel(model="m"), "w1", DATA, "r1")["key"], key(1), key(2)}) == 4


# limits


@pytest.mark.parametrize(
    ("items", "limit", "expected"),
    [
        ("abcd", None, 4),
        ("abcd", 2, 2),
        ("abcd", 9, 4),
        ("aabbbc", 1, 2),
        ("aabbbc", 2, 5),
        ("aabbbc", 3, 6),
        ("abab", 1, 1),
        ("ababc", 2, 4),
    ],
)
def test_a_limit_counts_items_not_rows(items, limit, expected):
    assert indices_within(list(items), limit) == expected
    assert indices_within(np.array(list(items), dtype=object), limit) == expected
    assert indices_within(list(items), limit, pair_on="label") == len(items)


@pytest.mark.parametrize("limit", [0, -3])
def test_a_limit_is_positive(tmp_path, limit):
    with pytest.raises(InputError, match=f"limit is {limit}; a positive number of items was expected"):
        indices_within(["a"], limit)
    write_store(tmp_path)
    with pytest.raises(InputError, match=f"limit is {limit}"):
        read_store(tmp_path, limit=limit)


# writing


def test_missing_shards_are_those_absent_or_shorter_than_wanted(tmp_path):
    store = write_store(tmp_path, items=10, shard_size=4)
    assert store.missing("image", 10, 4) == []
    assert store.missing("image", 11, 4) == [Shard(2, 8, 11)]
    assert store.missing("image", 17, 4) == [Shard(2, 8, 12), Shard(3, 12, 16), Shard(4, 16, 17)]
    assert (store.covered("image"), store.covered("video")) == (10, 0)


def test_the_lock_clears_what_killed_writers_left(tmp_path):
    store = write_store(tmp_path)
    stale = [tmp_path / ".recipe.json.12.tmp", tmp_path / "image" / ".vectors-00000.npy.34.tmp"]
    for path in stale:
        path.touch()
    with store.locked():
        assert not any(path.exists() for path in stale)


def test_a_killed_beginning_counts_as_an_empty_folder(tmp_path):
    (tmp_path / ".recipe.json.12.tmp").touch()
    (tmp_path / ".lock").touch()
    assert Store(tmp_path).recipe() is None


def test_a_damaged_recipe_is_reported(tmp_path):
    store = write_store(tmp_path)
    path = tmp_path / "recipe.json"
    path.write_text(path.read_text().replace('"w1"', '"w2"'))
    with pytest.raises(InputError, match=r"recipe\.json is damaged: delete the folder and embed again"):
        store.recipe()


def test_what_differs_between_recipes_is_named(tmp_path):
    store = write_store(tmp_path)
    store.require(RECIPE)
    other = recipe_of(EncoderConfig(model="n"), "w1", DatasetConfig(name="d", language="ru"), "r1")
    with pytest.raises(InputError) as caught:
        store.require(other)
    assert str(caught.value) == (
        f"{tmp_path} holds other embeddings: dataset.language is 'en' there and 'ru' now; "
        "encoder.model is 'm' there and 'n' now; choose another folder"
    )


# reading


def test_one_shard_is_memory_mapped_and_several_are_joined(tmp_path):
    write_store(tmp_path / "one", items=10, shard_size=16)
    write_store(tmp_path / "three", items=10, shard_size=4)
    one, three = read_store(tmp_path / "one")["image"], read_store(tmp_path / "three")["image"]
    assert isinstance(one.vectors, np.memmap) and not isinstance(three.vectors, np.memmap)
    parts = [Shard(0, 0, 4), Shard(1, 4, 8), Shard(2, 8, 10)]
    assert np.array_equal(three.vectors, np.concatenate([rows(shard) for shard in parts]))
    assert isinstance(read_store(tmp_path / "three", limit=3)["image"].vectors, np.memmap)
    assert list(three.item_id) == [f"id-{k}" for k in range(10)]
    assert set(read_store(tmp_path / "one", modality="text")) == {"text"}


def test_a_view_reads_only_the_vectors_it_needs(tmp_path):
    write_store(tmp_path)
    (tmp_path / "image" / "vectors-00002.npy").unlink()
    assert len(read_store(tmp_path, modality="image", limit=8)["image"]) == 8
    with pytest.raises(InputError, match=r"vectors-00002\.npy is missing: run the same embed command again"):
        read_store(tmp_path, modality="image", limit=9)


def test_folders_that_are_no_store(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="does not exist; a store was expected"):
        read_store(tmp_path / "nothing")
    with pytest.raises(InputError, match="is a file; a store was expected"):
        read_store(tmp_path / "file")
    with pytest.raises(InputError, match=r"is no store of embeddings, it has no manifest\.json"):
        read_store(tmp_path)


def test_a_store_is_read_and_exported_like_every_other_format(tmp_path):
    write_store(tmp_path / "store")
    sides = read_store(tmp_path / "store")
    assert read_any(tmp_path / "store").keys() == sides.keys()
    assert np.array_equal(read_embeddings(tmp_path / "store", modality="text").vectors, sides["text"].vectors)
    export_clip_retrieval(tmp_path / "store", tmp_path / "clip")
    export_parquet(tmp_path / "store", tmp_path / "parquet")
    for folder in ("clip", "parquet"):
        again = read_any(tmp_path / folder)
        for modality, side in sides.items():
            assert np.array_equal(again[modality].vectors, side.vectors)
            assert list(again[modality].item_id) == list(side.item_id)
        assert list(again["text"].metadata["text"]) == list(sides["text"].metadata["text"])
    provenance = read_any(tmp_path / "parquet")["text"].provenance
    assert (provenance["key"], provenance["model_options"]) == (RECIPE["key"], {"seed": 3})
