"""The learning rate over a training."""

import math
from typing import Protocol


class Schedule(Protocol):
    """What of a config the rate depends on. warmup: a share of the steps."""

    @property
    def steps(self) -> int: ...
    @property
    def lr(self) -> float: ...
    @property
    def warmup(self) -> float: ...


def rate(config: Schedule, number: int) -> float:
    """Of step `number`, from 0: up from 0 to lr over the warm-up, then down to 0 along a cosine."""
    warm = round(config.warmup * config.steps)
    if number < warm:
        return config.lr * (number + 1) / warm
    return config.lr * (1 + math.cos(math.pi * (number - warm) / (config.steps - warm))) / 2
