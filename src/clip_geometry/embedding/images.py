"""Batches of images: decoded and resized, in this process, in a worker, or partly on the model's device."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from clip_geometry.data.base import NOT_THERE, Side
from clip_geometry.embedding.throughput import Throughput
from clip_geometry.encoders.base import Encoder
from clip_geometry.encoders.pixels import Pixels
from clip_geometry.memory import is_out_of_memory

Form = Literal["ready", "cut", "raw"]
MIN_COSINE = 0.999  # between exact rows and rows resized on the device, for every row of the first batch
FIRST = 64  # images of that batch, at most


@dataclass(frozen=True)
class ReadBatch:
    """Images that were read.

    Attributes:
        index: Items of the rows of `pixels`.
        pixels: (n, 3, h, w), None if no image could be read. A numpy array, because workers send arrays through a pipe
            but tensors through shared memory, of which a container may have only 64 MB; a tensor once it is pinned.
        form: "ready" for the encoder (float32); "cut", still to be normalized; "raw", still to be resized as well.
        failed: Item and reason of each image that could not be read.
        seconds: Time spent reading.
    """

    index: list[int]
    pixels: np.ndarray | Tensor | None
    form: Form
    failed: list[tuple[int, str]]
    seconds: float

    def pin_memory(self) -> "ReadBatch":
        """Called by DataLoader's pinning thread."""
        return self if self.pixels is None else replace(self, pixels=torch.as_tensor(self.pixels).pin_memory())

    def on(self, device: torch.device) -> Tensor:
        """The pixels on a GPU; for any other device, in main memory."""
        pixels = torch.as_tensor(self.pixels)
        if device.type == "cuda":
            return pixels.to(device)
        # "ready" rows enter the products as they are, whose order of summation depends on the alignment of the memory
        return pixels.clone() if self.form == "ready" else pixels


@dataclass(frozen=True)
class ImageReader:
    """Reads batches of images. It is sent to worker processes, so it holds no model where `pixels` are given.

    Attributes:
        load: Opens the image of an item.
        preprocess: The encoder's preprocessing; None if `pixels` are given.
        pixels: The two halves of the preprocessing, where the encoder has them.
        raw: (height, width) of images that are resized on the device. A batch with other images is cut as a whole.
    """

    load: Callable[[int], object]
    preprocess: Callable[[Image.Image], Tensor] | None
    pixels: Pixels | None = None
    raw: tuple[int, int] | None = None

    def __call__(self, indices: Sequence[int]) -> ReadBatch:
        start = time.perf_counter()
        index, failed = [], []
        parts: list[Tensor] = []
        is_raw: list[bool] = []
        for k in indices:
            try:
                image = self.load(k)
                assert isinstance(image, Image.Image)
                raw = self.raw == (image.height, image.width)
                if self.pixels is None:
                    assert self.preprocess is not None
                    parts.append(self.preprocess(image))
                else:
                    parts.append(self.pixels.raw(image) if raw else self.pixels.cut(image))
                index.append(k)
                is_raw.append(raw)
            except OSError as error:
                if error.errno not in (None, *NOT_THERE):  # None: a decoder's
                    raise
                failed.append((k, " ".join(f"{type(error).__name__}: {error}".split())[:200]))
        form = "ready" if self.pixels is None else "raw" if is_raw and all(is_raw) else "cut"
        if self.pixels is not None and form == "cut":
            for k in np.flatnonzero(is_raw):
                image = Image.fromarray(parts[k].permute(1, 2, 0).contiguous().numpy())
                parts[k] = self.pixels.cut(image)
        pixels = torch.stack(parts).numpy() if parts else None
        return ReadBatch(index, pixels, form, failed, time.perf_counter() - start)

    def read_or_none(self, indices: Sequence[int]) -> ReadBatch | None:
        """In a worker: None where reading fails. The main process reads that batch again, so that the error is raised
        there, as itself."""
        try:
            return self(indices)
        except Exception:
            return None

    def finish(self, pixels: Tensor, form: Form) -> Tensor:
        """What the encoder takes, on the device where the pixels are."""
        if form == "ready":
            return pixels
        assert self.pixels is not None
        return self.pixels.normalize(self.pixels.resize(pixels) if form == "raw" else pixels)


@dataclass(frozen=True)
class Resize:
    """Where images are resized.

    Attributes:
        raw: (height, width) of the images that are resized on the device; None: all by Pillow.
        cosine: Smallest cosine between exact rows and rows resized on the device; None if it was not measured.
    """

    raw: tuple[int, int] | None = None
    cosine: float | None = None

    def facts(self) -> dict[str, Any]:
        measured = {} if self.cosine is None else {"cosine_to_exact": self.cosine}
        return {"resize": "exact" if self.raw is None else "device", **measured}


def choose_resize(throughput: Throughput, encoder: Encoder, side: Side, batch_size: int) -> Resize:
    """Compares both ways on the first images of the side, even if the store has them, so that a resumed run decides as
    the first one did."""
    wanted = throughput.resize == "device" or (throughput.resize == "auto" and encoder.device.type != "cpu")
    if not wanted or side.modality != "image" or encoder.pixels is None or encoder.config.depends_on_batch:
        return Resize()
    sizes: dict[int, tuple[int, int]] = {}
    for k in range(min(batch_size, FIRST, len(side))):
        try:
            image: Any = side.load(k)
        except OSError:
            continue
        sizes[k] = image.height, image.width
    readable, size = list(sizes), next(iter(sizes.values()), None)
    if size is None or len(set(sizes.values())) > 1 or not encoder.pixels.can_resize(*size):
        return Resize()

    def rows(raw: tuple[int, int] | None) -> Tensor:
        reader = ImageReader(side.load, None, encoder.pixels, raw)
        batch = reader(readable)
        return encoder.image_rows(reader.finish(batch.on(encoder.device), batch.form)).vectors.double()

    cosine = None
    while readable and cosine is None:
        try:
            cosine = float(torch.nn.functional.cosine_similarity(rows(None), rows(size)).min())
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            readable = readable[: len(readable) // 2]
    return Resize(size if cosine is not None and cosine >= MIN_COSINE else None, cosine)  # NaN is not enough
