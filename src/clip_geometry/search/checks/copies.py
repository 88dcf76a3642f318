"""Duplicate rows, exact or nearly so, within one split and across two."""

import math
from typing import NamedTuple

import numpy as np
import torch

from clip_geometry.embeddings import Embeddings
from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.search.checks import (
    BLOCK,
    ROWS,
    Context,
    Finding,
    Findings,
    NearestRows,
    Severity,
    add_check,
    finding,
    nearest_others,
    once,
)
from clip_geometry.search.checks.modalities import foreign_numbers, usual_mask

COPY = 1e-4  # relative to the median distance to the nearest row; float32 rounding separates equal rows by less
# a near copy is nearer than the distribution of the distances between distinct rows allows
FALSE = 0.01  # expected share of false positives (natural neighbors) among the marked rows
P_VALUE = 1e-4
MOST = 0.1  # relative to the median distance; a row farther away is a neighbor, not a copy
LOW, HIGH = 0.02, 0.2  # quantiles between which the exponent of the tail is estimated
LEAST = 100  # fewest distances for the check
SAME = ("text", "path", "image_path", "token", "word")  # columns that explain equal rows, like item ids


@add_check
def exact_duplicates(context: Context) -> Findings:
    copied = {}
    for modality, embeddings in context.sets.items():
        rows = unexplained_copies(embeddings, context.first_equal(modality))
        copied[modality] = rows[context.valid(modality)[rows]]
    reported: dict[str, set[int]] = {modality: set() for modality in context.sets}
    paired = {modality for couple in context.couples for modality in couple}
    for one, other in context.couples:
        i, j = context.pairs(one, other) or ((), ())
        a, b = (context.sets[name].vectors for name in (one, other))
        blocks = [slice(start, start + BLOCK) for start in range(0, len(i), BLOCK)]
        equal = np.flatnonzero(np.concatenate([(a[i[block]] == b[j[block]]).all(1) for block in blocks]))
        equal = equal[context.valid(one)[i[equal]]]
        if len(equal):
            values = {"count": len(equal), "n": len(i), "across": True}
            yield finding(
                "exact_duplicates", "error", one, other, **values, rows=i[equal].tolist(), of=j[equal].tolist()
            )
        partner = np.full(len(context.sets[one]), -1)
        partner[i[::-1]] = j[::-1]  # keep the first partner of each row
        own_partner = partner[copied[one]]
        first_partner = partner[context.first_equal(one)[copied[one]]]
        other_equal = context.first_equal(other)
        both_paired = (own_partner >= 0) & (first_partner >= 0) & (own_partner != first_partner)
        pair_copied = both_paired & (other_equal[own_partner] == other_equal[first_partner])
        pair_copies = copied[one][pair_copied]  # copies whose partners are copies of each other
        if len(pair_copies):
            reported[one] |= set(pair_copies.tolist())
            reported[other] |= set(partner[pair_copies].tolist())
            yield _of_copies(context, "warning", pair_copies, one, other)
    for modality, rows in copied.items():
        unreported = rows[~np.isin(rows, list(reported[modality]))]
        if len(unreported):
            yield _of_copies(context, "note" if modality in paired else "warning", unreported, modality)


def unexplained_copies(embeddings: Embeddings, first: np.ndarray) -> np.ndarray:
    """Return the rows that are bitwise equal to an earlier row, unless both share an item_id, text or path.

    first: the result of `first_equal` for these rows.
    """
    rows = np.flatnonzero(first != np.arange(len(first)))
    for column in explaining(embeddings):
        rows = rows[column[rows] != column[first[rows]]]
    return rows


def explaining(embeddings: Embeddings) -> list[np.ndarray]:
    """Return the columns whose equal values explain equal rows."""
    columns = [embeddings.item_id, *(embeddings.metadata.get(name) for name in SAME)]
    return [column for column in columns if column is not None]


def _of_copies(context: Context, severity: Severity, rows: np.ndarray, *modalities: str) -> Finding:
    """Return the finding on exact copies, for the row numbers of all copies but the first of each group."""
    first = context.first_equal(modalities[0])
    groups = np.unique(first[rows], return_counts=True)[1]
    n = len(context.sets[modalities[0]])
    values = {"count": len(rows), "n": n, "groups": len(groups), "largest": int(groups.max()) + 1}
    return finding("exact_duplicates", severity, *modalities, **values, rows=rows.tolist(), of=first[rows].tolist())


@add_check
def near_duplicates(context: Context) -> Findings:
    for couple in context.couples:
        if min(_scale(context, name) for name in couple) > 0:
            numbers, _, rows = _pair_rows(context, *couple)
            queries = context.queries(len(numbers))
            near = nearest_others(rows, queries, min(1, len(numbers) - 1))
            yield from _near_copies(context, couple, NearestRows(numbers, queries, *near))
    for modality in set(context.sets).difference(*context.couples):
        numbers, queries, *others = context.neighbors(modality)
        mask = ~np.isin(numbers[queries], foreign_numbers(context, modality))
        near = NearestRows(numbers, queries[mask], *(values[mask] for values in others))
        yield from _near_copies(context, (modality,), near)


@once
def _scale(context: Context, modality: str) -> float:
    """Median distance to the nearest distinct row, excluding rows from another space."""
    near = context.neighbors(modality)
    distances = near.distances[~np.isin(near.numbers[near.queries], foreign_numbers(context, modality))]
    return float(np.median(distances[:, 0])) if distances.size else 0.0


def _pair_rows(
    context: Context, one: str, other: str, scales: Context | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Represent each distinct pair of rows as one row of 2 d numbers.

    Returns the numbers of both rows and their unit rows side by side, (n, 2 d). Each half is divided by the scale of
    its modality, which is taken from `scales` if given. Rows from another space are excluded.
    """
    i, j = context.pairs(one, other) or (np.empty(0, dtype=np.int64),) * 2
    in_space = np.ones(len(i), dtype=bool)
    for modality, numbers in ((one, i), (other, j)):
        in_space &= np.isin(numbers, context.sample(modality)[usual_mask(context, modality)])
    i, j = i[in_space], j[in_space]
    keys = np.stack([context.first_equal(one)[i], context.first_equal(other)[j]], axis=1)
    distinct = np.sort(np.unique(keys, axis=0, return_index=True)[1])[:ROWS]
    i, j = i[distinct], j[distinct]
    d = context.sets[one].dim
    rows = np.empty((len(i), 2 * d), np.float32)
    for modality, numbers, part in ((one, i, rows[:, :d]), (other, j, rows[:, d:])):
        context.unit_rows(modality, numbers, part)
        part /= np.float32(_scale(scales or context, modality))
    return i, j, rows


def _near_copies(context: Context, modalities: tuple[str, ...], near: NearestRows) -> Findings:
    """Report rows that are much closer to their nearest row than chance explains."""
    numbers, queries, distances, indices = near
    if len(distances) < LEAST:
        items = "pairs" if len(modalities) == 2 else "rows"
        context.skip("near_duplicates", f"fewer than {LEAST} distinct {items}", *modalities)
    tail = too_near(distances[:, 0]) if distances.size else None
    if tail is None:
        return
    marked = distances[:, 0] <= tail.limit
    sampled = len(queries) < len(numbers)
    sampled = sampled or len(context.sample(modalities[0])) < context.valid(modalities[0]).sum()
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
    reported: dict[str, np.ndarray] = {name: np.empty(0, dtype=np.int64) for name in shared}
    for couple in couples:
        if min(_scale(context, name) for name in couple) > 0:
            *numbers, rows = _pair_rows(context, *couple)
            other_rows = _pair_rows(other, *couple, scales=context)[2]
            for leaked in _leaked(context, "error", numbers[0], rows, other_rows, *couple):
                mask = np.isin(numbers[0], leaked.values["rows"])
                reported |= {name: rows_of[mask] for name, rows_of in zip(couple, numbers, strict=True)}
                yield leaked
    paired = {name for couple in couples for name in couple}
    for name in shared:
        sample = context.sample(name)
        severity = "note" if name in paired else "error"
        unreported = ~np.isin(sample, reported[name])
        yield from _leaked(
            context, severity, sample[unreported], context.unit(name)[unreported], other.unit(name), name
        )


def _leaked(
    context: Context,
    severity: Severity,
    numbers: np.ndarray,
    rows: np.ndarray,
    other_rows: np.ndarray,
    *modalities: str,
) -> Findings:
    """Report rows that are exact copies of rows of the other split and, unless `severity` is "note", near copies too.

    numbers: row numbers of `rows`. Rows of pairs are already divided by the median distance between neighbors.
    """
    scale = 1.0 if len(modalities) == 2 else _scale(context, *modalities)
    if not len(rows) or not len(other_rows):
        return
    queries = context.queries(len(rows), len(other_rows))
    distances = nearest(torch.from_numpy(rows[queries]), 1, y=StreamedRows.of(other_rows))[0].numpy()[:, 0]
    copies = distances <= COPY * scale
    tail = too_near(distances[~copies]) if severity != "note" else None
    leaked = copies | (distances <= tail.limit) if tail is not None else copies
    if leaked.any():
        count = int(leaked.sum())
        values = {"count": count, "copies": int(copies.sum()), "n": len(queries), "sampled": len(queries) < len(rows)}
        yield finding("leakage", severity, *modalities, **values, rows=numbers[queries[leaked]].tolist())


class Tail(NamedTuple):
    """The lower tail of the distances to the nearest row.

    limit: largest distance that is marked. marked: number of marked rows. expected: expected number under the null.
    p_value: probability of `marked` or more rows under the null. median: median distance to the nearest row.
    """

    limit: float
    marked: int
    expected: float
    p_value: float
    median: float


def too_near(distances: np.ndarray) -> Tail | None:
    """Find which of the distances to the nearest row are smaller than the others predict; None if there are none.

    For smooth data in m dimensions, the share of distances below r falls as r^m. m is estimated between two low
    quantiles. At higher quantiles, m would be too small if classes differ in density (drawn scenes). At lower ones m
    only grows, so the extrapolation expects too many small distances rather than too few. The marked rows are then
    excluded and m is estimated again. Distances below a tenth of the upper decile are excluded from the start, because
    more than a share LOW of the rows may be copies.
    """
    from scipy.special import pdtrc

    nearest = np.sort(distances)
    marked = int((nearest < MOST * np.quantile(nearest, 0.9)).sum()) if len(nearest) else 0
    tail: Tail | None = None
    for _ in range(5):
        bulk = nearest[marked:]
        if len(bulk) < LEAST:
            return tail
        low, high, median = np.quantile(bulk, [LOW, HIGH, 0.5])
        if not 0 < low < high:
            return tail
        power = math.log(HIGH / LOW) / math.log(high / low)
        below = nearest[nearest < MOST * median]
        counts = np.arange(1, len(below) + 1)
        expected = len(bulk) * LOW * (below / low) ** power
        significant = np.flatnonzero((expected <= FALSE * counts) & (pdtrc(counts - 1, expected) < P_VALUE))
        if not len(significant):
            return None
        last = significant[-1]
        p_value = max(float(pdtrc(last, expected[last])), 1e-300)
        tail = Tail(float(below[last]), int(counts[last]), float(expected[last]), p_value, float(median))
        if tail.marked == marked:
            return tail
        marked = tail.marked
    return tail
