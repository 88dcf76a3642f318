"""A batch of images read: decoded and brought to one size, in this process or in another."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from clip_geometry.data.files import NOT_THERE
from clip_geometry.encoders.pixels import Pixels

Form = Literal["ready", "cut", "raw"]


@dataclass(frozen=True)
class ReadBatch:
    """The images `index` as an array (n, 3, h, w), None where there is none; those that failed, and why.

    form: "ready" for the encoder, float32; "cut", still to be normalized; "raw", still to be resized, too.
    """

    index: list[int]
    pixels: np.ndarray | None
    form: Form
    failed: list[tuple[int, str]]
    seconds: float


@dataclass(frozen=True)
class ImageReader:
    """Reads batches. It is sent to other processes, so it holds no model where there are `pixels`.

    preprocess: the encoder's, from which ready rows come; None with `pixels`. raw: (height, width) of the images that
    are left as they are; a batch that has others is cut, all of it.
    """

    load: Callable[[int], object]
    preprocess: Callable[[Image.Image], Tensor] | None
    pixels: Pixels | None = None
    raw: tuple[int, int] | None = None

    def __call__(self, indices: Sequence[int]) -> ReadBatch:
        start, batch = time.perf_counter(), _Growing(self)
        for k in indices:
            try:
                image = self.load(k)
                assert isinstance(image, Image.Image)
                batch.add(k, image)
            except OSError as error:
                if error.errno not in (None, *NOT_THERE):  # None: a decoder's
                    raise
                batch.failed.append((k, reason(error)))
        form, pixels = batch.whole()
        return ReadBatch(batch.index, pixels, form, batch.failed, time.perf_counter() - start)

    def finish(self, pixels: Tensor, form: Form) -> Tensor:
        """What the encoder takes, on the device where the pixels are."""
        if form == "ready":
            return pixels
        assert self.pixels is not None
        return self.pixels.normalize(self.pixels.resize(pixels) if form == "raw" else pixels)


@dataclass
class _Growing:
    reader: ImageReader
    index: list[int] = field(default_factory=list)
    parts: list[Tensor] = field(default_factory=list)
    is_raw: list[bool] = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)

    def add(self, k: int, image: Image.Image) -> None:
        reader = self.reader
        raw = reader.raw is not None and reader.raw == (image.height, image.width)
        if reader.pixels is None:
            assert reader.preprocess is not None
            part = reader.preprocess(image)
        else:
            part = reader.pixels.raw(image) if raw else reader.pixels.cut(image)
        self.index.append(k)
        self.parts.append(part)
        self.is_raw.append(raw)

    def whole(self) -> tuple[Form, np.ndarray | None]:
        pixels, form = self.reader.pixels, "ready"
        if pixels is not None:
            form = "raw" if self.is_raw and all(self.is_raw) else "cut"
            if form == "cut":
                parts = zip(self.parts, self.is_raw, strict=True)
                self.parts = [pixels.cut(_image(part)) if raw else part for part, raw in parts]
        return form, torch.stack(self.parts).numpy() if self.parts else None


def _image(raw: Tensor) -> Image.Image:
    return Image.fromarray(raw.permute(1, 2, 0).contiguous().numpy())


def reason(error: OSError) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
