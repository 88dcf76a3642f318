"""Where the time of an embedding goes: decode, transfer, compute, write."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PARTS = ("decode", "transfer", "compute", "write")


class Spent:
    """Seconds of one side. `waited`: of the main process, which does one thing after the other, so that with the rest
    they add up to the whole. `worked`: of whoever did it, of several processes together and beside the others.

    Decoding includes tokenizing. What a GPU computes is waited for where its rows are fetched.
    """

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.waited: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.worked: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.items = 0

    @contextmanager
    def waiting(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.waited[part] += time.perf_counter() - start

    @contextmanager
    def working(self, part: str) -> Iterator[None]:
        """Each part is worked at by one thread of this process only."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.worked[part] += time.perf_counter() - start

    @contextmanager
    def doing(self, part: str) -> Iterator[None]:
        """Work that the main process does itself."""
        with self.waiting(part), self.working(part):
            yield

    def facts(self) -> dict[str, Any]:
        """seconds of the side, and of each part those waited and those worked."""
        parts = {part: {"waited": round(self.waited[part], 4), "worked": round(self.worked[part], 4)} for part in PARTS}
        return {"items": self.items, "seconds": round(time.perf_counter() - self.begin, 4), **parts}


def told(modality: str, facts: dict[str, Any]) -> str:
    """`image: 512 items in 4.0 s (128/s): decode 3 %, transfer 0 %, compute 95 %, write 1 % of the time; …`."""
    seconds = max(facts["seconds"], 1e-9)
    waited = ", ".join(f"{part} {facts[part]['waited'] / seconds:.0%}" for part in PARTS)
    beside = [part for part in PARTS if facts[part]["worked"] - facts[part]["waited"] > 0.01 * seconds]
    hidden = ", ".join(f"{part} {facts[part]['worked']:.1f} s" for part in beside)
    rate = f"{facts['items']} items in {facts['seconds']:.1f} s ({facts['items'] / seconds:.0f}/s)"
    return f"{modality}: {rate}: {waited} of the time" + (f"; at work beside it: {hidden}" if hidden else "")
