"""Rows equal to an earlier row to the last bit."""

from collections.abc import Iterator

import numpy as np

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import BLOCK, Context
from clip_geometry.diagnosis.finding import Finding, finding
from clip_geometry.measuring.remarks import SAME


@add_check(
    "exact_duplicates",
    "rows that are exact copies of others",
    threshold="One copy that no equal id, text or path explains: 512 float32 values do not coincide by chance. A note "
    "where only one side of a pair is copied, as by one caption of several images; an error where a row equals its "
    "partner in the other modality.",
)
def exact_duplicates(context: Context) -> Iterator[Finding]:
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
            yield _finding(context, "warning", both, one, other)
    for modality, rows in copied.items():
        rest = rows[~np.isin(rows, list(told[modality]))]
        if len(rest):
            yield _finding(context, "note" if modality in paired else "warning", rest, modality)


def _finding(context: Context, severity, rows: np.ndarray, *modalities: str) -> Finding:
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
