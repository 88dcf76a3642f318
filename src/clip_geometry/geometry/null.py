"""What a measure gives where there is nothing to see: an isotropic Gaussian of the same size."""

from collections.abc import Callable

import torch
from torch import Tensor

from clip_geometry.geometry._core.arguments import (
    DRAWS,
    Integer,
    Number,
    positive_number,
    seed_number,
    whole_number,
)
from clip_geometry.geometry._core.lookup import as_registered
from clip_geometry.geometry._core.rows import Labels, as_codes, unit_rows
from clip_geometry.geometry.measure import Measure
from clip_geometry.memory import memory
from clip_geometry.registry import InputError, shown


def null_value(
    measure: str | Measure,
    n: Integer,
    d: Integer,
    *,
    n_text: Integer | None = None,
    labels: Labels | None = None,
    scale: Number | None = None,
    prepare: Callable[[Tensor], Tensor] = lambda rows: rows,
    draws: Integer = 1,
    seed: Integer = 0,
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
    measure = as_registered(measure)
    n, d, draws = whole_number(n, "n"), whole_number(d, "d"), whole_number(draws, "draws", most=DRAWS)
    seed, n_text = seed_number(seed), None if n_text is None else whole_number(n_text, "n_text")
    scale = None if scale is None else positive_number(scale, "scale")
    if max(n, n_text or n) * d * 8 > memory():
        raise InputError(f"{max(n, n_text or n)} × {d} numbers do not fit into memory; take smaller n and d")
    if not callable(prepare):
        raise InputError(f"prepare = {shown(prepare)}; expected a function of the rows")
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
            return measure(rows(n), labels, rows(n_text or as_codes(labels, n)[1]))
        if measure.across or measure.takes == "languages":
            return measure(rows(n), rows(n if n_text is None else n_text))
        return measure(rows(n), labels) if measure.takes == "labelled rows" else measure(rows(n))

    return torch.stack([value(draw) for draw in range(seed, seed + draws)]).mean()
