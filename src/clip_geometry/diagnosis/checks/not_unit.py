"""Rows that are not of length 1, all or some of them."""

from collections.abc import Iterator

import numpy as np

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding

TOLERANCE = 0.01
QUERIES, INDEX = 500, 5000


@add_check
def not_unit(context: Context) -> Iterator[Finding]:
    for modality, each in context.sets.items():
        lengths = context.lengths(modality)[context.valid(modality)]
        off = np.abs(lengths - 1) > TOLERANCE
        if not off.any():
            continue
        few, median, many = np.quantile(lengths, [0.01, 0.5, 0.99])
        # lengths that vary pass through 1, too, but not more of them than through its surroundings
        around = off & (np.abs(lengths - 1) < 3 * TOLERANCE)
        partly = bool((~off).sum() > max(TOLERANCE * len(lengths), 2 * around.sum()))
        same = bool(many - few < TOLERANCE * median)
        raw = "key" in each.provenance  # a store of ours, which holds raw rows by design
        severity = "error" if partly else "note" if raw or same else "warning"
        yield finding(
            "not_unit",
            severity,
            modality,
            count=int(off.sum()),
            n=len(lengths),
            partly=partly,
            same=same,
            raw=raw,
            quantiles=[float(few), float(median), float(many)],
            **_changed(context, modality),
        )


def _changed(context: Context, modality: str) -> dict[str, int]:
    """Of some queries, how many have another nearest row by inner product than by cosine."""
    generator = np.random.default_rng(context.seed)
    unit, sample = context.unit(modality), context.sample(modality)
    index = generator.permutation(len(unit))[:INDEX]
    cosines = unit[index[:QUERIES]] @ unit[index].T
    np.fill_diagonal(cosines, -np.inf)
    products = cosines * context.lengths(modality)[sample[index]].astype(np.float32)
    return {
        "changed": int((cosines.argmax(1) != products.argmax(1)).sum()) if len(index) > 1 else 0,
        "queries": len(cosines),
    }
