"""Coordinates that say nothing, and rows in fewer dimensions than they have coordinates."""

from collections.abc import Iterator

import numpy as np

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding

ROWS = 20_000
LEAST = 10  # rows
FLAT = 1e-5  # of the median standard deviation of coordinates: float32 rounds unit rows to 1e-8, they have 1e-2 each
RANK = 0.95  # of the possible rank
ROUNDING = 2e-14  # variance; float32 products leave up to 5e-15 along a direction of unit rows, clean full ranks 1e-13
BY_DESIGN = 0.015  # of the coordinates: all-MiniLM-L6-v2 has 3 of 384 (0.8%) that never vary
ONE_DIRECTION = 0.99  # average cosine; untrained models have 0.65 to 0.75, CLIP 0.5 to 0.8


@add_check
def dead_dimensions(context: Context) -> Iterator[Finding]:
    constant = {modality: _constant(context, modality) for modality in context.sets}
    for modality in context.sets:
        sample, unit = context.sample(modality)[:ROWS], context.unit(modality)[:ROWS]
        n, d = unit.shape
        distinct = len(np.unique(context.first_equal(modality)[sample]))
        if n < LEAST:
            context.skip("dead_dimensions", f"fewer than {LEAST} rows", modality)
            continue
        dead, zero, rows = constant[modality]
        mean = rows.mean(0)
        others = [each for name, (each, _, _) in constant.items() if name != modality and len(each) == d]
        shared = bool(others) and not any((dead & ~each).any() for each in others)
        by_design = shared or dead.mean() < BY_DESIGN
        centered = rows[:, ~dead] - mean[~dead]
        variances = np.linalg.eigvalsh(centered.T @ centered / n) if centered.size else np.zeros(0)
        rank, possible = int((variances > ROUNDING).sum()), min(distinct - 1, d - int(dead.sum()))
        average = float(mean @ mean)
        if dead.any() or rank < RANK * possible or average > ONE_DIRECTION:
            yield finding(
                "dead_dimensions",
                "error" if average > ONE_DIRECTION else "warning" if dead.any() and not by_design else "note",
                modality,
                dead=int(dead.sum()),
                zero=zero,
                by_design=by_design,
                shared=shared,
                d=d,
                n=n,
                rank=rank,
                possible=possible,
                low_rank=rank < RANK * possible,
                average_cosine=average,
                collapsed=average > ONE_DIRECTION,
                coordinates=np.flatnonzero(dead).tolist(),
            )


def _constant(context: Context, modality: str) -> tuple[np.ndarray, int, np.ndarray]:
    """Mask of the constant coordinates, the number of those that are zero, and the sampled rows at unit length."""
    sample = context.sample(modality)[:ROWS]
    raw = np.asarray(context.sets[modality].vectors[sample], dtype=np.float64)
    rows = raw / context.lengths(modality)[sample, None]
    if not len(raw):
        return np.zeros(raw.shape[1], dtype=bool), 0, rows
    spreads = [x.std(0) for x in (rows, raw)]
    return np.any([s <= FLAT * np.median(s) for s in spreads], axis=0), int((raw == 0).all(0).sum()), rows
