"""Checks of whether pairs belong together: ranks of the partners, shifted rows, and the share of random pairs.

The percentile of a pair is the share of other rows that are at least as near as the partner, by the cosine of centered
unit rows, in each direction. Pairs of a trained model have percentiles near 0. The percentiles of random pairs are
uniform in any model.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.search.checks import ROWS, Context, Findings, add_check, finding, once, selected
from clip_geometry.search.checks.modalities import foreign_numbers, gaussian, shared_space, usual_rows

LEAST = 20  # fewer pairs prove nothing
QUERIES = 2000
CANDIDATES = 5000
AT_CHANCE = 0.25  # percentile above which the partner of a row is looked for elsewhere
CHANCE = 4.0  # standard deviations among random pairings: p = 0.00003
SURE = 6.0  # standard deviations beyond the largest of n normal values
DRIFT = 0.5
DECAY = 0.448  # θ > 0 with E[exp(θ (log p − log q − DRIFT))] = exp(−DRIFT θ)/(1 − θ²) = 1 for uniform p and q
P_VALUE = 1e-4
SEGMENTS = 8  # largest number of segments
MARGIN = 1.0  # log p − log q is 3 to 6 for a misplaced row
TAILS = (0.5, 0.6, 0.7, 0.8, 0.9)
FLAT = 1.64  # standard deviations: a flat tail is rejected with p = 0.05
LIKELIHOOD = 20.0  # log likelihood ratio in favor of random pairs over a weak model
CLEAN = 0.001  # share of clean pairs with the partner in the farther half: 0 of 500 COCO pairs, 0 of 4,096 scenes
CLEAN_P_VALUE = 1e-3  # p-value of the number of pairs in the farther half if all pairs are clean
MANY = 0.2  # share of the pairs; a clean data set does not have this many
FEW = 0.05  # share of the pairs; below it, a few hard items of a weak model look the same


@add_check
def unrelated_spaces(context: Context) -> Findings:
    for one, other, matched in _matchings(context, "unrelated_spaces"):
        if _unrelated(context, one, other, matched):
            overlapping = shared_space(context, one, other)
            n = len(matched.queries)
            values = {"count": min(int((matched.corrected > 0.5).sum()), n), "n": n, "z": matched.z}
            values |= {"overlap": overlapping.value, "overlap_z": overlapping.z}
            values["partners"] = partners(context, one, other)
            yield finding("unrelated_spaces", "warning", one, other, **values)


@add_check
def shifted_pairs(context: Context) -> Findings:
    for one, other, matched in _matchings(context, "shifted_pairs"):
        couple = (one, other)
        pairs = context.pairs(one, other) or ()
        segments = []
        for shift, side, first, last, better, z in matched.segments:
            rows, others = pairs[side], pairs[1 - side]
            offset = -shift if side else shift
            ends = [int(others[(k + offset) % matched.n]) for k in (first, last)]
            segment = {"modality": couple[side], "first": int(rows[first]), "last": int(rows[last])}
            segment |= {"partner": couple[1 - side], "partners": ends}
            segments.append(segment | {"shift": shift, "count": better, "z": z})
        if segments:
            start = segments[0]
            whole = start["first"] == 0 and start["last"] == len(context.sets[start["modality"]]) - 1
            largest = max(segments, key=lambda segment: segment["count"])
            values = {name: largest[name] for name in ("shift", "first", "last")}
            values |= {
                "count": sum(segment["count"] for segment in segments),
                "n": len(matched.queries),
                "pairs": matched.n,
            }
            values |= {"segments": segments, "whole": whole, "z_given": matched.z}
            yield finding("shifted_pairs", "error", one, other, **values)


@add_check
def shuffled_pairs(context: Context) -> Findings:
    from scipy.special import bdtrc  # imported here because it takes 0.2 seconds, and `measure` does not need it

    for one, other, matched in _matchings(context, "shuffled_pairs"):
        n = len(matched.queries)
        far = int((matched.corrected > 0.5).sum() / 2)
        p_value = float(bdtrc(far - 1, n, CLEAN)) if far else 1.0
        if p_value >= CLEAN_P_VALUE or _unrelated(context, one, other, matched):
            continue
        tail = random_share(matched.corrected, 1 / matched.candidates)
        random = matched.at_chance
        upper = tail.share + 2 * tail.error
        reported = random or (tail.gain > LIKELIHOOD and upper > FEW)
        severity = "error" if tail.share > MANY else "warning"
        if not reported:
            severity = "note"
        values = {**tail._asdict(), "most": min(1.0, upper), "named": reported, "far": far, "n": n, "pairs": matched.n}
        values |= {"p_value": max(p_value, 1e-300), "z": matched.z, "random": random, "shifted": bool(matched.segments)}
        values["partners"] = partners(context, one, other) if random else None
        yield finding("shuffled_pairs", severity, one, other, **values)


class Segment(NamedTuple):
    """A run of rows, `first` to `last`, of one modality whose partners are off by `shift` rows.

    side: the modality of these rows, 0 for the first and 1 for the second. Row i of the first modality belongs to row i
    + shift of the second, cyclically. better: number of queries among these rows that match better after the shift than
    as given. z: Σ⟨a, b⟩ after the shift over the pairs that match at chance as given, in standard deviations.
    """

    shift: int
    side: int
    first: int
    last: int
    better: int
    z: float


class Matching(NamedTuple):
    """How well the n pairs of two modalities match.

    queries: (q,) positions of the pairs whose percentiles are known. percentiles: (q, 2), for the pairs as given. z:
    Σ⟨a, b⟩ over the pairs, in standard deviations among all ways to pair the rows. segments: runs of shifted rows.
    corrected: percentiles after the shifts are undone. candidates: number of rows that a percentile is computed among.
    """

    n: int
    queries: np.ndarray
    percentiles: np.ndarray
    z: float
    segments: tuple[Segment, ...]
    corrected: np.ndarray
    candidates: int

    @property
    def at_chance(self) -> bool:
        """Whether all pairs together match no better than random ones."""
        return self.z < CHANCE and not self.segments


@once
def matching(context: Context, one: str, other: str) -> Matching | None:
    """Match the pairs of two modalities, without rows from another space; return None if there are too few pairs."""
    pairs = context.pairs(one, other) or (np.empty(0, dtype=np.int64),) * 2
    numbers = {one: pairs[0][:ROWS], other: pairs[1][:ROWS]}
    usable = distinct = np.ones(len(numbers[one]), dtype=bool)
    for modality, rows in numbers.items():
        usable = usable & context.valid(modality)[rows] & ~np.isin(rows, foreign_numbers(context, modality))
        distinct = distinct & (context.first_equal(modality)[rows] == rows)
    a, b = (context.unit_rows(modality, rows) for modality, rows in numbers.items())
    return match(a, b, usable, distinct, context.seed)


def _matchings(context: Context, check: str) -> Iterator[tuple[str, str, Matching]]:
    """Yield each couple with its matching, and record couples that have too few pairs as skipped by the check."""
    if not context.couples:
        context.skip(check, "no rows of two modalities pair")
    for one, other in context.couples:
        matched = matching(context, one, other)
        if matched is None:
            context.skip(check, f"fewer than {LEAST} distinct pairs", one, other)
        else:
            yield one, other, matched


def _unrelated(context: Context, one: str, other: str, matched: Matching) -> bool:
    """Return whether the pairs match at chance and no other order of the rows would give them partners.

    For trained models, the cosine with the nearest row of the other modality exceeds that of noise by 2.8 to 5.7
    deviations; for untrained and weak models (recall below 2%), by at most 0.3.
    """
    if not matched.at_chance:
        return False
    near = partners(context, one, other)
    return near["cosine"] <= near["noise"] + near["deviation"]


@once
def partners(context: Context, one: str, other: str) -> dict[str, float]:
    """Measure how near the nearest rows of the other modality are, regardless of the order of the rows.

    Returns:
        cosine, the mean cosine of n sampled rows with their nearest row of the other modality, both centered; noise and
        deviation, its mean and standard deviation for independent Gaussian rows of equal means and covariances; and n.
    """
    rows = [usual_rows(context, modality) for modality in (one, other)]
    queries = context.queries(len(rows[0]), len(rows[1]))
    nearest_cosines = _nearest_cosines(rows[0], rows[1], queries)
    generator = torch.Generator().manual_seed(context.seed)
    drawn = [gaussian(context, name).draw(len(x), generator) for name, x in zip((one, other), rows, strict=True)]
    noise = _nearest_cosines(drawn[0], drawn[1], queries)
    statistics = {"cosine": nearest_cosines.mean(), "noise": noise.mean(), "deviation": noise.std()}
    return {name: float(value) for name, value in statistics.items()} | {"n": len(queries)}


def _nearest_cosines(a: np.ndarray, b: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Return the cosines of selected rows of a with their nearest row of b, both centered."""
    means = [torch.from_numpy(x.mean(0)) for x in (a, b)]

    def unit(rows: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        rows = rows - mean
        return rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)

    y = StreamedRows.of(b).map(lambda block, _: unit(block, means[1]), b.shape[1], dtype=torch.float32)
    return 1 - nearest(unit(torch.from_numpy(a[queries]), means[0]), 1, y=y)[0][:, 0].numpy() ** 2 / 2


class _CenteredPairs:
    """Aligned unit rows, centered in place. Unusable rows become zero: they keep their positions and match nothing."""

    def __init__(self, a: np.ndarray, b: np.ndarray, usable: np.ndarray, candidates: np.ndarray):
        for x in (a, b):
            x -= selected(x, usable).mean(0)
            x[~usable] = 0
        self.a, self.b = a, b
        self.usable, self.candidates, self.n = usable, candidates, len(a)
        gram = (self.a.T @ self.a).astype(np.float64) * (self.b.T @ self.b)
        self.deviation = math.sqrt(max(gram.sum(), 0.0)) / self.n  # of the product of two random rows

    def percentiles(self, rows: np.ndarray, partners: np.ndarray) -> np.ndarray:
        """Return the share of candidates that are at least as near as the partner, (q, 2), in each direction."""
        partner_cosines = np.einsum("nd,nd->n", self.a[rows], self.b[partners])[:, None]
        percentiles = np.empty((len(rows), 2))
        directions = (self.a[rows], self.b, partners), (self.b[partners], self.a, rows)
        for k, (left, right, excluded) in enumerate(directions):
            ahead = (left @ right[self.candidates].T >= partner_cosines) & (self.candidates[None] != excluded[:, None])
            percentiles[:, k] = ahead.sum(1) / max(1, len(self.candidates) - 1)
        return percentiles


def match(a: np.ndarray, b: np.ndarray, usable: np.ndarray, distinct: np.ndarray, seed: int) -> Matching | None:
    """Compute the percentiles of pairs of aligned unit rows, and find shifts; None for fewer than LEAST distinct pairs.

    a, b: float32 rows, modified in place. Copies of earlier rows are neither queries nor candidates, because a batch
    that was written twice looks like a shift.
    """
    generator = np.random.default_rng(seed)
    numbers = np.flatnonzero(usable & distinct)
    if len(numbers) < LEAST:
        return None
    queries, candidates = (
        np.sort(generator.choice(numbers, min(len(numbers), limit), replace=False)) for limit in (QUERIES, CANDIDATES)
    )
    pairs = _CenteredPairs(a, b, usable, candidates)
    given = pairs.percentiles(queries, queries)
    corrected = given
    segments = []
    while len(segments) < SEGMENTS:
        shifted = _segment(pairs, queries, corrected)
        if shifted is None:
            break
        segment, corrected = shifted
        segments.append(segment)
    z = np.einsum("nd,nd->", pairs.a, pairs.b, dtype=np.float64) / (pairs.deviation * math.sqrt(len(a)) or 1.0)
    return Matching(len(a), queries, given, float(z), tuple(segments), corrected, len(candidates))


def _segment(pairs: _CenteredPairs, queries: np.ndarray, percentiles: np.ndarray) -> tuple[Segment, np.ndarray] | None:
    """Find the run of rows that matches best after one shift; None if no run does.

    Returns the segment, and the percentiles of the pairs after its shift is undone. Each row has the score log p − log
    q − DRIFT, where p is its percentile as given and q its percentile after the shift; the segment is the run of rows
    with the largest sum. For random pairs, p and q are uniform and independent, and the largest sum exceeds s with
    probability below n exp(−DECAY s) (Karlin and Altschul 1990); the shift is one of n.
    """
    given = percentiles.mean(1)
    unmatched = given > AT_CHANCE
    if unmatched.sum() < LEAST // 4 or not pairs.deviation:
        return None
    n = pairs.n
    least = 1 / len(pairs.candidates)
    shift, z = _shift(pairs, queries[unmatched])
    if not shift:
        return None

    def after(rows: np.ndarray, side: int) -> np.ndarray:
        if side == 0:
            return pairs.percentiles(rows, (rows + shift) % n)
        return pairs.percentiles((rows - shift) % n, rows)

    def run(rows: np.ndarray, side: int) -> tuple[int, int, float]:
        place = np.searchsorted(queries, rows).clip(max=len(queries) - 1)
        before = given[place]
        unsampled = queries[place] != rows
        before[unsampled] = pairs.percentiles(rows[unsampled], rows[unsampled]).mean(1)
        return _largest_run(np.log(before + least) - np.log(after(rows, side).mean(1) + least) - DRIFT)

    totals = [run(queries, side)[2] for side in (0, 1)]
    side = 0 if totals[0] > totals[1] + MARGIN else 1  # the run is one row longer in the modality that is shifted
    if totals[side] < (2 * math.log(n) - math.log(P_VALUE)) / DECAY:
        return None
    ends = [queries[k] for k in run(queries, side)[:2]]
    # every row near both ends, including copies and rows that were not sampled
    gap = 1 + int(np.diff(queries).max())
    near = [row for end in ends for row in range(max(0, end - gap), min(n, end + gap + 1)) if pairs.usable[row]]
    rows = np.union1d(queries, near)
    first, last = (int(rows[k]) for k in run(rows, side)[:2])
    inside = (queries >= first) & (queries <= last)
    corrected = percentiles.copy()
    corrected[inside] = after(queries[inside], side)
    better = int((corrected.mean(1) < given)[inside].sum())
    return Segment(shift, side, first, last, better, z), corrected


def _largest_run(values: np.ndarray) -> tuple[int, int, float]:
    """Return the first and last index of the run with the largest sum, and the sum."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    gains = sums[1:] - np.minimum.accumulate(sums)[:-1]
    last = int(gains.argmax())
    return int(sums[: last + 1].argmin()), last, float(gains[last])


def _shift(pairs: _CenteredPairs, rows: np.ndarray) -> tuple[int, float]:
    """Return the shift s after which the given rows a_i match b_{i+s} best, and its score; shift 0 if none is
    significant.

    All shifts are scored by one cross-correlation. The largest of n random sums is near √(2 ln n) standard deviations.
    """
    from scipy.fft import irfft, next_fast_len, rfft

    a, b, n = pairs.a, pairs.b, pairs.n
    size: Any = next_fast_len(2 * n, real=True)  # no wrap-around; shifts s and s − n are added below
    spectrum = np.zeros(size // 2 + 1, dtype=np.complex128)
    chosen = np.zeros(n, dtype=bool)
    chosen[rows] = True
    for column in range(a.shape[1]):
        left: Any = rfft(np.where(chosen, a[:, column], 0).astype(np.float64), size)
        spectrum += np.conj(left) * rfft(b[:, column].astype(np.float64), size)
    sums: Any = irfft(spectrum, size)
    cyclic = sums[:n].copy()
    cyclic[1:] += sums[size - n + 1 :]
    cyclic[0] = -np.inf
    best = int(cyclic.argmax())
    z = float(cyclic[best] / (pairs.deviation * math.sqrt(len(rows))))
    shift = best if best <= n // 2 else best - n
    return (shift, z) if z > math.sqrt(2 * math.log(n)) + SURE else (0, z)


class RandomShare(NamedTuple):
    """Estimated share of random pairs.

    start: percentile from which the tail is flat. beyond: number of queries beyond it, averaged over both directions.
    share: share of random pairs, beyond/(1 − start)/n; this is an upper bound, since pairs that belong together can
    also rank low. error: standard error of the share. gain: log likelihood of the percentiles with random pairs, minus
    that of a weak model without them. Above `LIKELIHOOD`, the random pairs are distinct from the others rather than the
    tail of a weak model.
    """

    start: float
    beyond: float
    share: float
    error: float
    gain: float


def random_share(percentiles: np.ndarray, least: float) -> RandomShare:
    """Estimate the share of random pairs.

    Percentiles of random pairs are uniform in any model, so the density in the flat tail of all percentiles is the
    share of random pairs (Storey's π₀). A falling tail is that of a weak model. Since a short tail can be flat by
    chance, random pairs must also explain all percentiles better than a weak model does. On the probit scale, the
    percentiles of a weak model are normal with a mean below 0 and a deviation of at most 1 (scores with Gaussian
    noise); random pairs add a standard normal component.

    Args:
        percentiles: (q, 2), in both directions.
        least: Smallest step between percentiles.
    """
    from scipy.special import ndtri

    values = percentiles.ravel()
    n = len(percentiles)
    # both directions of a pair are nearly equal, so there are n independent values, not 2 n
    start = next((start for start in TAILS if _fall(values, start) < FLAT), TAILS[-1])
    beyond = float((values > start).sum() / 2)
    share = min(1.0, beyond / (1 - start) / n)
    error = math.sqrt(max(beyond, 1.0) * (1 - beyond / n)) / (1 - start) / n
    scores = ndtri(np.clip(values + least / 2, least / 2, 1 - least / 2))
    gain = (_log_likelihood(scores, mixed=True) - _log_likelihood(scores, mixed=False)) / 2
    return RandomShare(start, beyond, share, error, gain)


def _fall(values: np.ndarray, start: float) -> float:
    """Return by how many standard deviations the mean of the values beyond `start` is below the middle of the tail."""
    tail = values[values > start]
    return (0.5 - (tail.mean() - start) / (1 - start)) * math.sqrt(12 * len(tail) / 2) if len(tail) else 0.0


def _log_likelihood(scores: np.ndarray, mixed: bool) -> float:
    """Maximize the log likelihood of a normal component with mean ≤ 0 and deviation ≤ 1, by the EM algorithm.

    With `mixed`, the scores are a mixture of that component and a standard normal one.
    """
    share = 0.5 if mixed else 0.0
    low_half = scores <= np.median(scores) if mixed else np.ones(len(scores), bool)
    mean = min(scores[low_half].mean(), 0.0)
    deviation = min(max(scores[low_half].std(), 0.1), 1.0)
    flat = np.exp(-(scores**2) / 2)
    total = -np.inf
    for _ in range(200):
        matched = np.exp(-(((scores - mean) / deviation) ** 2) / 2) / deviation
        density = share * flat + (1 - share) * matched
        before = total
        total = float(np.log(np.maximum(density, 1e-300)).sum())
        if total - before < 1e-4 * len(scores) ** 0.5:
            break
        weights = (1 - share) * matched / np.maximum(density, 1e-300)
        share = 1 - weights.mean() if mixed else 0.0
        mean = min(float(np.average(scores, weights=weights)), 0.0)
        deviation = float(np.sqrt(np.average((scores - mean) ** 2, weights=weights)))
        deviation = min(max(deviation, 0.1), 1.0)
    return total
