"""Items of one split in the other one: same rows, or nearly the same."""

from collections.abc import Iterator

import numpy as np
import torch

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import WORK, Context
from clip_geometry.diagnosis.finding import Finding, finding
from clip_geometry.diagnosis.tail import too_near
from clip_geometry.geometry._core.neighbors import nearest

COPY = 1e-6  # distance of unit rows that differ by float32 rounding


@add_check(
    "leakage",
    "items that are in both splits",
    threshold="One item whose rows, of every modality that both splits have, equal rows of the other split, or are "
    "nearer to them than the tail of the distances between the splits lets expect (as in near_duplicates).",
)
def leakage(context: Context) -> Iterator[Finding]:
    other = context.other
    if other is None:
        return
    shared = [name for name in context.sets if name in other.sets and context.sets[name].dim == other.sets[name].dim]
    if not shared:
        return
    found = {name: _in_both(context, other, name) for name in shared}
    couples = [couple for couple in context.couples if set(couple) <= set(shared)]
    for name in sorted(set(shared).difference(*couples)):
        numbers, copies, near = found[name]
        if (copies | near).any():
            yield _finding("error", (name,), numbers[copies | near], int(copies.sum()), len(numbers), context)
    for one, second in couples:
        i, j = context.pairs(one, second) or ((), ())
        (first, copy_one, near_one), (then, copy_two, near_two) = found[one], found[second]
        copied = np.isin(i, first[copy_one]) & np.isin(j, then[copy_two])
        either = np.isin(i, first[copy_one | near_one]) & np.isin(j, then[copy_two | near_two])
        looked = int((np.isin(i, first) & np.isin(j, then)).sum())
        if either.any():
            yield _finding("error", (one, second), i[either], int(copied.sum()), looked, context)
        for name, numbers, copies, rows in ((one, first, copy_one, i), (second, then, copy_two, j)):
            alone_here = np.setdiff1d(numbers[copies], rows[either])
            if len(alone_here):
                yield _finding("note", (name,), alone_here, len(alone_here), len(numbers), context)


def _finding(severity, modalities: tuple[str, ...], rows: np.ndarray, copies: int, n: int, context: Context) -> Finding:
    values = {"count": len(rows), "copies": copies, "n": n, "sampled": n < len(context.sets[modalities[0]])}
    return finding("leakage", severity, *modalities, **values, rows=rows.tolist())


def _in_both(context: Context, other: Context, modality: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of the rows that were looked for in the other split; those that are there; and those that nearly are."""
    numbers, unit, there = context.sample(modality), context.unit(modality), other.unit(modality)
    most = max(1, WORK // max(1, len(there)))
    if len(numbers) > most:
        chosen = np.sort(np.random.default_rng(context.seed).choice(len(numbers), most, replace=False))
        numbers, unit = numbers[chosen], unit[chosen]
    if not len(numbers) or not len(there):
        return numbers, np.zeros(len(numbers), dtype=bool), np.zeros(len(numbers), dtype=bool)
    distances = nearest(torch.from_numpy(unit), 1, y=torch.from_numpy(there))[0].numpy()[:, 0]
    copies = distances <= COPY
    found = too_near(distances[~copies])
    near = ~copies & (distances <= found.limit) if found else np.zeros_like(copies)
    return numbers, copies, near
