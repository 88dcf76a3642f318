"""How an embedding is made fast, and what of that the rows can show."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field

from clip_geometry.config import Config
from clip_geometry.data.base import Side
from clip_geometry.embedding.shards.images import ImageReader
from clip_geometry.embedding.shards.staging import staging
from clip_geometry.encoders.base import Encoder
from clip_geometry.memory import is_out_of_memory

ENOUGH = 0.999  # cosine of the rows of a first batch
FIRST = 64  # images of that batch, at most


class Throughput(Config):
    """None of these changes what a row means; on a CPU the defaults do not change a bit of it.

    workers: processes that decode images; default: 0 for few images, else one less than the cores, at most 16.
    resize: "exact", by Pillow, as the model's authors do it; "device": images that all have one size, no larger than
    the model's, are sent as they are and resized on the model's device, if the rows of the first batch agree with the
    exact ones to a cosine of .999; "auto": "device" on a GPU, "exact" on a CPU.
    compile: the towers through torch.compile, which takes a minute or so before it saves time.
    sort_texts: texts of one length together where the tower pads a batch to its longest; default: on a GPU only.
    Rows come in the order of the data set whatever it is.
    """

    workers: int | None = Field(default=None, ge=0)
    resize: Literal["auto", "exact", "device"] = "auto"
    compile: bool = False
    sort_texts: bool | None = None

    def sorts(self, encoder: Encoder, side: Side) -> bool:
        """Whether texts are sorted. Not where a row depends on its batch, which is then made of other texts."""
        if side.modality != "text" or not encoder.pads_to_longest or encoder.config.depends_on_batch:
            return False
        return encoder.device.type != "cpu" if self.sort_texts is None else self.sort_texts


@dataclass(frozen=True)
class Resize:
    """raw: (height, width) of the images that are resized on the device; None: by Pillow. cosine: the least of the
    first batch, None where it was not measured."""

    raw: tuple[int, int] | None = None
    cosine: float | None = None

    def facts(self) -> dict[str, Any]:
        measured = {} if self.cosine is None else {"cosine_to_exact": self.cosine}
        return {"resize": "exact" if self.raw is None else "device", **measured}


def choose_resize(throughput: Throughput, encoder: Encoder, side: Side, batch_size: int) -> Resize:
    """Measured on the first images of the side, whatever is there already: an interrupted run chooses as before."""
    wanted = throughput.resize == "device" or (throughput.resize == "auto" and encoder.device.type != "cpu")
    if not wanted or side.modality != "image" or encoder.pixels is None or encoder.config.depends_on_batch:
        return Resize()
    readable, size = _common_size(side, range(min(batch_size, FIRST, len(side))))
    if size is None or not encoder.pixels.can_resize(*size):
        return Resize()
    cosine = None
    while readable and cosine is None:  # of fewer images where memory runs out
        cosine = _least_cosine(encoder, side, readable, size)
        readable = readable[: len(readable) // 2]
    return Resize(size if cosine is not None and cosine >= ENOUGH else None, cosine)  # a NaN is not enough


def _common_size(side: Side, indices: range) -> tuple[list[int], tuple[int, int] | None]:
    """The images that can be read, and (height, width) of all of them; None where there are several, or none."""
    sizes: dict[int, tuple[int, int]] = {}
    for k in indices:
        try:
            image: Any = side.load(k)
        except OSError:
            continue
        sizes[k] = image.height, image.width
    common = set(sizes.values())
    return list(sizes), common.pop() if len(common) == 1 else None


def _least_cosine(encoder: Encoder, side: Side, indices: list[int], size: tuple[int, int]) -> float | None:
    """Of exact rows and those resized on the device. None if memory ran out: returning lets go of the traceback, which
    holds the batch's tensors."""
    try:
        exact, fast = (
            _rows(encoder, ImageReader(side.load, None, encoder.pixels, raw), indices) for raw in (None, size)
        )
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return float(torch.nn.functional.cosine_similarity(exact.double(), fast.double()).min())


def _rows(encoder: Encoder, reader: ImageReader, indices: list[int]) -> torch.Tensor:
    """On the way that all batches take."""
    staged = staging(encoder.device)(reader(indices))
    pixels = staged.arrived()
    assert pixels is not None
    return encoder.image_rows(reader.finish(pixels, staged.batch.form)).vectors
