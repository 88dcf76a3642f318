"""Rows of one modality that are stored among the rows of another."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import BLOCK, Context
from clip_geometry.diagnosis.finding import Finding, finding

LEAST = 50  # rows of each modality
FIT = 5000  # rows of each modality that the direction is fitted on
AWAY = 6.0  # standard deviations from the own modality; of clean rows, one in thousands is
AMONG = 4.0  # of the other modality
MOST = 0.1  # of the rows: more are another fault


@add_check
def misplaced_rows(context: Context) -> Iterator[Finding]:
    if len(context.sets) < 2:
        context.skip("misplaced_rows", "one modality only")
    for one, other in combinations(context.sets, 2):
        if context.sets[one].dim != context.sets[other].dim:
            context.skip("misplaced_rows", "of different dimensions", one, other)
            continue
        numbers = [context.sample(name)[context.own(name)] for name in (one, other)]
        if min(map(len, numbers)) < LEAST:
            context.skip("misplaced_rows", f"fewer than {LEAST} rows of both", one, other)
            continue
        rows = [context.own_rows(name) for name in (one, other)]
        scores = _scores(rows, [np.zeros(len(x), dtype=bool) for x in rows], context.seed)
        # again without the rows that are out of place: they turn the direction
        scores = _scores(rows, [scores[0] < 0, scores[1] > 0], context.seed)
        astray = [scores[0] < 0, scores[1] > 0]
        middles, spreads = zip(*map(_middle_and_spread, scores), strict=True)
        if middles[0] - middles[1] < AWAY * max(spreads):
            context.skip("misplaced_rows", "no gap between the modalities", one, other)
            continue
        for side, (name, beside) in enumerate(((one, other), (other, one))):
            away, among = (np.abs(scores[side] - middles[k]) / spreads[k] for k in (side, 1 - side))
            found = np.flatnonzero(astray[side] & (away > AWAY) & (among < AMONG))
            if 0 < len(found) <= MOST * len(numbers[side]):
                yield finding(
                    "misplaced_rows",
                    "error",
                    name,
                    beside,
                    count=len(found),
                    n=len(numbers[side]),
                    away=float(away[found].min()),
                    among=float(among[found].max()),
                    usual=float(np.delete(away, found).max()),
                    rows=numbers[side][found].tolist(),
                )


def _scores(rows: list[np.ndarray], astray: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """Places of both modalities along the discriminant that was fitted on the other half of the rows, 0 in between."""
    generator = np.random.default_rng(seed)
    half = [generator.permutation(len(x)) % 2 == 0 for x in rows]
    scores = [np.empty(len(x)) for x in rows]
    for part in (True, False):
        numbers = [np.flatnonzero((h == part) & ~a)[:FIT] for h, a in zip(half, astray, strict=True)]
        fit = [x[each].astype(np.float64) for x, each in zip(rows, numbers, strict=True)]
        means = [x.mean(0) for x in fit]
        first, second = ((x - mean).T @ (x - mean) / len(x) for x, mean in zip(fit, means, strict=True))
        scatter = first + second
        scatter[np.diag_indices_from(scatter)] += np.trace(scatter) / len(scatter)
        direction = np.linalg.solve(scatter, means[0] - means[1])
        middle = (means[0] + means[1]) @ direction / 2
        for x, h, score in zip(rows, half, scores, strict=True):
            for start in range(0, len(x), BLOCK):
                block = slice(start, start + BLOCK)
                score[block] = np.where(h[block] != part, x[block] @ direction - middle, score[block])
    return scores


def _middle_and_spread(scores: np.ndarray) -> tuple[float, float]:
    """Median, and standard deviation by the median absolute deviation."""
    middle = float(np.median(scores))
    return middle, max(1.4826 * float(np.median(np.abs(scores - middle))), 1e-12)
