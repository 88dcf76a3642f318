"""Whatever makes embedding fast gives the rows of the plain loop."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import support.embed_fakes as fakes
from clip_geometry.data import load_dataset
from clip_geometry.embedding.loop import embed
from clip_geometry.embedding.store import Store, read_store
from clip_geometry.embedding.supply import PARTS, Throughput, supply
from clip_geometry.encoders import load_encoder, resolve_encoder
from clip_geometry.progress import quiet
from clip_geometry.registry import InputError
from support.embed_fakes import fake_dataset, run
from support.engine_fakes import die_once

MODEL = "scenes-clip/fresh"


@pytest.fixture(scope="module")
def encoder():
    return load_encoder(MODEL, device="cpu")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Nineteen photographs of several sizes, and one file that is none."""
    folder = tmp_path_factory.mktemp("photos")
    for k in range(19):
        picture(20 + 7 * (k % 3), 30 + k, k).save(folder / f"{k:02}.png")
    (folder / "07b.png").write_bytes(b"no image")
    return load_dataset(folder)


def picture(height, width, seed):
    noise = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)


def plain_rows(encoder, side, batch_size, shard_size):
    """The obvious loop, which is open_clip's README's; batches do not cross a shard."""
    rows = []
    for begin in range(0, len(side), shard_size):
        shard = range(begin, min(begin + shard_size, len(side)))
        for start in range(0, len(shard), batch_size):
            images = []
            for k in shard[start : start + batch_size]:
                try:
                    images.append(encoder.transform(side.load(k)))
                except OSError:
                    continue
            with torch.no_grad():
                rows.append(encoder.model.encode_image(torch.stack(images)).numpy())
    return np.concatenate(rows)


def embedded(folder, dataset, **throughput):
    how = Throughput(**throughput)
    options = {"batch_size": 4, "shard_size": 8, "max_corrupt": 0.2, "progress": quiet, "device": "cpu"}
    return embed(resolve_encoder(MODEL), dataset, folder, throughput=how, **options)


def shards_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).glob("*/*")}


@pytest.mark.parametrize("workers", [None, 0, 3])
def test_rows_on_the_cpu_are_the_plain_loops_bit_for_bit(encoder, photos, tmp_path, workers):
    manifest = embedded(tmp_path, photos, workers=workers)
    side = read_store(tmp_path)["image"]
    assert np.array_equal(side.vectors, plain_rows(encoder, photos.image, 4, 8))
    assert [(item["index"], item["item_id"]) for item in manifest["sides"]["image"]["skipped"]] == [(8, "07b.png")]
    assert manifest["run"]["image"]["workers"] == (workers or 0)
    assert "sorted" not in manifest["sides"]["image"]["shards"][0]


def test_an_encoder_without_halves_is_served_by_processes_too(loader, tmp_path):
    for workers in (0, 2):
        loader()
        data = fake_dataset(40, corrupt={3, 30})
        run(tmp_path / str(workers), data, max_corrupt=0.1, throughput=Throughput(workers=workers))
    assert shards_of(tmp_path / "0") == shards_of(tmp_path / "2")


class Padding(fakes.FakeEncoder):
    """Its rows show which texts shared a batch: the longest is added to them."""

    pads_to_longest = True

    def tokenize(self, texts):
        tokens = super().tokenize(texts)
        return type(tokens)(tokens.inputs + max(map(len, texts)) / 100, tokens.truncated)


@pytest.mark.parametrize("options", [{}, {"sort_texts": False}])
def test_sorted_texts_come_back_in_order(monkeypatch, tmp_path, options):
    """Rows of the plain loop over each shard's texts, longest first, on a CPU too."""
    sort = options.get("sort_texts", True)
    monkeypatch.setattr(fakes, "FakeEncoder", Padding)
    fakes.installer(monkeypatch)()
    manifest = run(tmp_path, fake_dataset(40, image=False), throughput=Throughput(**options))
    encoder = Padding(fakes.FakeConfig())
    expected = np.zeros((40, fakes.DIM), np.float32)
    for shard in (range(16), range(16, 32), range(32, 40)):
        order = sorted(shard, key=lambda k: -len(fakes.caption(k))) if sort else shard
        for start in range(0, len(order), 4):
            texts = [fakes.caption(k) for k in order[start : start + 4]]
            rows = encoder.text_features(encoder.tokenize(texts))
            expected[list(order[start : start + 4])] = rows.numpy()
    side = read_store(tmp_path)["text"]
    assert np.array_equal(side.vectors, expected)
    assert list(side.metadata["text"]) == [fakes.caption(k) for k in range(40)]
    assert manifest["run"]["text"]["sorted"] is sort
    assert [shard.get("sorted") for shard in manifest["sides"]["text"]["shards"]] == [True if sort else None] * 3
    before = shards_of(tmp_path)
    (tmp_path / "text/record-00001.json").unlink()
    run(tmp_path, fake_dataset(40, image=False), throughput=Throughput(**options))
    assert shards_of(tmp_path) == before


def test_texts_are_not_sorted_where_that_gains_nothing_or_changes_rows(encoder):
    """open_clip pads to its context length."""
    for model, sort in [
        (encoder, False),
        (Padding(fakes.FakeConfig(batch_statistics=True)), False),
        (Padding(fakes.FakeConfig()), True),
    ]:
        with supply(model, fake_dataset().text, [], 4, Throughput()) as given:
            assert given.sort is sort


def test_without_processes_where_forking_is_unsafe(monkeypatch, loader, tmp_path):
    monkeypatch.setattr("clip_geometry.embedding.supply.FORKS", False)
    loader()
    manifest = run(tmp_path, throughput=Throughput(workers=2))
    assert manifest["run"]["image"]["workers"] == 0
    loader()
    run(tmp_path / "plain")
    assert np.array_equal(read_store(tmp_path)["image"].vectors, read_store(tmp_path / "plain")["image"].vectors)


def test_an_error_of_a_write_surfaces_and_the_shard_before_is_kept(loader, tmp_path, monkeypatch):
    write, calls = Store.write_shard, []

    def fail_second(self, modality, shard, *rest):
        calls.append(shard.number)
        if shard.number == 1:
            raise OSError(28, "No space left on device")
        return write(self, modality, shard, *rest)

    monkeypatch.setattr(Store, "write_shard", fail_second)
    loader()
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path)
    assert calls == [0, 1]
    monkeypatch.setattr(Store, "write_shard", write)
    again = loader()
    run(tmp_path)
    assert again.batches.count(("image", 4)) == 6


def test_a_shard_that_is_being_written_is_finished_whatever_happens_meanwhile(loader, tmp_path, monkeypatch):
    write, batches = Store.write_shard, []

    def slow(self, *given):
        time.sleep(0.3)
        return write(self, *given)

    def interrupt():
        batches.append(1)
        if len(batches) == 5:  # the first of the second shard
            raise KeyboardInterrupt

    monkeypatch.setattr(Store, "write_shard", slow)
    loader(on_batch=interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert [path.name for path in tmp_path.glob("image/record-*")] == ["record-00000.json"]


def test_the_parts_of_the_time_add_up(loader, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("clip_geometry.embedding.engines.INTERVAL", 0.0)
    loader(on_batch=lambda: time.sleep(0.01))
    facts = run(tmp_path)["run"]
    lines = capsys.readouterr().err
    for modality in ("image", "text"):
        side = facts[modality]
        spent = sum(side[part] for part in PARTS)
        assert side["items"] == 40 and 0.1 <= side["compute"] <= spent <= side["seconds"]
        assert f"{modality}: 40 items in {side['seconds']:.1f} s" in lines
    loader()
    assert run(tmp_path)["run"] == facts  # nothing was done


def test_after_a_worker_was_killed_the_same_command_continues(loader, tmp_path):
    data, main = fake_dataset(text=False), os.getpid()

    def load(k):
        if k == 25 and os.getpid() != main:
            die_once(tmp_path / "killed")
        return data.image.load(k)

    given = replace(data, image=replace(data.image, load=load))
    loader(on_batch=lambda: time.sleep(0.05))
    with pytest.raises(InputError, match=r"^a worker process that decodes images was killed"):
        run(tmp_path / "store", given, throughput=Throughput(workers=2))
    assert not (tmp_path / "store/manifest.json").exists() and not multiprocessing.active_children()
    run(tmp_path / "store", given, throughput=Throughput(workers=2))
    run(tmp_path / "whole", data)
    assert shards_of(tmp_path / "store") == shards_of(tmp_path / "whole")


KILLED = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in a job of the background
sys.path.insert(0, {tests!r})
import support.embed_fakes as fakes
from clip_geometry.embedding.supply import Throughput
import clip_geometry.encoders

def on_batch():
    print("batch", flush=True)
    time.sleep(0.05)

loader = fakes.Loader(on_batch=on_batch)
clip_geometry.encoders.load_encoder = loader.load_encoder
clip_geometry.encoders.encoder_revision = loader.encoder_revision
fakes.run({folder!r}, throughput=Throughput(workers=2))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the children in /proc")
@pytest.mark.parametrize(("how", "group"), [(signal.SIGKILL, False), (signal.SIGINT, False), (signal.SIGINT, True)])
def test_processes_end_with_the_main_one_and_the_store_is_free(loader, tmp_path, how, group):
    """A terminal sends Ctrl-C to the whole group."""
    script = KILLED.format(tests=str(Path(__file__).parents[1]), folder=str(tmp_path / "store"))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", script], **pipes, start_new_session=True)
    for _ in range(6):  # into the second shard
        process.stdout.readline()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    (os.killpg if group else os.kill)(process.pid, how)
    error = process.communicate(timeout=20)[1].decode()
    assert error.count("Traceback") == (how == signal.SIGINT)  # one of the main process, none of the others
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    loader()
    run(tmp_path / "store")
    run(tmp_path / "whole")
    assert shards_of(tmp_path / "store") == shards_of(tmp_path / "whole")
