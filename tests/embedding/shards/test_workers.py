"""Processes that read ahead: in order, whichever of them die, and gone when nobody reads any more."""

import multiprocessing
import os
import signal
import time
from concurrent.futures import Future
from multiprocessing.connection import Connection

import numpy as np
import pytest
import torch

import support.embed_fakes as fakes
from clip_geometry.embedding.shards.images import ImageReader
from clip_geometry.embedding.shards.workers import can_be_sent, default_workers, in_order, reading_ahead
from clip_geometry.encoders.pixels import halves
from clip_geometry.registry import InputError

pytestmark = pytest.mark.timeout(30)  # what goes wrong here waits for ever
MAIN = os.getpid()
BATCHES = [range(k, k + 4) for k in range(0, 32, 4)]


def mean(image):
    return torch.from_numpy(np.asarray(image, dtype=np.float32)).mean((0, 1))


def die():
    assert os.getpid() != MAIN
    os.kill(os.getpid(), signal.SIGKILL)


def die_while_sending():
    def half(self, data):
        os.write(self.fileno(), bytes(data)[: len(data) // 2])
        die()

    Connection._send = half


def reader_that(act, at, preprocess=mean):
    """Its process acts when it comes to the image `at`; this process reads it."""

    def load(k):
        if k == at and os.getpid() != MAIN:
            act()
        return fakes.picture(k)

    return ImageReader(load, preprocess)


def test_default_workers(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(6), raising=False)
    assert [default_workers(images) for images in (0, 511, 512)] == [0, 0, 5]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(100))
    assert default_workers(10**6) == 16
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(1))
    assert default_workers(10**6) == 0


def test_results_come_in_order_and_few_are_under_way():
    submitted = []

    def submit(k):
        submitted.append(k)
        future = Future()
        future.set_result(k * k)
        return future

    squares = in_order(submit, range(10), 3)
    assert next(squares) == 0 and submitted == [0, 1, 2, 3]
    assert list(squares) == [k * k for k in range(1, 10)]


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_come_in_order_whoever_is_slow(workers):
    reader = reader_that(lambda: time.sleep(0.2), 4)
    with reading_ahead(reader, BATCHES, workers) as read:
        for batch, indices in zip(read, BATCHES, strict=True):
            assert batch.index == list(indices)
            assert np.array_equal(batch.pixels, reader(indices).pixels)


def test_an_error_leaves_its_batch_to_the_caller_and_the_process_reads_on():
    def refuse():
        raise InputError("not for you")

    with reading_ahead(reader_that(refuse, 5), BATCHES, 1) as read:
        assert [batch and batch.index[0] for batch in read] == [0, None, *range(8, 32, 4)]


def large(image):
    """More than a pipe holds, so that sending takes until somebody receives."""
    return mean(image).repeat(100_000)


@pytest.mark.parametrize("act", [die, die_while_sending])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_that_is_killed_takes_its_batch_along_and_no_other(act, workers, capsys):
    """The others go on; without any the caller reads. With a pipe for all, the half of a message would never end."""
    with reading_ahead(reader_that(act, 9, large), BATCHES, workers) as read:
        firsts = [batch and batch.index[0] for batch in read]
    assert firsts == [0, 4, None] + ([None] * 5 if workers == 1 else [12, 16, 20, 24, 28])
    rest = "this one decodes the rest" if workers == 1 else "the others (1) go on"
    told = f"a process that decodes images died, of too little memory perhaps: {rest}\n"
    assert capsys.readouterr().err == told
    assert not multiprocessing.active_children()


def test_all_processes_die_one_after_the_other(capsys):
    with reading_ahead(ImageReader(lambda k: die(), mean), BATCHES, 3) as read:
        assert list(read) == [None] * 8
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and lines[-1].endswith("this one decodes the rest")


def test_what_ends_early_does_not_wait_for_the_processes(capsys):
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), reading_ahead(reader_that(lambda: time.sleep(60), 9), BATCHES, 2) as read:
        next(read)
        raise KeyboardInterrupt
    assert time.monotonic() - begin < 20 and not multiprocessing.active_children()
    assert capsys.readouterr().err == ""  # none of them died by itself


HOOKS = []
os.register_at_fork(after_in_parent=lambda: [hook() for hook in HOOKS])


def test_an_interrupt_while_the_processes_begin_is_not_lost():
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


def test_spawned_processes_read_the_same():
    """As on systems where forking is unsafe: what they are given is pickled, and has no model in it."""
    from open_clip.transform import PreprocessCfg, image_transform_v2

    transform = image_transform_v2(PreprocessCfg(size=4), is_train=False)
    reader = ImageReader(fakes.picture, None, halves(transform))
    assert can_be_sent(reader, "spawn")
    assert not can_be_sent(ImageReader(fakes.picture, transform), "spawn")
    assert can_be_sent(ImageReader(fakes.picture, transform), "fork")
    assert not can_be_sent(ImageReader(lambda k: k, None, halves(transform)), "spawn")
    with reading_ahead(reader, BATCHES[:2], 1, start="spawn") as read:
        for batch, indices in zip(read, BATCHES[:2], strict=True):
            here = reader(indices)
            assert np.array_equal(batch.pixels, here.pixels)
            assert (batch.index, batch.form, batch.failed) == (here.index, "cut", here.failed)
