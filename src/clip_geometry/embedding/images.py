"""Batches of images: decoded and resized by Pillow, in this process or in a worker."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from clip_geometry.data.base import NOT_THERE
from clip_geometry.encoders.pixels import Pixels

Form = Literal["ready", "cut", "images"]


@dataclass(frozen=True)
class ReadBatch:
    """Images that were read.

    Attributes:
        index: Items of the rows of `pixels`.
        pixels: (n, 3, h, w), None if no image could be read. A numpy array, because torch would send tensors through
            /dev/shm, of which a container may have only 64 MB; a tensor once it is pinned. An array that a worker
            wrote is valid until the next batch is asked for.
        form: "ready" for the encoder (float32); "cut", bytes, still to be normalized; "images", a list of PIL images.
        failed: Item and reason of each image that could not be read.
        seconds: Time spent reading.
    """

    index: list[int]
    pixels: np.ndarray | Tensor | list[Image.Image] | None
    form: Form
    failed: list[tuple[int, str]]
    seconds: float

    def pin_memory(self) -> "ReadBatch":
        """Called by DataLoader's pinning thread."""
        if self.pixels is None or isinstance(self.pixels, list):
            return self
        return replace(self, pixels=torch.as_tensor(self.pixels).pin_memory())

    def on(self, device: torch.device) -> Any:
        """The pixels on a GPU; for any other device, in main memory."""
        if isinstance(self.pixels, list):
            return self.pixels
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
        preprocess: The encoder's preprocessing; None if `pixels` are given, and for an encoder of PIL images.
        pixels: The two halves of the preprocessing, where the encoder has them.
    """

    load: Callable[[int], object]
    preprocess: Callable[[Image.Image], Tensor] | None
    pixels: Pixels | None = None

    def __call__(self, indices: Sequence[int], out: np.ndarray | None = None) -> ReadBatch:
        """out: where stacked pixels are written if they have its shape and dtype; the result is then its first rows."""
        start = time.perf_counter()
        index, failed = [], []
        parts: list[Any] = []
        form: Form = "cut" if self.pixels is not None else "images" if self.preprocess is None else "ready"
        for k in indices:
            try:
                image = self.load(k)
                assert isinstance(image, Image.Image)
                cut = self.preprocess if self.pixels is None else self.pixels.cut
                parts.append(image if cut is None else cut(image))
                index.append(k)
            except OSError as error:
                if error.errno not in (None, *NOT_THERE):  # None: a decoder's
                    raise
                failed.append((k, " ".join(f"{type(error).__name__}: {error}".split())[:200]))
        place = None if out is None else torch.from_numpy(out[: len(parts)])
        if place is not None and any((part.shape, part.dtype) != (place.shape[1:], place.dtype) for part in parts):
            place = None
        pixels = None if not parts else parts if form == "images" else torch.stack(parts, out=place).numpy()
        return ReadBatch(index, pixels, form, failed, time.perf_counter() - start)

    def read_or_none(self, indices: Sequence[int], out: np.ndarray | None = None) -> ReadBatch | None:
        """In a worker: None where reading fails. The main process reads that batch again, so that the error is raised
        there, as itself."""
        try:
            return self(indices, out)
        except Exception:
            return None

    def finish(self, pixels: Any, form: Form) -> Any:
        """What the encoder takes, on the device where the pixels are."""
        if form != "cut":
            return pixels
        assert self.pixels is not None
        return self.pixels.normalize(pixels)
