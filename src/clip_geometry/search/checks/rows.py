"""Checks of the rows of one set: no direction, not unit length, constant coordinates, low precision, too few rows."""

from typing import NamedTuple

import numpy as np

from clip_geometry.search.checks import Context, Findings, add_check, finding


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
    for modality, embeddings in context.sets.items():
        lengths = context.lengths(modality)[context.valid(modality)]
        off = np.abs(lengths - 1) > TOLERANCE
        if not off.any():
            continue
        low, median, high = np.quantile(lengths, [0.01, 0.5, 0.99])
        # lengths that vary are sometimes near 1 by chance, but no more often than near the neighboring values
        around = off & (np.abs(lengths - 1) < 3 * TOLERANCE)
        partly = bool((~off).sum() > max(TOLERANCE * len(lengths), 2 * around.sum()))
        same = bool(high - low < TOLERANCE * median)
        raw = "key" in embeddings.provenance  # a store of this package, which holds raw rows by design
        severity = "note" if raw or same else "warning"
        if partly:
            severity = "error"
        values = {"count": int(off.sum()), "n": len(lengths), "partly": partly, "same": same, "raw": raw}
        quantiles = [float(low), float(median), float(high)]
        yield finding(
            "not_unit", severity, modality, **values, quantiles=quantiles, **_changed_by_length(context, modality)
        )


def _changed_by_length(context: Context, modality: str) -> dict[str, int]:
    """Count the queries whose nearest row by inner product differs from their nearest row by cosine."""
    generator = np.random.default_rng(context.seed)
    unit = context.unit(modality)
    sample = context.sample(modality)
    index = generator.permutation(len(unit))[:INDEX]
    cosines = unit[index[:QUERIES]] @ unit[index].T
    np.fill_diagonal(cosines, -np.inf)
    products = cosines * context.lengths(modality)[sample[index]].astype(np.float32)
    changed = int((cosines.argmax(1) != products.argmax(1)).sum()) if len(index) > 1 else 0
    return {"changed": changed, "queries": len(cosines)}


ROWS = 20_000
LEAST = 10  # fewest rows for the check
FLAT = 1e-5  # relative to the median standard deviation of coordinates (1e-2); float32 rounds unit rows to 1e-8
RANK = 0.95  # relative to the largest possible rank
ROUNDING = 2e-14  # variance: float32 rounding leaves up to 5e-15 along a direction, clean full-rank rows have 1e-13
BY_DESIGN = 0.015  # share of the coordinates; in all-MiniLM-L6-v2, 3 of 384 (0.8%) never vary
ONE_DIRECTION = 0.99  # average cosine; untrained models have 0.65 to 0.75, CLIP 0.5 to 0.8


@add_check
def dead_dimensions(context: Context) -> Findings:
    constant = {modality: _constant(context, modality) for modality in context.sets}
    for modality, (dead, zero, rows) in constant.items():
        n, d = rows.shape
        if n < LEAST:
            context.skip("dead_dimensions", f"fewer than {LEAST} rows", modality)
            continue
        others = [mask for name, (mask, *_) in constant.items() if name != modality and len(mask) == d]
        shared = bool(others) and not any((dead & ~mask).any() for mask in others)
        by_design = shared or dead.mean() < BY_DESIGN
        mean = rows.mean(0)
        centered = rows[:, ~dead] - mean[~dead]
        variances = np.linalg.eigvalsh(centered.T @ centered / n) if centered.size else np.zeros(0)
        distinct = len(np.unique(context.first_equal(modality)[context.sample(modality)[:n]]))
        rank = int((variances > ROUNDING).sum())
        possible = min(distinct - 1, d - int(dead.sum()))
        average = float(mean @ mean)
        low_rank = rank < RANK * possible
        collapsed = average > ONE_DIRECTION
        if dead.any() or low_rank or collapsed:
            severity = "warning" if dead.any() and not by_design else "note"
            if collapsed:
                severity = "error"
            values = {"dead": int(dead.sum()), "zero": zero, "by_design": by_design, "shared": shared, "d": d, "n": n}
            values |= {"rank": rank, "possible": possible, "low_rank": low_rank, "collapsed": collapsed}
            values |= {"average_cosine": average, "coordinates": np.flatnonzero(dead).tolist()}
            yield finding("dead_dimensions", severity, modality, **values)


def _constant(context: Context, modality: str) -> tuple[np.ndarray, int, np.ndarray]:
    """Return the mask of constant coordinates, the number of all-zero ones, and the sampled rows at unit length."""
    sample = context.sample(modality)[:ROWS]
    raw = np.asarray(context.sets[modality].vectors[sample], dtype=np.float64)
    rows = raw / context.lengths(modality)[sample, None]
    if not len(raw):
        return np.zeros(raw.shape[1], dtype=bool), 0, rows
    spreads = [x.std(0) for x in (rows, raw)]
    constant = np.any([spread <= FLAT * np.median(spread) for spread in spreads], axis=0)
    return constant, int((raw == 0).all(0).sum()), rows


FEW = 100  # with 100 rows, a share near one half has a standard error of 5 percentage points


@add_check
def too_few_rows(context: Context) -> Findings:
    for modality, embeddings in context.sets.items():
        n = int(context.valid(modality).sum())
        d = embeddings.dim
        if n < max(FEW, 2 * d):
            severity = "warning" if n < FEW else "note"
            values = {"n": n, "d": d, "error": 50 / max(1, n) ** 0.5, "few": n < FEW}
            yield finding("too_few_rows", severity, modality, **values)


FEW_ROWS = 1000
BITS = {"bfloat16": 8, "float16": 11}  # bits of the mantissa, including the implicit leading one
OFF_GRID = 0.01  # in steps; scaling whole numbers up to 127 to unit length in float32 moves them by 1e-5
LEVELS = 128  # magnitudes of int8
STEPS = 255  # per column, as in FAISS's scalar quantizer SQ8
COARSE = 15  # steps per column; noise of one such step leaves no two ratios equal
RATIO_ROWS = 500
SAME = 3e-7  # relative difference between two ratios of float32 values that rounding explains


class RoundingGrid(NamedTuple):
    """The grid to which values were rounded.

    format: name of the number format, or "steps of 0.0001". exact: whether the values themselves lie on the grid,
    rather than multiples of them. step: (rows, d), distance from each value to the next grid point.
    """

    format: str
    exact: bool
    step: np.ndarray


@add_check
def low_precision(context: Context) -> Findings:
    for modality, embeddings in context.sets.items():
        numbers = context.sample(modality)[:FEW_ROWS]
        if len(numbers) < 2:
            context.skip("low_precision", "fewer than 2 rows", modality)
            continue
        stored = str(getattr(embeddings.vectors, "dtype", "")).removeprefix("torch.")
        rows = np.asarray(embeddings.vectors[numbers], dtype=np.float32)
        grid = grid_of(rows, context.seed)
        if grid is not None:
            changed, places, error = _effect_of_rounding(rows, grid, context.seed)
            severity = "note" if grid.format == "float16" else "warning"
            values = {"format": grid.format, "exact": grid.exact, "stored": stored, "n": len(rows)}
            values |= {"changed": changed, "places": places, "cosine_error": error}
            yield finding("low_precision", severity, modality, **values)


def grid_of(rows: np.ndarray, seed: int) -> RoundingGrid | None:
    """Return the coarse grid on which the values of float32 rows lie; None for full float32 precision."""
    if not (rows.view(np.uint32) & 0xFFFF).any():
        return RoundingGrid("bfloat16", True, _spacing(rows, 8))
    if np.abs(rows).max() < 65504 and np.array_equal(rows.astype(np.float16).astype(np.float32), rows):
        return RoundingGrid("float16", True, _spacing(rows, 11))
    return _uniform(rows) or _scaled(rows, seed) or _by_dimension(rows, seed)


def _spacing(rows: np.ndarray, bits: int) -> np.ndarray:
    return np.ldexp(np.float32(1), np.frexp(rows)[1] - bits)


def _uniform(rows: np.ndarray) -> RoundingGrid | None:
    """Detect whole multiples of a step: one step per row, or one for all rows."""
    steps = np.array([_least_gap(row) for row in rows])[:, None]
    counts = rows / steps
    largest = np.abs(counts).max()
    if largest < LEVELS and np.abs(counts - np.round(counts)).max() < OFF_GRID:
        return RoundingGrid("int8", bool(np.ptp(steps) < OFF_GRID * steps.mean()), np.broadcast_to(steps, rows.shape))
    step = _least_gap(rows)
    counts = rows / step
    if np.abs(counts).max() < 2**15 and np.abs(counts - np.round(counts)).max() < OFF_GRID:
        return RoundingGrid(f"steps of {step:.3g}", True, np.full_like(rows, step))
    return None


def _least_gap(values: np.ndarray) -> float:
    """Return the smallest difference of two values that float32 rounding does not explain; 1 for a single value."""
    distinct = np.unique(np.append(np.abs(values).ravel(), 0).astype(np.float64))
    gaps = np.diff(distinct)
    gaps = gaps[gaps > 1e-6 * distinct[-1]]
    return float(gaps.min()) if len(gaps) else 1.0


def _scaled(rows: np.ndarray, seed: int) -> RoundingGrid | None:
    """Detect a float format whose rows were scaled afterwards: equal values stay equal, and there are too many."""
    repeats = _repeats(rows)
    if repeats < len(rows) / 2:
        return None
    generator = np.random.default_rng(seed)
    for name, bits in BITS.items():
        # simulate unrounded values, and round them again
        smooth = rows.astype(np.float64) * 2 ** generator.uniform(0, 1, (len(rows), 1))
        smooth *= 1 + generator.uniform(-1, 1, rows.shape) * 2.0**-bits
        spacing = _spacing(smooth.astype(np.float32), bits)
        expected = _repeats((np.round(smooth / spacing) * spacing).astype(np.float32))
        if expected / 2 <= repeats <= 2 * expected:
            return RoundingGrid(name, False, _spacing(rows, bits))
    return None


def _repeats(rows: np.ndarray) -> int:
    """Count the nonzero values that equal another value of the same row up to the sign, over all rows.

    Scaling maps equal values in different rows to values up to two float32 units apart, but never separates equal
    values within one row.
    """
    values = np.sort(np.abs(rows), axis=1)
    return int(((np.diff(values, axis=1) == 0) & (values[:, 1:] > 0)).sum())


def _by_dimension(rows: np.ndarray, seed: int) -> RoundingGrid | None:
    """Detect columns that were each rounded with a step of its own, whether or not the rows were scaled afterwards.

    Two rows have the same code in some columns. In all of these columns their ratio is the same: the ratio of their
    scales.
    """
    sample = rows[:RATIO_ROWS]
    generator = np.random.default_rng(seed)
    low = sample.min(0)
    span = np.ptp(sample, axis=0)
    varying = span > 0
    if varying.sum() < 2:
        return None

    def smooth(steps: int) -> np.ndarray:
        return sample + generator.uniform(-0.5, 0.5, sample.shape) * span / steps

    def ratios(values: np.ndarray) -> int:
        return _equal_ratios(values[:, varying].astype(np.float32))

    repeats = ratios(sample)
    if repeats < max(20 * ratios(smooth(COARSE)), len(sample) / 50, 5):
        return None
    gaps = np.diff(np.sort(sample[:, varying], axis=0), axis=0)
    gaps[gaps <= 1e-6 * span[varying]] = np.inf
    # unless the rows were scaled afterwards, values of a column repeat and are whole steps apart
    counts = np.median(span[varying] / gaps.min(0))
    exact = bool(counts < STEPS + 1)
    step = span / STEPS
    if not exact:
        rounded = low + np.round((smooth(STEPS) - low) / np.where(varying, step, 1)) * step
        if not repeats / 3 <= max(ratios(rounded), 1) <= 3 * repeats:
            return None
    return RoundingGrid("int8 by dimension", exact, np.broadcast_to(step, rows.shape))


def _equal_ratios(rows: np.ndarray) -> int:
    """Count the columns, over all rows, in which the ratio of a row to the next one equals the ratio in another column.

    Copies and near copies are excluded, since their ratio is near 1 everywhere.
    """
    distances = np.linalg.norm(np.diff(rows, axis=0), axis=1)
    apart = distances > 0.2 * np.median(distances)
    with np.errstate(all="ignore"):
        ratios = np.sort(rows[1:][apart].astype(np.float64) / rows[:-1][apart], axis=1)
        near = np.diff(ratios, axis=1) < SAME * np.abs(ratios[:, 1:])
    return int((near & (ratios[:, 1:] > 0)).sum())


def _effect_of_rounding(rows: np.ndarray, grid: RoundingGrid, seed: int) -> tuple[int, int, float]:
    """Return how many entries of top-ten lists rounding changes, the number of entries, and the error of a cosine."""
    noise = np.random.default_rng(seed).uniform(-0.5, 0.5, rows.shape) * grid.step
    cosines = []
    for x in (rows, rows + noise):
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        table = unit @ unit.T
        np.fill_diagonal(table, -2)
        cosines.append(table)
    k = min(10, len(rows) - 1)
    tops = [np.argpartition(-table, k - 1, axis=1)[:, :k] for table in cosines]
    unchanged = sum(len(np.intersect1d(one, other)) for one, other in zip(*tops, strict=True))
    off_diagonal = ~np.eye(len(rows), dtype=bool)
    # the given rows and the noise carry one rounding error each
    return k * len(rows) - unchanged, k * len(rows), float(np.std((cosines[1] - cosines[0])[off_diagonal]))
