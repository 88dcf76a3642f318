"""From the memory of the machine to the device's, beside what the device computes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clip_geometry.embedding.shards.images import ReadBatch


@dataclass
class Staged:
    """A batch on its way. events: before it is pinned and after it is copied, to a GPU; seconds: between them, once it
    has arrived."""

    batch: ReadBatch
    pixels: Tensor | None
    events: tuple[Any, Any] | None = None
    seconds: float = 0.0

    def arrived(self) -> Tensor | None:
        """The pixels, once they are there."""
        if self.events is not None and self.pixels is not None:
            begin, end = self.events
            end.synchronize()
            self.seconds = begin.elapsed_time(end) / 1000
            # made on the stream of copies, used on this one: not to be given away before this one is done with it
            self.pixels.record_stream(torch.cuda.current_stream(self.pixels.device))
        return self.pixels


def staging(device: torch.device) -> Callable[[ReadBatch], Staged]:
    """Sends batches to the device: to a GPU out of pinned memory and on a stream of its own, which copies while the
    device computes. On a CPU they are there."""
    if device.type != "cuda":
        return lambda batch: Staged(batch, _on_cpu(batch))
    stream = torch.cuda.Stream(device)

    def stage(batch: ReadBatch) -> Staged:
        here = _on_cpu(batch)
        if here is None:
            return Staged(batch, None)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(stream):
            begin.record(stream)
            there = here.pin_memory().to(device, non_blocking=True)
            end.record(stream)
        return Staged(batch, there, (begin, end))

    return stage


def _on_cpu(batch: ReadBatch) -> Tensor | None:
    if batch.pixels is None:
        return None
    pixels = torch.from_numpy(batch.pixels)
    # rows for the encoder lie in torch's own memory, whose alignment the products see; bytes are made such rows later
    return pixels.clone() if batch.form == "ready" else pixels
