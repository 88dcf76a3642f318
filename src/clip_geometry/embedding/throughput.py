"""Throughput of an embedding: the options that affect it, and where the time went."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import Field

from clip_geometry.config import Config
from clip_geometry.data.base import Side
from clip_geometry.encoders.base import Encoder

PARTS = ("decode", "transfer", "compute", "write")


class Throughput(Config):
    """Options that make embedding fast. None changes what a row means. On a CPU, the defaults give the plain loop's
    bits, except for sort_texts: the last bits of a row depend on the padding of its batch.

    Attributes:
        workers: Processes that decode images. Default: 0 for few images, else the number of cores less one, at most 16.
        compile: Run the towers through torch.compile, which takes about a minute before it saves time.
        sort_texts: Batch texts of similar length where the tower pads a batch to its longest text. Texts are sorted
            within a shard, and rows are stored in the order of the data set.
    """

    workers: int | None = Field(default=None, ge=0)
    compile: bool = False
    sort_texts: bool = True

    def sorts(self, encoder: Encoder, side: Side) -> bool:
        """Whether texts are sorted; never where a row depends on its batch, which sorting changes."""
        padded = side.modality == "text" and encoder.pads_to_longest
        return self.sort_texts and padded and not encoder.config.depends_on_batch


class Spent:
    """Seconds spent on one side of a data set, by part: decode (and tokenize), transfer, compute, write.

    Attributes:
        waited: Seconds of the main process, which does one thing at a time, so that the parts add up to the whole.
            What a GPU computes is waited for where its rows are fetched.
        worked: Seconds of whoever did the work: all worker processes and threads together.
        items: Number of items embedded.
    """

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.waited: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.worked: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.items = 0

    @contextmanager
    def doing(self, part: str, *, waited: bool = True, worked: bool = True) -> Iterator[None]:
        """Time a part of the work: what the main process waits for, what someone works on, or both, which is what the
        main process does itself. Only one thread of this process works on each part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self.waited[part] += seconds * waited
            self.worked[part] += seconds * worked

    def facts(self) -> dict[str, Any]:
        """Items, seconds of the side, and the seconds waited and worked of each part."""
        parts = {part: {"waited": round(self.waited[part], 4), "worked": round(self.worked[part], 4)} for part in PARTS}
        return {"items": self.items, "seconds": round(time.perf_counter() - self.begin, 4), **parts}


def throughput_line(modality: str, facts: dict[str, Any]) -> str:
    """`image: 512 items in 4.0 s (128/s): decode 3%, transfer 0%, compute 95%, write 1% of the time; …`."""
    seconds = max(facts["seconds"], 1e-9)
    waited = ", ".join(f"{part} {facts[part]['waited'] / seconds:.0%}" for part in PARTS)
    beside = [part for part in PARTS if facts[part]["worked"] - facts[part]["waited"] > 0.01 * seconds]
    hidden = ", ".join(f"{part} {facts[part]['worked']:.1f} s" for part in beside)
    rate = f"{facts['items']} items in {facts['seconds']:.1f} s ({facts['items'] / seconds:.0f}/s)"
    return f"{modality}: {rate}: {waited} of the time" + (f"; overlapped: {hidden}" if hidden else "")
