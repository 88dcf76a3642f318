"""Copies: rows equal to others to the last bit or nearly, in one split and in two."""

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import pdtrc

from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.search.checks import Finding, Findings, add_check, finding
from clip_geometry.search.checks.context import BLOCK, Context, NearestRows, nearest_others, unexplained_copies

COPY = 1e-4  # of the median distance to the nearest row: what float32 rounding leaves of equal rows is smaller
# of near copies: distances that are too small for the distribution of the others, which are neighbors
FALSE = 0.01  # expected share of natural neighbors among the marked ones
P_VALUE = 1e-4
MOST = 0.1  # of the median distance: what is farther is a neighbor, not a copy
LOW, HIGH = 0.02, 0.2  # quantiles between which the tail's power is taken
LEAST = 100  # distances


@add_check
def exact_duplicates(context: Context) -> Findings:
    copied = {}
    for modality, each in context.sets.items():
        rows = unexplained_copies(each, context.first_equal(modality))
        copied[modality] = rows[context.valid(modality)[rows]]
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


@add_check
def near_duplicates(context: Context) -> Findings:
    for one, other in context.couples:
        scales = (context.scale(one), context.scale(other))
        if min(scales) > 0:
            items = context.items(one, other, scales)
            queries = context.queries(len(items.i))
            near = NearestRows(items.i, queries, *nearest_others(items.rows, queries, min(1, len(items.i) - 1)))
            yield from _near_copies(context, (one, other), near)
    for modality in set(context.sets).difference(*context.couples):
        numbers, queries, *others = context.neighbors(modality)
        own = ~np.isin(numbers[queries], context.foreign_numbers(modality))
        near = NearestRows(numbers, queries[own], *(each[own] for each in others))
        yield from _near_copies(context, (modality,), near)


def _near_copies(context: Context, modalities: tuple[str, ...], near: NearestRows) -> Findings:
    numbers, queries, distances, indices = near
    if len(distances) < LEAST:
        items = "pairs" if len(modalities) == 2 else "rows"
        context.skip("near_duplicates", f"fewer than {LEAST} distinct {items}", *modalities)
    tail = too_near(distances[:, 0]) if distances.size else None
    if tail is None:
        return
    marked, first = distances[:, 0] <= tail.limit, modalities[0]
    sampled = len(queries) < len(numbers) or len(context.sample(first)) < context.valid(first).sum()
    values = {"count": tail.marked, "n": len(queries), "sampled": sampled, "ratio": tail.limit / tail.median}
    values |= {"expected": tail.expected, "p_value": tail.p_value}
    values |= {"rows": numbers[queries[marked]].tolist(), "near": numbers[indices[marked, 0]].tolist()}
    yield finding("near_duplicates", "warning", *modalities, **values)


@add_check
def leakage(context: Context) -> Findings:
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
) -> Findings:
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


class Tail(NamedTuple):
    """limit: distance up to which rows are marked. marked: number of them. expected: natural ones among them. p_value:
    of as many natural ones or more. median: of the distances to the nearest row."""

    limit: float
    marked: int
    expected: float
    p_value: float
    median: float


def too_near(distances: np.ndarray) -> Tail | None:
    """Where the smallest of the distances to the nearest row are more than the others let expect; None if nowhere.

    Of smooth data in m dimensions, the share of distances below r falls as r^m. m is taken between two low quantiles:
    farther up, classes of different density make it too small (drawn scenes), and farther down it only grows, so that
    the extrapolation expects too many small distances rather than too few. Marked rows are left out and m is taken
    again; where more than LOW of all are copies, those below a tenth of the upper decile are left out first.
    """
    nearest = np.sort(distances)
    marked = int((nearest < MOST * np.quantile(nearest, 0.9)).sum()) if len(nearest) else 0
    found: Tail | None = None
    for _ in range(5):
        bulk = nearest[marked:]
        if len(bulk) < LEAST:
            return found
        low, high, median = np.quantile(bulk, [LOW, HIGH, 0.5])
        if not 0 < low < high:
            return found
        power = math.log(HIGH / LOW) / math.log(high / low)
        below = nearest[nearest < MOST * median]
        counts = np.arange(1, len(below) + 1)
        expected = len(bulk) * LOW * (below / low) ** power
        good = np.flatnonzero((expected <= FALSE * counts) & (pdtrc(counts - 1, expected) < P_VALUE))
        if not len(good):
            return None
        last = good[-1]
        chance = float(pdtrc(last, expected[last]))
        now = Tail(float(below[last]), int(counts[last]), float(expected[last]), max(chance, 1e-300), float(median))
        if now.marked == marked:
            return now
        found, marked = now, now.marked
    return found
