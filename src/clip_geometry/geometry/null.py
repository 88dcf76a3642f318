"""What a measure gives where there is nothing to see: an isotropic Gaussian of the same size."""

from collections.abc import Callable

import torch
from torch import Tensor

from clip_geometry.geometry.measure import Measure, as_registered
from clip_geometry.memory import memory
from clip_geometry.registry import InputError, shown
from clip_geometry.rows.arguments import (
    DRAWS,
    Integer,
    Number,
    positive_number,
    seed_number,
    whole_number,
)
from clip_geometry.rows.matrix import Labels, as_codes, unit_rows


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
) -> float:
    """Value of a measure on isotropic Gaussian rows of the same n and d, against which a value is read.

    `cg.measure` prints another draw of it, `MeasuredSets.null`: rows of the same lengths, labels and pairs, through the
    same pipeline.

    Args:
        measure: Name of a measure or of an evaluator's number, or a `Measure`.
        n: Number of rows, as in the data.
        d: Dimension, as in the data.
        n_text: Rows of the second set, by default n; of a measure with class texts, the number of classes.
        labels: Labels of the data, so that class sizes agree; by default two equal classes.
        scale: Standard deviation of a coordinate. By default rows are made unit length for the measures that need rows
            of one scale.
        prepare: What else was done to the data, applied to each set of Gaussian rows.
        draws: Number of draws to average.
        seed: Seed of the first draw.

    Returns:
        The mean over the draws.

    Raises:
        InputError: There are no rows, columns or draws, or the measure is no function of rows and labels.

    Example:
        >>> import clip_geometry as cg
        >>> round(cg.null_value("isoscore", 100, 50), 2)  # biased low: isotropic rows would have 1
        0.66
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

        given, second = [], n if n_text is None else n_text
        for name in measure.inputs.arguments:
            if name == "labels":
                given.append(labels)
            elif name == "class_text":
                given.append(rows(n_text or as_codes(labels, n)[1]))
            else:
                given.append(rows(second if given else n))
        return measure(*given)

    values = [float(value(draw)) for draw in range(seed, seed + draws)]
    return float(torch.tensor(values, dtype=torch.float64).mean())
