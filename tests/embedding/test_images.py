"""Pixels on their way to the model."""

import numpy as np
import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2

from clip_geometry.embedding.supply import Batch, ImageReader
from clip_geometry.encoders.base import halves

HALVES = halves(image_transform_v2(PreprocessCfg(size=2), is_train=False))


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
