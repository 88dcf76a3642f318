"""What goes wrong on the way: no memory, corrupt images, damaged files, interrupts."""

import errno
import os
from dataclasses import replace

import numpy as np
import pytest

from clip_geometry.embedding.store import read_store
from clip_geometry.embeddings import pair
from clip_geometry.registry import InputError
from support.embed_fakes import FakeConfig, fake_dataset, run, vectors_of


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("vectors-00001.npy", "flip"),
        ("vectors-00001.npy", "delete"),
        ("metadata-00001.parquet", "truncate"),
        ("metadata-00001.parquet", "delete"),
        ("record-00001.json", "flip"),
        ("record-00001.json", "delete"),
    ],
)
def test_a_damaged_shard_is_found_and_computed_alone(loader, tmp_path, name, damage):
    loader()
    manifest = run(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*")}
    path = tmp_path / "image" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "delete":
        path.unlink()
    else:
        path.write_bytes(data if damage == "flip" else data[:-7])
    if not name.startswith("record"):  # the manifest repeats the record, readers do not need it
        with pytest.raises(InputError, match=f"{name} is .*run the same embed command again"):
            read_store(tmp_path)
    repair = loader()
    assert run(tmp_path)["sides"] == manifest["sides"]  # its shards in order, too: rows are read in it
    assert repair.batches == [("image", 4)] * 4
    assert {path: path.read_bytes() for path in tmp_path.glob("*/*")} == before


def test_a_damaged_manifest_is_made_again_from_the_records(loader, tmp_path):
    loader()
    manifest = run(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text().replace('"n": 40', '"n": 41'))
    with pytest.raises(InputError, match=r"manifest\.json is damaged: run the same embed command again"):
        read_store(tmp_path)
    repair = loader()
    again = run(tmp_path)
    assert repair.batches == []
    of_a_run = {"date": "", "run": {}}
    assert {**again, **of_a_run} == {**manifest, **of_a_run}


@pytest.mark.parametrize(
    ("bad", "message", "sound"),
    [
        ({"image": (1, 0, np.nan)}, "for the image 'img-0'", 0),
        ({"image": (6, 2, np.inf)}, "for the image 'img-22'", 1),
        ({"text": (1, 3, -np.inf)}, "for the text 'img-3'", 3),
    ],
)
def test_rows_that_are_no_numbers_are_refused_before_their_shard_is_written(loader, tmp_path, bad, message, sound):
    fake = loader(bad=bad)
    with pytest.raises(InputError, match=f"'fake:linear' returns NaN or infinity {message}: its weights are damaged"):
        run(tmp_path)
    assert len(list(tmp_path.glob("*/vectors-*.npy"))) == sound
    assert fake.batches[-1][1] == 4 and not (tmp_path / "manifest.json").exists()
    loader()
    run(tmp_path)
    run(tmp_path / "whole")
    for modality, rows in vectors_of(tmp_path).items():
        assert np.array_equal(rows, vectors_of(tmp_path / "whole")[modality])


def test_the_batch_size_halves_when_memory_runs_out_and_each_shard_begins_anew(loader, tmp_path, capsys):
    fake = loader(fits=3)
    manifest = run(tmp_path, batch_size=8)
    assert [size for modality, size in fake.batches if modality == "image"] == [2] * 20
    assert [shard["batch_sizes"] for shard in manifest["sides"]["image"]["shards"]] == [[[2, 8]], [[2, 8]], [[2, 4]]]
    assert capsys.readouterr().err.count("memory ran out with 8 items per batch: trying 4") == 6
    loader()
    run(tmp_path / "roomy", batch_size=2, shard_size=16)
    assert np.array_equal(vectors_of(tmp_path)["image"], vectors_of(tmp_path / "roomy")["image"])


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory"), RuntimeError("not enough memory")],
)
def test_memory_of_the_cpu_runs_out_too(loader, tmp_path, error):
    failures = [error]

    def fail_once():
        if failures:
            raise failures.pop()

    fake = loader(on_batch=fail_once)
    run(tmp_path, fake_dataset(8, text=False))
    assert [size for _, size in fake.batches] == [4, 2, 2, 2, 2]  # the failed one, then halves of it


def test_no_memory_for_a_single_item_is_an_error(loader, tmp_path):
    loader(fits=0)
    with pytest.raises(InputError, match="memory ran out with a single item: fake:linear needs a larger device"):
        run(tmp_path)


def test_few_corrupt_images_are_skipped_and_listed(loader, tmp_path):
    loader()
    manifest = run(tmp_path, fake_dataset(200, corrupt={7, 150}))
    skipped = manifest["sides"]["image"]["skipped"]
    assert [(item["index"], item["item_id"]) for item in skipped] == [(7, "img-7"), (150, "img-150")]
    assert skipped[0]["reason"] == "OSError: image file is truncated"
    sides = read_store(tmp_path)
    assert (len(sides["image"]), len(sides["text"])) == (198, 200)
    image, text = pair(sides["image"], sides["text"])
    assert np.array_equal(sides["image"].item_id[image], sides["text"].item_id[text])
    assert len(image) == 198 and sides["image"].provenance["skipped"] == 2


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES, errno.EMFILE])
def test_an_image_that_cannot_be_read_now_is_no_corrupt_image(loader, tmp_path, error):
    """It would be missing from the store for good."""
    loader()
    dataset = fake_dataset(200)
    load, failures = dataset.image.load, [OSError(error, os.strerror(error))]

    def once(k):
        if k == 7 and failures:
            raise failures.pop()
        return load(k)

    dataset = replace(dataset, image=replace(dataset.image, load=once))
    with pytest.raises(OSError, match=os.strerror(error)):
        run(tmp_path, dataset)
    assert run(tmp_path, dataset)["sides"]["image"]["skipped"] == []


def test_many_corrupt_images_are_an_error_unless_allowed(loader, tmp_path):
    loader()
    corrupt = {5, 99, 198}
    with pytest.raises(InputError, match=r"3 of 200 image items.*.img-5. \(OSError: .*raise max_corrupt"):
        run(tmp_path, fake_dataset(200, corrupt=corrupt))
    again = loader()
    manifest = run(tmp_path, fake_dataset(200, corrupt=corrupt), max_corrupt=0.02)
    assert len(manifest["sides"]["image"]["skipped"]) == 3
    assert {modality for modality, _ in again.batches} == {"text"}  # the images were all done
    with pytest.raises(InputError, match="3 of 200 image items"):
        run(tmp_path, fake_dataset(200, corrupt=corrupt))


def test_too_many_corrupt_images_stop_the_work_where_they_are_found(loader, tmp_path):
    """Not after all of it: the third is in the third of thirteen shards, and the fourth is begun meanwhile."""
    for _ in range(2):  # of the second run what the first has found counts, too
        fake = loader()
        with pytest.raises(InputError, match="3 of 200 image items"):
            run(tmp_path, fake_dataset(200, corrupt={5, 20, 40}))
        assert 0 < len(fake.batches) <= 4 * 4


def test_a_shard_of_corrupt_images_only_is_empty(loader, tmp_path):
    loader()
    run(tmp_path, fake_dataset(40, corrupt=range(16)), max_corrupt=0.5)
    assert list(read_store(tmp_path)["image"].item_id[:2]) == ["img-16", "img-17"]
    assert len(read_store(tmp_path, limit=18)["image"]) == 2 and len(read_store(tmp_path, limit=3)["image"]) == 0


def test_all_images_corrupt_is_an_error_whatever_is_allowed(loader, tmp_path):
    loader()
    with pytest.raises(InputError, match="8 of 8 image items of fake cannot be read, so none is left"):
        run(tmp_path, fake_dataset(8, corrupt=range(8)), max_corrupt=1.0)


def test_rows_that_depend_on_their_batch_do_not_survive_a_smaller_one(loader, tmp_path):
    loader(fits=3)
    with pytest.raises(InputError, match=r"memory ran out with 4 items per batch.*give a smaller batch size"):
        run(tmp_path, config=FakeConfig(batch_statistics=True))


def test_an_interrupt_keeps_finished_shards_and_leaves_no_temporaries(loader, tmp_path):
    batches = []

    def interrupt():
        batches.append(1)
        if len(batches) == 6:
            raise KeyboardInterrupt

    loader(on_batch=interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))
    rest = loader()
    run(tmp_path)
    assert rest.batches[:6] == [("image", 4)] * 6  # ten batches, less the four of the first shard
