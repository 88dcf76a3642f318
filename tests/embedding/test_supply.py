"""Rows do not show who read the images, nor what went wrong meanwhile: random cases against the obvious loop."""

import errno
import gc
import multiprocessing
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

import support.embed_fakes as fakes
from clip_geometry.data.base import Side
from clip_geometry.data.images import rgb
from clip_geometry.embedding import supply as images
from clip_geometry.embedding.rows import embed_shard
from clip_geometry.embedding.store import Shard
from clip_geometry.embedding.supply import Batch, ImageReader, Throughput, default_workers, reading_ahead, supply
from clip_geometry.encoders.base import Pixels
from clip_geometry.registry import InputError

pytestmark = pytest.mark.timeout(60)
MAIN = os.getpid()
SMALL = (5, 6)  # height and width of most images; the model's are 8 × 8
TRANSFORM = image_transform_v2(PreprocessCfg(size=8), is_train=False)
MODES = ["RGB", "L", "P", "RGBA", "1", "CMYK", "LA"]


class Flat(fakes.FakeEncoder):
    """Its rows are the pixels it is given, so that nothing about them is hidden."""

    pixels = Pixels.of(TRANSFORM)

    def preprocess(self, image):
        return TRANSFORM(rgb(image))

    def image_features(self, pixels):
        if self.fits is not None and len(pixels) > self.fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.batches.append(len(pixels))
        return pixels.flatten(1).clone()


@dataclass(frozen=True)
class Case:
    """What may matter, at random. shards: those that are missing, with holes between them."""

    items: int
    batch_size: int
    shards: list[Shard]
    corrupt: set[int]
    refused: int  # the image at which a worker fails; this process does not
    fits: int | None
    workers: int

    def load(self, k):
        if k == self.refused and os.getpid() != MAIN:
            raise OSError(errno.EMFILE, "too many open files")
        if k in self.corrupt:
            raise OSError("image file is truncated")
        generator = np.random.default_rng(k)
        height, width = SMALL if generator.random() < 0.9 else (9, 7)
        noise = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
        return Image.fromarray(noise).convert(MODES[k % len(MODES)])


def case(seed):
    generator = np.random.default_rng(seed)
    items, batch_size, shard_size = (int(generator.integers(1, most)) for most in (50, 10, 21))
    starts = range(0, items, shard_size)
    shards = [Shard(k, start, min(start + shard_size, items)) for k, start in enumerate(starts)]
    missing = [shard for shard in shards if generator.random() < 0.7] or shards[-1:]
    corrupt = {k for k in range(items) if generator.random() < 0.1}
    return Case(
        items,
        batch_size,
        missing,
        corrupt | set(range(min(batch_size, items))) if seed % 5 == 0 else corrupt,  # the first batch, all of it
        refused=int(generator.integers(items)) if seed % 3 == 0 else -1,
        fits=int(generator.integers(1, batch_size + 1)) if seed % 4 == 0 else None,
        workers=[0, 1, 3][seed % 3],
    )


def obvious(case, shard):
    """item → row: the loop of open_clip's README, whose batches halve when they do not fit."""
    rows, begin, size = {}, shard.start, case.batch_size
    while begin < shard.stop:
        batch = range(begin, min(begin + size, shard.stop))
        images = {k: rgb(case.load(k)) for k in batch if k not in case.corrupt}
        if case.fits is not None and len(images) > case.fits:
            size = len(batch) // 2
            continue
        for k, image in images.items():
            rows[k] = TRANSFORM(image).flatten().numpy()
        begin += len(batch)
    return rows


@pytest.mark.parametrize("seed", range(15))
def test_rows_and_items_are_those_of_the_obvious_loop(seed):
    here = case(seed)
    encoder, told = Flat(fakes.FakeConfig(), fits=here.fits), []
    side = Side("image", [f"img-{k}" for k in range(here.items)], here.load)
    how = Throughput(workers=here.workers)
    with supply(encoder, side, here.shards, here.batch_size, how) as given:
        for shard in here.shards:
            rows, columns, facts = embed_shard(given, shard, here.batch_size, told.append)
            expected = obvious(here, shard)
            assert list(columns["index"]) == list(expected)
            assert list(columns["item_id"]) == [f"img-{k}" for k in expected]
            # by torch a batch may be rounded otherwise than a single image
            difference = rows.reshape(-1, 192) - np.array(list(expected.values())).reshape(-1, 192)
            assert np.abs(difference).max(initial=0) < 1e-5
            assert {item["index"] for item in facts["skipped"]} == here.corrupt & {*range(shard.start, shard.stop)}
    assert sum(told) == sum(shard.stop - shard.start for shard in here.shards)


def test_batches_that_are_not_asked_for_are_passed_over():
    here = replace(case(1), items=16, corrupt=set(), refused=-1)
    encoder, side = Flat(fakes.FakeConfig()), Side("image", [""] * 16, here.load)
    shards = [Shard(0, 0, 8), Shard(1, 8, 16)]
    with supply(encoder, side, shards, 4, Throughput(workers=1)) as given:
        for indices in (range(2), range(2, 6), range(12, 16)):
            inputs = given.batch(indices)
            assert torch.equal(inputs.values, torch.stack([TRANSFORM(rgb(here.load(k))) for k in indices]))
    assert given.facts()["workers"] == 1


def test_this_process_reads_only_what_nobody_read_ahead():
    """Rows would be right, too, if it read everything. The second shard does not fit; the hole after it is left out."""
    read_here = []

    def load(k):
        if os.getpid() == MAIN:
            read_here.append(k)
        return fakes.picture(k)

    encoder, side = Flat(fakes.FakeConfig()), Side("image", [""] * 40, load)
    shards = [Shard(0, 0, 7), Shard(1, 7, 14), Shard(3, 21, 28), Shard(5, 35, 40)]
    with supply(encoder, side, shards, 3, Throughput(workers=1)) as given:
        for shard in shards:
            encoder.fits = 2 if shard.number == 1 else None
            embed_shard(given, shard, 3, lambda done: None)
    assert read_here == list(range(7, 13))  # one by one; the last one of the shard was planned so


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_is_raised_as_itself_when_its_batch_is_asked_for(workers):
    """And the batches after it come."""
    encoder = Flat(fakes.FakeConfig())

    def load(k):
        if k == 5:
            raise InputError("item 5 is not for you")
        return fakes.picture(k)

    side = Side("image", [""] * 20, load)
    with supply(encoder, side, [Shard(0, 0, 20)], 4, Throughput(workers=workers)) as given:
        assert given.batch(range(4)).index == [0, 1, 2, 3]
        with pytest.raises(InputError, match=r"^item 5 is not for you$"):
            given.batch(range(4, 8))
        for indices in (range(8, 12), range(12, 16), range(16, 20)):
            inputs = given.batch(indices)
            assert inputs.index == list(indices)
            assert torch.equal(inputs.values, torch.stack([TRANSFORM(load(k)) for k in indices]))


BATCHES = [range(k, k + 4) for k in range(0, 32, 4)]
KILLED = "^a worker process that decodes images was killed, perhaps for lack of memory: run the same command again"


def mean(image):
    return torch.from_numpy(np.asarray(image, dtype=np.float32)).mean((0, 1))


def large(image):
    """More than a pipe holds, so that sending takes until somebody receives."""
    return mean(image).repeat(100_000)


def die():
    assert os.getpid() != MAIN
    os.kill(os.getpid(), signal.SIGKILL)


def die_while_sending():
    def half(self, data):
        os.write(self.fileno(), bytes(data)[: len(data) // 2])
        die()

    Connection._send = half


def reader_that(act, at, preprocess=mean):
    """A worker acts when it comes to the image `at`; this process reads it."""

    def load(k):
        if k == at and os.getpid() != MAIN:
            act()
        return fakes.picture(k)

    return ImageReader(load, preprocess)


def test_default_workers(monkeypatch):
    for cores, count, workers in [(6, 0, 0), (6, 511, 0), (6, 512, 5), (100, 10**6, 16), (1, 10**6, 0)]:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: range(cores), raising=False)
        assert default_workers(count) == workers


FOUR = image_transform_v2(PreprocessCfg(size=4), is_train=False)


@pytest.mark.parametrize("form", ["cut", "ready"])
def test_pixels_come_through_few_slots_of_shared_memory(form):
    """More batches than slots, a slow reader, a slow consumer, and images that cannot be read, the first among them."""
    batches = [range(k, min(k + 4, 50)) for k in range(0, 50, 4)]

    def load(k):
        if k in (0, 9, 20, 21, 22, 23):
            raise OSError("damaged")
        time.sleep(0.1 if k == 13 and os.getpid() != MAIN else 0)
        return fakes.picture(k)

    preprocess, pixels = (None, Pixels.of(FOUR)) if form == "cut" else (FOUR, None)
    reader = ImageReader(load, preprocess, pixels)
    places, state = set(), torch.get_rng_state()
    with reading_ahead(reader, batches, 2) as read:
        for batch, indices in zip(read, batches, strict=True):
            time.sleep(0.02)
            here = reader(indices)
            assert (batch.index, batch.failed) == (here.index, here.failed)
            assert np.array_equal(batch.values, here.values)
            if batch.values is not None:
                places.add(batch.values.ctypes.data)
                (memory,) = images._memories.values()
                assert np.may_share_memory(batch.values, memory)
    assert len(places) == 2 * 2 + 1
    assert torch.equal(torch.get_rng_state(), state)  # DataLoader would draw a seed from it
    assert not images._memories and not multiprocessing.active_children()


def by_batch(k):
    """Pixels whose shape or dtype is another in some batches of four."""
    pixels = torch.arange(k, k + 6.0)
    return [pixels, pixels.double(), pixels[:4], pixels.reshape(2, 3)][k // 4 % 4]


def unlike(k):
    return torch.zeros(5 if k == 30 else 6)


@pytest.mark.parametrize("preprocess", [by_batch, unlike, lambda k: torch.zeros(0)])
def test_pixels_that_do_not_fit_the_shared_memory_come_all_the_same(preprocess):
    reader = ImageReader(lambda k: Image.new("L", (1, 1), k), lambda image: preprocess(image.getpixel((0, 0))))
    with reading_ahead(reader, BATCHES, 2) as read:
        for batch, indices in zip(read, BATCHES, strict=True):
            if preprocess is unlike and 30 in indices:  # raised in this process, which reads the batch again
                assert batch is None
                continue
            here = reader(indices)
            assert batch.values.dtype == here.values.dtype and np.array_equal(batch.values, here.values)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("end", [KeyboardInterrupt, None])
def test_no_shared_memory_is_left(end):
    def mapped():
        gc.collect()
        return Path("/proc/self/maps").read_text().count("/dev/zero (deleted)")

    before, during = mapped(), 0
    with suppress(KeyboardInterrupt), reading_ahead(ImageReader(fakes.picture, FOUR), BATCHES, 2) as read:
        for _ in read:
            during = during or mapped()
            if end is not None:
                raise end
    del _, read  # the iterator holds a batch that came before its turn
    deadline = time.monotonic() + 10  # on a busy machine, a thread that ends may hold the last batch for a moment
    while mapped() != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert before == mapped() < during and not multiprocessing.active_children()


def test_without_memory_to_share_batches_come_through_pipes(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(images.mmap, "mmap", refuse)
    reader = ImageReader(fakes.picture, None, Pixels.of(image_transform_v2(PreprocessCfg(size=4), is_train=False)))
    with reading_ahead(reader, BATCHES, 2) as read:
        for batch, indices in zip(read, BATCHES, strict=True):
            assert np.array_equal(batch.values, reader(indices).values)


@pytest.mark.parametrize(("act", "workers"), [(die, 2), (die_while_sending, 1)])
def test_a_worker_that_is_killed_ends_the_command_with_one_sentence(act, workers):
    with pytest.raises(InputError, match=KILLED), reading_ahead(reader_that(act, 9, large), BATCHES, workers) as read:
        assert next(read).index[0] == 0
        list(read)
        raise AssertionError("nobody noticed")
    assert not multiprocessing.active_children()


def test_an_error_of_the_caller_is_not_taken_for_a_killed_worker():
    with pytest.raises(RuntimeError, match="shapes"), reading_ahead(ImageReader(fakes.picture, mean), BATCHES, 1):
        raise RuntimeError("shapes do not match")
    assert not multiprocessing.active_children()


def test_what_ends_early_does_not_wait_for_the_workers(capfd, monkeypatch):
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.2)  # s that torch gives them; 5
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), reading_ahead(reader_that(lambda: time.sleep(60), 9), BATCHES, 2) as read:
        next(read)
        raise KeyboardInterrupt
    assert time.monotonic() - begin < 20 and not multiprocessing.active_children()
    assert capfd.readouterr().err == ""


HOOKS = []
os.register_at_fork(after_in_parent=lambda: [hook() for hook in HOOKS])


def test_an_interrupt_while_the_workers_begin_is_not_lost():
    """Python swallows what is raised in hooks of a fork; at this one an interrupt comes."""
    HOOKS.append(lambda: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in a job of the background
    try:
        with pytest.raises(KeyboardInterrupt), reading_ahead(ImageReader(fakes.picture, mean), BATCHES, 2):
            raise AssertionError("it was lost")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        HOOKS.clear()
        signal.signal(signal.SIGINT, before)
    assert not multiprocessing.active_children()


# --- pixels on their way to the model

HALVES = Pixels.of(image_transform_v2(PreprocessCfg(size=2), is_train=False))


@pytest.mark.parametrize(("pixels", "shared"), [(HALVES, True), (None, False)])
def test_on_a_cpu_rows_for_the_encoder_are_moved_into_torchs_memory(pixels, shared):
    """Its alignment is torch's, and with it the order in which products are summed."""
    read = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
    arrived = ImageReader(str, None, pixels).on(torch.device("cpu"), read)
    assert np.array_equal(arrived.numpy(), read)
    assert np.shares_memory(arrived.numpy(), read) is shared


def test_what_is_pinned_keeps_the_rest_of_the_batch(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self + 1)
    pinned = Batch([3], np.zeros((1, 3, 2, 2), np.uint8), [(4, "gone")]).pin_memory()
    assert torch.equal(pinned.values, torch.ones(1, 3, 2, 2, dtype=torch.uint8))
    assert (pinned.index, pinned.failed) == ([3], [(4, "gone")])
    nothing = Batch([], None, [(4, "gone")])
    assert nothing.pin_memory() is nothing


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_sent_pinned_bytes():
    batch = Batch([0], np.arange(12, dtype=np.uint8).reshape(1, 3, 2, 2)).pin_memory()
    assert batch.values.is_pinned()
    arrived = ImageReader(str, None, HALVES).on(torch.device("cuda"), batch.values)
    assert arrived.cpu().flatten().tolist() == list(range(12))
