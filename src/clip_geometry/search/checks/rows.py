"""Rows by themselves: without a direction, not of length 1, constant coordinates, too few of them."""

import numpy as np

from clip_geometry.search.checks import Findings, add_check, finding
from clip_geometry.search.checks.context import Context


@add_check
def invalid_rows(context: Context) -> Findings:
    for modality in context.sets:
        bad = np.flatnonzero(~context.valid(modality))
        if len(bad):
            n = len(context.sets[modality])
            yield finding("invalid_rows", "error", modality, count=len(bad), n=n, rows=bad.tolist())


TOLERANCE = 0.01
QUERIES, INDEX = 500, 5000


@add_check
def not_unit(context: Context) -> Findings:
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
        values = {"count": int(off.sum()), "n": len(lengths), "partly": partly, "same": same, "raw": raw}
        quantiles = [float(few), float(median), float(many)]
        yield finding("not_unit", severity, modality, **values, quantiles=quantiles, **_changed(context, modality))


def _changed(context: Context, modality: str) -> dict[str, int]:
    """Of some queries, how many have another nearest row by inner product than by cosine."""
    generator = np.random.default_rng(context.seed)
    unit, sample = context.unit(modality), context.sample(modality)
    index = generator.permutation(len(unit))[:INDEX]
    cosines = unit[index[:QUERIES]] @ unit[index].T
    np.fill_diagonal(cosines, -np.inf)
    products = cosines * context.lengths(modality)[sample[index]].astype(np.float32)
    changed = int((cosines.argmax(1) != products.argmax(1)).sum()) if len(index) > 1 else 0
    return {"changed": changed, "queries": len(cosines)}


ROWS = 20_000
LEAST = 10  # rows
FLAT = 1e-5  # of the median standard deviation of coordinates: float32 rounds unit rows to 1e-8, they have 1e-2 each
RANK = 0.95  # of the possible rank
ROUNDING = 2e-14  # variance; float32 products leave up to 5e-15 along a direction of unit rows, clean full ranks 1e-13
BY_DESIGN = 0.015  # of the coordinates: all-MiniLM-L6-v2 has 3 of 384 (0.8%) that never vary
ONE_DIRECTION = 0.99  # average cosine; untrained models have 0.65 to 0.75, CLIP 0.5 to 0.8


@add_check
def dead_dimensions(context: Context) -> Findings:
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
        low_rank, collapsed = rank < RANK * possible, average > ONE_DIRECTION
        if dead.any() or low_rank or collapsed:
            severity = "error" if collapsed else "warning" if dead.any() and not by_design else "note"
            values = {"dead": int(dead.sum()), "zero": zero, "by_design": by_design, "shared": shared, "d": d, "n": n}
            values |= {"rank": rank, "possible": possible, "low_rank": low_rank, "collapsed": collapsed}
            coordinates = np.flatnonzero(dead).tolist()
            values |= {"average_cosine": average, "coordinates": coordinates}
            yield finding("dead_dimensions", severity, modality, **values)


def _constant(context: Context, modality: str) -> tuple[np.ndarray, int, np.ndarray]:
    """Mask of the constant coordinates, the number of those that are zero, and the sampled rows at unit length."""
    sample = context.sample(modality)[:ROWS]
    raw = np.asarray(context.sets[modality].vectors[sample], dtype=np.float64)
    rows = raw / context.lengths(modality)[sample, None]
    if not len(raw):
        return np.zeros(raw.shape[1], dtype=bool), 0, rows
    spreads = [x.std(0) for x in (rows, raw)]
    return np.any([s <= FLAT * np.median(s) for s in spreads], axis=0), int((raw == 0).all(0).sum()), rows


FEW = 100  # the standard error of a share near one half is then 5 points


@add_check
def too_few_rows(context: Context) -> Findings:
    for modality, each in context.sets.items():
        n, d = int(context.valid(modality).sum()), each.dim
        if n < max(FEW, 2 * d):
            severity = "warning" if n < FEW else "note"
            values = {"n": n, "d": d, "error": 50 / max(1, n) ** 0.5, "few": n < FEW}
            yield finding("too_few_rows", severity, modality, **values)
