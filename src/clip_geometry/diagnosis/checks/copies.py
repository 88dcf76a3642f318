"""Copies: rows equal to others to the last bit or nearly, in one split and in two."""

from collections.abc import Iterator

import numpy as np
import torch

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import BLOCK, Context, Neighbors, nearest_others
from clip_geometry.diagnosis.finding import Finding, finding
from clip_geometry.diagnosis.tail import LEAST, too_near
from clip_geometry.geometry._core.neighbors import nearest
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.measuring.remarks import SAME

COPY = 1e-4  # of the median distance to the nearest row: what float32 rounding leaves of equal rows is smaller


@add_check
def exact_duplicates(context: Context) -> Iterator[Finding]:
    """Rows that are exact copies of others.

    One copy that no equal id, text or path explains: 512 float32 values do not coincide by chance. A note where only
    one side of a pair is copied, as by one caption of several images; an error where a row equals its partner in the
    other modality.
    """
    copied = {modality: _unexplained(context, modality) for modality in context.sets}
    told: dict[str, set[int]] = {modality: set() for modality in context.sets}
    paired = {modality for couple in context.couples for modality in couple}
    for one, other in context.couples:
        i, j = context.pairs(one, other) or ((), ())
        a, b = (context.sets[name].vectors for name in (one, other))
        blocks = (slice(start, start + BLOCK) for start in range(0, len(i), BLOCK))
        same = np.concatenate([k.start + np.flatnonzero((a[i[k]] == b[j[k]]).all(1)) for k in blocks])
        same = same[context.valid(one)[i[same]]]
        if len(same):
            values = {"count": len(same), "n": len(i), "across": True}
            yield finding("exact_duplicates", "error", one, other, **values, rows=i[same].tolist(), of=j[same].tolist())
        partner = np.full(len(context.sets[one]), -1)
        partner[i[::-1]] = j[::-1]  # the first one of each row
        mine, theirs = partner[copied[one]], partner[context.first_equal(one)[copied[one]]]
        second = context.first_equal(other)
        whole = (mine >= 0) & (theirs >= 0) & (mine != theirs) & (second[mine] == second[theirs])
        both = copied[one][whole]  # copies whose partners are copies of each other
        if len(both):
            told[one] |= set(both.tolist())
            told[other] |= set(partner[both].tolist())
            yield _of_copies(context, "warning", both, one, other)
    for modality, rows in copied.items():
        rest = rows[~np.isin(rows, list(told[modality]))]
        if len(rest):
            yield _of_copies(context, "note" if modality in paired else "warning", rest, modality)


def _of_copies(context: Context, severity, rows: np.ndarray, *modalities: str) -> Finding:
    first = context.first_equal(modalities[0])
    groups = np.unique(first[rows], return_counts=True)[1]
    n = len(context.sets[modalities[0]])
    values = {"count": len(rows), "n": n, "groups": len(groups), "largest": int(groups.max()) + 1}
    return finding("exact_duplicates", severity, *modalities, **values, rows=rows.tolist(), of=first[rows].tolist())


def _unexplained(context: Context, modality: str) -> np.ndarray:
    """Numbers of the valid rows that equal an earlier one and share no id, text or path with it."""
    each, first = context.sets[modality], context.first_equal(modality)
    rows = np.flatnonzero((first != np.arange(len(first))) & context.valid(modality))
    for column in (each.item_id, *(each.metadata.get(name) for name in SAME)):
        if column is not None:
            rows = rows[column[rows] != column[first[rows]]]
    return rows


@add_check
def near_duplicates(context: Context) -> Iterator[Finding]:
    """Items that are nearly copies of others.

    Distances to the nearest item below a tenth of their median, of which the tail of the others lets expect at most one
    in a hundred (p < 0.0001). Pairs are compared in both modalities at once, each in units of its median distance: two
    captions that say the same of different images are no near copies.
    """
    for one, other in context.couples:
        scales = (context.scale(one), context.scale(other))
        if min(scales) > 0:
            items = context.items(one, other, scales)
            queries = context.queries(len(items.i))
            near = Neighbors(items.i, queries, *nearest_others(items.rows, queries, min(1, len(items.i) - 1)))
            yield from _near_copies(context, (one, other), near)
    for modality in set(context.sets).difference(*context.couples):
        numbers, queries, *others = context.neighbors(modality)
        own = ~np.isin(numbers[queries], context.foreign_numbers(modality))
        near = Neighbors(numbers, queries[own], *(each[own] for each in others))
        yield from _near_copies(context, (modality,), near)


def _near_copies(context: Context, modalities: tuple[str, ...], near: Neighbors) -> Iterator[Finding]:
    numbers, queries, distances, indices = near
    if len(distances) < LEAST:
        items = "pairs" if len(modalities) == 2 else "rows"
        context.skip("near_duplicates", f"fewer than {LEAST} distinct {items}", *modalities)
    tail = too_near(distances[:, 0]) if distances.size else None
    if tail is None:
        return
    marked = distances[:, 0] <= tail.limit
    yield finding(
        "near_duplicates",
        "warning",
        *modalities,
        count=tail.marked,
        n=len(queries),
        sampled=len(queries) < len(numbers) or len(context.sample(modalities[0])) < context.valid(modalities[0]).sum(),
        ratio=tail.limit / tail.median,
        expected=tail.expected,
        p_value=tail.p_value,
        rows=numbers[queries[marked]].tolist(),
        near=numbers[indices[marked, 0]].tolist(),
    )


@add_check
def leakage(context: Context) -> Iterator[Finding]:
    """Items that are in both splits.

    One item that equals an item of the other split up to float32 rounding, or is nearer to one than the tail of the
    distances between the splits lets expect; pairs in both modalities at once, as in near_duplicates. A note where only
    one side of a pair is in both, as a caption of several images.
    """
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
            for found in _leaked("error", context, (one, second), mine.i, mine.rows, theirs.rows, 1.0):
                rows = np.isin(mine.i, found.values["rows"])
                told[one], told[second] = mine.i[rows], mine.j[rows]
                yield found
    paired = {name for couple in couples for name in couple}
    for name in shared:
        sample, unit, scale = context.sample(name), context.unit(name), context.scale(name)
        rest = ~np.isin(sample, told[name])
        severity = "note" if name in paired else "error"
        yield from _leaked(severity, context, (name,), sample[rest], unit[rest], other.unit(name), scale)


def _leaked(
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
