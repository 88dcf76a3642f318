"""What a measure gives where there is nothing to see: an isotropic Gaussian of the same size."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clip_geometry.geometry.measure import Measure, measures
from clip_geometry.geometry.rows import Labels


def null_value(
    measure: str | Measure,
    n: int,
    d: int,
    *,
    n_text: int | None = None,
    labels: Labels | None = None,
    scale: float = 1.0,
    prepare: Callable[[Tensor], Tensor] = lambda rows: rows,
    draws: int = 1,
    seed: int = 0,
) -> Tensor:
    """The measure on isotropic Gaussian rows of the same n and d: the bias that a value has to be read against.

    n, d: as in the data; n_text: rows of the second set (n, unless given); labels: those of the data, so that the
    class sizes agree (two equal classes, unless given); scale: standard deviation of a coordinate. prepare: what was
    done to the data (normalisation, say), done to each set of the Gaussian too. The mean over `draws` draws; seed: of
    the first. A 0-d float64 tensor.
    """
    measure = measures[measure] if isinstance(measure, str) else measure
    values = [
        measure.pick(null_result(measure, n, d, n_text=n_text, labels=labels, scale=scale, prepare=prepare, seed=s))
        for s in range(seed, seed + draws)
    ]
    return torch.stack(values).mean()


def null_result(
    measure: Measure,
    n: int,
    d: int,
    *,
    n_text: int | None,
    labels: Labels | None,
    scale: float,
    prepare: Callable[[Tensor], Tensor],
    seed: int,
) -> Any:
    """What the measure's function returns on one draw; measures that share a function share this."""
    generator = torch.Generator().manual_seed(seed)

    def rows(count: int) -> Tensor:
        return prepare(scale * torch.randn(count, d, generator=generator, dtype=torch.float64))

    if measure.takes == "two sets":
        return measure.function(rows(n), rows(n if n_text is None else n_text), **measure.options)
    if measure.takes == "labelled rows":
        return measure.function(rows(n), torch.arange(n) % 2 if labels is None else labels, **measure.options)
    return measure.function(rows(n), **measure.options)
