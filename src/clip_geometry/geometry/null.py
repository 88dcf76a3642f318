"""What a measure gives where there is nothing to see: an isotropic Gaussian of the same size."""

from collections.abc import Callable

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
    prepare: Callable[[Tensor], Tensor] = lambda rows: rows,
    draws: int = 1,
    seed: int = 0,
) -> Tensor:
    """The measure on isotropic Gaussian rows of the same n and d: the bias that a value has to be read against.

    n, d: as in the data; n_text: rows of the second set (n, unless given); labels: those of the data, so that the
    class sizes agree. prepare: what was done to the data (normalisation, say), done to each set of the Gaussian too.
    The mean over `draws` draws; seed: of the first. A 0-d float64 tensor.
    """
    measure = measures[measure] if isinstance(measure, str) else measure
    generator = torch.Generator().manual_seed(seed)
    values = [measure(*_draw(measure, n, d, n_text, labels, prepare, generator)) for _ in range(draws)]
    return torch.stack(values).mean()


def _draw(measure, n, d, n_text, labels, prepare, generator):
    def rows(count):
        return prepare(torch.randn(count, d, generator=generator, dtype=torch.float64))

    if measure.takes == "two sets":
        return rows(n), rows(n if n_text is None else n_text)
    if measure.takes == "labelled rows":
        return rows(n), torch.arange(n) % 2 if labels is None else labels
    return (rows(n),)
