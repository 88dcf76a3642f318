"""The order of things on a GPU, with a GPU that only notes them."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from clip_geometry.embedding.shards import staging as module
from clip_geometry.embedding.shards.images import ReadBatch
from clip_geometry.embedding.shards.staging import staging

DEVICE = torch.device("cuda", 1)


class Gpu:
    """torch.cuda as far as it is used; `log` has what happened, in order."""

    def __init__(self, monkeypatch):
        self.log, gpu = [], self

        class Stream:
            def __init__(self, device):
                gpu.log.append(("stream", device))

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing
                self.number = sum(entry[0] == "event" for entry in gpu.log)
                gpu.log.append(("event", self.number))

            def record(self, stream):
                assert isinstance(stream, Stream)
                gpu.log.append(("record", self.number))

            def synchronize(self):
                gpu.log.append(("synchronize", self.number))

            def elapsed_time(self, end):
                assert ("synchronize", end.number) in gpu.log  # CUDA raises before that
                return 1000.0 * (end.number - self.number) * 2  # milliseconds

        @contextmanager
        def stream(which):
            gpu.log.append("enter")
            yield
            gpu.log.append("leave")

        for name, value in {"Stream": Stream, "Event": Event, "stream": stream}.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"current of {device}")
        monkeypatch.setattr(module, "_on_cpu", lambda batch: (batch.pixels is not None and Pixels(gpu)) or None)


class Pixels:
    device = DEVICE

    def __init__(self, gpu):
        self.gpu = gpu

    def pin_memory(self):
        self.gpu.log.append("pin")
        return self

    def to(self, device, non_blocking):
        self.gpu.log.append(("copy", device, non_blocking))
        return self

    def record_stream(self, stream):
        self.gpu.log.append(("used on", stream))


def batch(pixels, form="cut"):
    return ReadBatch([0], pixels, form, [], 0.0)


def test_a_gpu_is_sent_pinned_bytes_beside_what_it_computes(monkeypatch):
    """Begin, copy and end on the stream of copies; whoever uses the pixels first waits for the end, and says where they
    are used, since their memory belongs to the other stream."""
    gpu = Gpu(monkeypatch)
    stage = staging(DEVICE)
    staged = stage(batch(np.zeros((1, 3, 2, 2), np.uint8)))
    asked = ["enter", ("record", 0), "pin", ("copy", DEVICE, True), ("record", 1), "leave"]
    assert gpu.log == [("stream", DEVICE), ("event", 0), ("event", 1), *asked]
    assert staged.seconds == 0.0
    assert isinstance(staged.arrived(), Pixels)
    assert gpu.log[9:] == [("synchronize", 1), ("used on", "current of cuda:1")]
    assert staged.seconds == 2.0
    stage(batch(np.zeros((1, 3, 2, 2), np.uint8)))
    assert sum(entry[0] == "stream" for entry in gpu.log) == 1  # one stream for all batches


def test_a_batch_without_images_is_not_sent(monkeypatch):
    gpu = Gpu(monkeypatch)
    staged = staging(DEVICE)(batch(None))
    assert staged.arrived() is None and staged.events is None
    assert gpu.log == [("stream", DEVICE)]


@pytest.mark.parametrize(("form", "shared"), [("cut", True), ("raw", True), ("ready", False)])
def test_on_a_cpu_rows_for_the_encoder_are_moved_into_torchs_memory(form, shared):
    """Its alignment is torch's, and with it the order in which products are summed."""
    pixels = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
    arrived = staging(torch.device("cpu"))(batch(pixels, form)).arrived()
    assert np.array_equal(arrived.numpy(), pixels)
    assert np.shares_memory(arrived.numpy(), pixels) is shared
