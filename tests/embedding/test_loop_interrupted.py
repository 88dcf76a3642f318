"""Embedding that is killed, at every instant, ends as if it had not been."""

import json
import os
import signal
import time

import pytest

from clip_geometry.embedding.store import read_store
from support import embed_fakes
from support.forks import Server

OPTIONS = {"batch_size": 4, "shard_size": 16}  # 40 items: shards of 16, 16 and 8, on both sides
RENAMES = 1 + 2 * 3 * 3 + 1  # the recipe, three files for each of three shards of two sides, the manifest


@pytest.fixture(scope="module")
def server():
    server = Server(embed_fakes.__file__, options=OPTIONS)
    yield server
    server.close()


@pytest.fixture(scope="module")
def whole(server, tmp_path_factory):
    """The files of a store whose embedding was not interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "store"
    assert server.run(folder=str(folder)) == 0
    return contents(folder)


def contents(folder):
    """All files but the lock, the manifest without what is of a run and not of the rows: its date, where its time went
    (and the checksum, which covers both)."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found.pop(".lock")
    if "manifest.json" in found:
        manifest = json.loads(found["manifest.json"])
        found["manifest.json"] = {k: v for k, v in manifest.items() if k not in ("date", "run", "checksum")}
    return found


def sound_shards(folder):
    return {(path.parent.name, path.name) for path in folder.glob("*/record-*.json")}


def resume(server, folder, tmp_path):
    report = tmp_path / "batches.json"
    assert server.run(folder=str(folder), report=str(report)) == 0
    return json.loads(report.read_text())


def test_an_uninterrupted_store_has_the_files_that_are_promised(whole):
    assert len(whole) == RENAMES
    assert sorted(whole)[:3] == [f"image/metadata-0000{k}.parquet" for k in range(3)]


# of the recipe; of the first shard of images and of texts, of the last ones; of the manifest
INSTANTS = (1, *range(2, 5), *range(8, 11), *range(11, 14), *range(17, 20), RENAMES)


@pytest.mark.parametrize(
    ("number", "when"), [(number, "before") for number in INSTANTS] + [(number, "after") for number in (1, 4, 20)]
)
def test_killed_at_any_rename(server, whole, tmp_path, number, when):
    folder = tmp_path / "store"
    assert server.run(folder=str(folder), kill_at_rename=[number, when]) == -signal.SIGKILL
    assert bool(list(folder.rglob(".*.tmp"))) == (when == "before")
    finished = sound_shards(folder)
    batches = resume(server, folder, tmp_path)
    assert contents(folder) == whole
    batches_of = {"record-00000.json": 4, "record-00001.json": 4, "record-00002.json": 2}
    assert len(batches) == 2 * (4 + 4 + 2) - sum(batches_of[name] for _, name in finished)


@pytest.mark.parametrize("number", [1, 6, 20])
def test_killed_in_a_batch(server, whole, tmp_path, number):
    folder = tmp_path / "store"
    assert server.run(folder=str(folder), kill_at_batch=number) == -signal.SIGKILL
    resume(server, folder, tmp_path)
    assert contents(folder) == whole


@pytest.mark.parametrize("delay", [0.01, 0.1, 0.3])
def test_killed_from_outside(server, whole, tmp_path, delay):
    folder = tmp_path / "store"
    [child] = server.start({"folder": str(folder), "delay": 0.03})
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    assert server.wait() == [-signal.SIGKILL]
    resume(server, folder, tmp_path)
    assert contents(folder) == whole


def test_killed_again_and_again(server, whole, tmp_path):
    folder, statuses = tmp_path / "store", []
    while not statuses or statuses[-1] != 0:
        statuses.append(server.run(folder=str(folder), kill_at_rename=[4, "before"]))
        assert len(sound_shards(folder)) == min(len(statuses) - 1, 6)  # the first run renames the recipe, too
    assert statuses == [-signal.SIGKILL] * 7 + [0]
    assert contents(folder) == whole


def test_a_store_that_grows_is_killed_and_ends_like_one_made_at_once(server, whole, tmp_path):
    folder = tmp_path / "store"
    assert server.run(folder=str(folder), options={**OPTIONS, "limit": 20}) == 0
    assert len(read_store(folder)["image"]) == 20
    assert server.run(folder=str(folder), kill_at_rename=[2, "after"]) == -signal.SIGKILL
    assert not (folder / "manifest.json").exists()
    batches = resume(server, folder, tmp_path)
    assert len(batches) == 2 * (4 + 2)  # the shards of 16 that were whole are kept
    assert contents(folder) == whole


def test_two_processes_on_one_store(server, whole, tmp_path):
    folder = tmp_path / "store"
    reports = [tmp_path / "a.json", tmp_path / "b.json"]
    server.start(*({"folder": str(folder), "delay": 0.01, "report": str(report)} for report in reports))
    assert server.wait() == [0, 0]
    assert contents(folder) == whole
    batches = sorted(len(json.loads(report.read_text())) for report in reports)
    assert batches == [0, 20]  # the second waits, and finds the work done


def test_the_lock_of_a_killed_process_is_free(server, whole, tmp_path):
    """The first is killed while the second waits for it: the second takes over."""
    folder = tmp_path / "store"
    report = tmp_path / "batches.json"
    server.start(
        {"folder": str(folder), "delay": 0.03, "kill_at_batch": 7}, {"folder": str(folder), "report": str(report)}
    )
    statuses = server.wait()
    assert sorted(statuses) in ([-signal.SIGKILL, 0], [0, 0])  # the second may have been first
    assert contents(folder) == whole
