"""Pixels on their way to the model."""

import numpy as np
import pytest
import torch

from clip_geometry.embedding.images import ReadBatch


@pytest.mark.parametrize(("form", "shared"), [("cut", True), ("ready", False)])
def test_on_a_cpu_rows_for_the_encoder_are_moved_into_torchs_memory(form, shared):
    """Its alignment is torch's, and with it the order in which products are summed."""
    pixels = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
    arrived = ReadBatch([0], pixels, form, [], 0.0).on(torch.device("cpu"))
    assert np.array_equal(arrived.numpy(), pixels)
    assert np.shares_memory(arrived.numpy(), pixels) is shared


def test_what_is_pinned_keeps_the_rest_of_the_batch(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self + 1)
    batch = ReadBatch([3], np.zeros((1, 3, 2, 2), np.uint8), "cut", [(4, "gone")], 1.0)
    pinned = batch.pin_memory()
    assert torch.equal(pinned.pixels, torch.ones(1, 3, 2, 2, dtype=torch.uint8))
    assert (pinned.index, pinned.form, pinned.failed, pinned.seconds) == ([3], "cut", [(4, "gone")], 1.0)
    nothing = ReadBatch([], None, "cut", [(4, "gone")], 1.0)
    assert nothing.pin_memory() is nothing


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_sent_pinned_bytes():
    batch = ReadBatch([0], np.arange(12, dtype=np.uint8).reshape(1, 3, 2, 2), "cut", [], 0.0).pin_memory()
    assert batch.pixels.is_pinned()
    assert batch.on(torch.device("cuda")).cpu().flatten().tolist() == list(range(12))
