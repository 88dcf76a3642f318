"""Items of one split in the other one: same rows, or nearly the same."""

from collections.abc import Iterator

import numpy as np
import torch

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding
from clip_geometry.diagnosis.tail import too_near
from clip_geometry.geometry._core.neighbors import nearest
from clip_geometry.geometry._core.streamed import StreamedRows

COPY = 1e-4  # of the median distance to the nearest row: what float32 rounding leaves of equal rows is smaller


@add_check(
    "leakage",
    "items that are in both splits",
    threshold="One item that equals an item of the other split up to float32 rounding, or is nearer to one than the "
    "tail of the distances between the splits lets expect; pairs in both modalities at once, as in near_duplicates. A "
    "note where only one side of a pair is in both, as a caption of several images.",
)
def leakage(context: Context) -> Iterator[Finding]:
    other = context.other
    if other is None:
        context.skip("leakage", "no other split was given")
        return
    shared = [name for name in context.sets if name in other.sets and context.sets[name].dim == other.sets[name].dim]
    couples = [couple for couple in context.couples if set(couple) <= set(shared) and couple in other.couples]
    told: dict[str, np.ndarray] = {name: np.empty(0, dtype=np.int64) for name in shared}
    for one, second in couples:
        scales = (context.scale(one), context.scale(second))
        if min(scales) > 0:
            mine, theirs = (each.items(one, second, scales) for each in (context, other))
            for found in _found("error", context, (one, second), mine.i, mine.rows, theirs.rows, 1.0):
                rows = np.isin(mine.i, found.values["rows"])
                told[one], told[second] = mine.i[rows], mine.j[rows]
                yield found
    paired = {name for couple in couples for name in couple}
    for name in shared:
        sample, unit, scale = context.sample(name), context.unit(name), context.scale(name)
        rest = ~np.isin(sample, told[name])
        severity = "note" if name in paired else "error"
        yield from _found(severity, context, (name,), sample[rest], unit[rest], other.unit(name), scale)


def _found(
    severity,
    context: Context,
    modalities: tuple[str, ...],
    numbers: np.ndarray,
    rows: np.ndarray,
    there: np.ndarray,
    scale: float,
) -> Iterator[Finding]:
    """numbers: of the rows, which are looked for among those of the other split. scale: the median distance of
    neighbors. Of a note, only copies are told."""
    if not len(rows) or not len(there):
        return
    queries = context.queries(len(rows), len(there))
    distances = nearest(torch.from_numpy(rows[queries]), 1, y=StreamedRows.of(there))[0].numpy()[:, 0]
    copies = distances <= COPY * scale
    tail = too_near(distances[~copies]) if severity != "note" else None
    leaked = copies | (distances <= tail.limit) if tail is not None else copies
    if leaked.any():
        count = int(leaked.sum())
        values = {"count": count, "copies": int(copies.sum()), "n": len(queries), "sampled": len(queries) < len(rows)}
        yield finding("leakage", severity, *modalities, **values, rows=numbers[queries[leaked]].tolist())
