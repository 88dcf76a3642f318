import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clip_geometry import files
from clip_geometry.data.base import Dataset, DatasetConfig
from clip_geometry.embedding.loop import recipe_for
from clip_geometry.embedding.store import Shard, Store, indices_within, read_store, summary
from clip_geometry.encoders.base import BatchNormOption, EncoderConfig
from clip_geometry.files import write_json
from clip_geometry.registry import InputError

MODEL, DATA = EncoderConfig(model="m"), DatasetConfig(name="d")


def recipe_of(encoder, encoder_revision, dataset, dataset_revision, batch_size=8):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clip_geometry.encoders.encoder_revision", lambda config: encoder_revision)
        return recipe_for(encoder, Dataset(dataset, dataset_revision), batch_size)


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
            recipe_of(BatchNormOption(model="m", batch_norm="batch"), "w1", DATA, "r1", batch_size=64),
            recipe_of(BatchNormOption(model="m", batch_norm="batch"), "w1", DATA, "r1", batch_size=32),
            recipe_of(EncoderConfig(model="n"), "w1", DATA, "r1"),
            recipe_of(EncoderConfig(model="m", features="pooled"), "w1", DATA, "r1"),
            recipe_of(EncoderConfig(model="m", precision="bf16"), "w1", DATA, "r1"),
            recipe_of(MODEL, "w1", DatasetConfig(name="d", split="train"), "r1"),
            recipe_of(MODEL, "w1", DatasetConfig(name="d", language="ru"), "r1"),
            recipe_of(MODEL, "w1", DatasetConfig(name="d", prompt="{}"), "r1"),
        )
    }
    assert len(keys) == 11
    assert (
        recipe_of(EncoderConfig(model="m"), "w1", DatasetConfig(name="d"), "r1", batch_size=64)["key"] == RECIPE["key"]
    )


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
    with pytest.raises(InputError, match=f"limit = {limit}"):
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


def rewritten(folder, change, modality="image"):
    """The store with other records, in a manifest that is sound by its checksum."""
    manifest = files.read_json(folder / "manifest.json")
    change(manifest["sides"][modality])
    files.write_json(folder / "manifest.json", manifest)


def shards_of(change):
    def on_side(side):
        side["shards"] = change(side["shards"])

    return on_side


def renumbered(shards):
    """Reversed, each with the place of the other."""
    first, second, *rest = shards
    return [second | {"start": 0, "stop": 4}, first | {"start": 4, "stop": 8}, *rest]


@pytest.mark.parametrize(
    "change",
    [
        shards_of(lambda shards: shards[::-1]),
        shards_of(lambda shards: [shards[0], shards[0], *shards[2:]]),
        shards_of(lambda shards: shards[1:]),
        shards_of(renumbered),
        shards_of(lambda shards: shards[:2]),
        lambda side: side.update(n=11),
        lambda side: side.update(d=4),
        lambda side: side["shards"][0].update(files={"vectors-../../x": "", "metadata-0": ""}),
        lambda side: side["shards"][2].update(stop=2**50) or side.update(items=2**50),
        lambda side: side["shards"][1]["skipped"].append({"index": 9, "item_id": "", "reason": ""}),
        lambda side: side["shards"][0].update(rows=3) or side.update(n=9),
    ],
)
def test_shards_that_are_not_in_order_or_not_those_of_the_side_are_refused(tmp_path, change):
    write_store(tmp_path)
    rewritten(tmp_path, change)
    expected = (
        r"contradicts the records of the store, the image shards do not hold its items|run the same embed command"
    )
    with pytest.raises(InputError, match=expected):
        read_store(tmp_path)
    assert len(read_store(tmp_path, modality="text")["text"]) == 10


def replaced(folder, kind, write):
    """The second shard's file as `write` writes it, with its checksum in the manifest."""
    path = folder / "image" / f"{kind}-00001.{'npy' if kind == 'vectors' else 'parquet'}"
    path.unlink()
    write(path)
    rewritten(folder, lambda side: side["shards"][1]["files"].update({path.name: files.sha256_of(path)}))


@pytest.mark.parametrize(
    "array", [np.ones((4, 2), "f4"), np.ones((3, 3), "f4"), np.ones((4, 3)), np.ones((4, 3), "i4"), np.ones(12, "f4")]
)
def test_vectors_of_another_shape_or_type_than_recorded_are_refused(tmp_path, array):
    write_store(tmp_path)
    replaced(tmp_path, "vectors", lambda path: np.save(path, array))
    expected = rf"vectors-00001\.npy contradicts .*, it holds {array.dtype} values of shape \({array.shape[0]},"
    with pytest.raises(InputError, match=expected):
        read_store(tmp_path)


@pytest.mark.parametrize(
    "columns",
    [
        {"index": [5, 4, 6, 7]},
        {"index": [4, 4, 6, 7]},
        {"index": [0, 1, 2, 3]},
        {"index": [4, 5, 6, None]},
        {"item_id": ["a", "b", None, "d"]},
        {"item_id": [1, 2, 3, 4]},
        {"index": [4, 5, 6], "item_id": ["a", "b", "c"]},
        {"further": [4, 5, 6, 7]},
    ],
)
def test_metadata_that_is_not_that_of_the_shard_is_refused(tmp_path, columns):
    write_store(tmp_path)
    table = pa.table({"item_id": [f"id-{k}" for k in range(4, 8)], "index": [4, 5, 6, 7]} | columns)
    replaced(tmp_path, "metadata", lambda path: pq.write_table(table, path))
    with pytest.raises(
        InputError, match=r"contradicts the records of the store|is not a readable manifest|item_id of image"
    ):
        read_store(tmp_path)


def test_a_store_that_is_written_meanwhile_is_unfinished(tmp_path):
    store = write_store(tmp_path)
    with store.locked():
        assert len(read_store(tmp_path)["image"]) == 10  # until it changes
        store.unfinish()
    with pytest.raises(InputError, match="the embedding was not finished"):
        read_store(tmp_path)


def test_folders_that_are_no_store(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="does not exist; a store was expected"):
        read_store(tmp_path / "nothing")
    with pytest.raises(InputError, match="is a file; a store was expected"):
        read_store(tmp_path / "file")
    with pytest.raises(InputError, match=r"is not a store of embeddings: it has no manifest\.json"):
        read_store(tmp_path)


def changed(values, path, new):
    """A copy of nested values with the one at the path replaced, or removed for None."""
    if not path:
        return new
    copy = dict(values) if isinstance(values, dict) else list(values)
    if len(path) == 1 and new is REMOVED:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(values[path[0]], path[1:], new)
    return copy


REMOVED = object()


@pytest.mark.parametrize(
    ("path", "new"),
    [
        (("sides",), REMOVED),
        (("sides",), {}),
        (("sides",), {"sound": {}}),
        (("sides", "image", "shards"), REMOVED),
        (("sides", "image", "shards", 0, "files"), ["vectors-00000.npy"]),
        (("sides", "image", "shards", 0, "rows"), -4),
        (("sides", "image", "shards", 0, "start"), "0"),
        (("sides", "image", "items"), 1e300),
        (("sides", "image", "items"), 2**60),
        (("sides", "image", "skipped"), [3]),
        (("sides", "image", "pair_on"), "nothing"),
        (("recipe", "encoder"), REMOVED),
        (("recipe", "dataset"), "d"),
        (("class_names",), "cat"),
    ],
)
def test_a_manifest_that_somebody_else_wrote_is_damaged(tmp_path, path, new):
    """Its checksum holds; it ended in KeyError, TypeError, StopIteration or an array of 2**60 items."""
    manifest = write_store(tmp_path).manifest()
    write_json(tmp_path / "manifest.json", changed(manifest, path, new))
    with pytest.raises(InputError, match=r"manifest\.json is damaged"):
        read_store(tmp_path)


def test_records_and_recipes_that_somebody_else_wrote_count_as_absent(tmp_path):
    store = write_store(tmp_path)
    write_json(tmp_path / "image" / "record-00001.json", {"start": 4})
    assert [shard.start for shard in store.missing("image", 10, 4)] == [4]
    write_json(tmp_path / "recipe.json", {"key": 7})
    with pytest.raises(InputError, match=r"recipe\.json is damaged"):
        store.recipe()
