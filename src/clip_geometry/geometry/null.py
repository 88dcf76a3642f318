"""What a measure gives where there is nothing to see: an isotropic Gaussian of the same size."""

from collections.abc import Callable

import torch
from torch import Tensor

from clip_geometry.geometry.lookup import as_measure
from clip_geometry.geometry.measure import Measure
from clip_geometry.geometry.rows import Labels, unit_rows
from clip_geometry.registry import InputError


def null_value(
    measure: str | Measure,
    n: int,
    d: int,
    *,
    n_text: int | None = None,
    labels: Labels | None = None,
    scale: float | None = None,
    prepare: Callable[[Tensor], Tensor] = lambda rows: rows,
    draws: int = 1,
    seed: int = 0,
) -> Tensor:
    """The measure on isotropic Gaussian rows of the same n and d: the bias that a value has to be read against.

    n, d: as in the data; n_text: rows of the second set (n, unless given); labels: those of the data, so that the
    class sizes agree (two equal classes, unless given). scale: standard deviation of a coordinate; without it, rows
    are made unit length for the measures that need unit rows. prepare: what else was done to the data, done to each
    set of the Gaussian too. The mean over `draws` draws; seed: of the first. A 0-d float64 tensor. Raises InputError
    for no rows, no columns and no draws, and for measures that are no function of rows and labels. Of an evaluator's
    number hand over its Measure, `clip_geometry.evaluators.evaluators[name]`; of one with class texts n_text is the
    number of classes.
    """
    measure = as_measure(measure)
    if draws < 1 or min(n, d, n if n_text is None else n_text) < 1:
        raise InputError(f"{draws} draws of {n} × {d} rows were asked for; expected at least one of each")
    if measure.takes.startswith("train"):
        raise InputError(f"{measure.name} needs {measure.needs[0]}; its null value is that of shuffled labels")
    if labels is None:
        labels = torch.arange(n) % (n_text or 2 if measure.takes == "classes" else 2)

    def value(draw: int) -> Tensor:
        generator = torch.Generator().manual_seed(draw)

        def rows(count: int) -> Tensor:
            drawn = torch.randn(count, d, generator=generator, dtype=torch.float64)
            if scale is not None:
                return prepare(scale * drawn)
            return prepare(unit_rows(drawn) if "rows of one scale" in measure.needs else drawn)

        if measure.takes == "classes":
            return measure(rows(n), labels, rows(n_text or len(set(torch.as_tensor(labels).tolist()))))
        if measure.across or measure.takes == "languages":
            return measure(rows(n), rows(n if n_text is None else n_text))
        return measure(rows(n), labels) if measure.takes == "labelled rows" else measure(rows(n))

    return torch.stack([value(draw) for draw in range(seed, seed + draws)]).mean()
