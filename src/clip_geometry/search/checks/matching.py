"""How well pairs match: where each row's partner ranks among all others, which rows are shifted, how many are random.

The percentile of a pair is the share of other rows that are at least as near, by the cosine of centered unit rows, in
each direction. Pairs of a trained model have percentiles near 0; those of random pairs are uniform, whatever the model.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

LEAST = 20  # fewer pairs prove nothing
QUERIES = 2000
CANDIDATES = 5000
AT_CHANCE = 0.25  # percentile beyond which a pair is looked for elsewhere
CHANCE = 4.0  # standard deviations among random pairings: p = 0.00003
SURE = 6.0  # standard deviations beyond the largest of n normal values
DRIFT = 0.5
DECAY = 0.448  # θ > 0 with E[exp(θ (log p − log q − DRIFT))] = exp(−DRIFT θ)/(1 − θ²) = 1 for uniform p and q
P_VALUE = 1e-4
SEGMENTS = 8  # at most
MARGIN = 1.0  # of a row that is out of place, log p − log q is 3 to 6
TAILS = (0.5, 0.6, 0.7, 0.8, 0.9)
FLAT = 1.64  # standard deviations: a flat tail is rejected with p = 0.05
LIKELIHOOD = 20.0  # log ratio by which random pairs have to explain the ranks better than a weak model


class Segment(NamedTuple):
    """Rows `first` to `last` of one modality, 0 for the first and 1 for the second, that are out of place.

    Row i of the first modality belongs with row i + shift of the second, cyclically. better: queries among these rows
    that match better there than as given. z: Σ⟨a, b⟩ of the pairs at chance after the shift, in standard deviations.
    """

    shift: int
    side: int
    first: int
    last: int
    better: int
    z: float


class Matching(NamedTuple):
    """queries: (q,) positions among the n pairs whose percentiles are known. percentiles: (q, 2), with the pairs as
    given. z: Σ⟨a, b⟩ of the pairs in standard deviations among all ways to pair the rows. segments: rows that are
    shifted. corrected: percentiles after the shifts are undone. candidates: rows that a percentile counts among.
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


def chosen(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The rows of a mask; no copy where these are all."""
    return rows if mask.all() else rows[mask]


class _CenteredPairs:
    """Aligned unit rows, which are centered in their place. Rows that are not usable become zero: they keep their
    places and match nothing."""

    def __init__(self, a: np.ndarray, b: np.ndarray, usable: np.ndarray, among: np.ndarray):
        for x in (a, b):
            x -= chosen(x, usable).mean(0)
            x[~usable] = 0
        self.a, self.b = a, b
        self.usable, self.among, self.n = usable, among, len(a)
        gram = (self.a.T @ self.a).astype(np.float64) * (self.b.T @ self.b)
        self.deviation = math.sqrt(max(gram.sum(), 0.0)) / self.n  # of one product of random rows

    def percentiles(self, rows: np.ndarray, partners: np.ndarray) -> np.ndarray:
        own = np.einsum("nd,nd->n", self.a[rows], self.b[partners])[:, None]
        found = np.empty((len(rows), 2))
        for k, (left, right, excluded) in enumerate(
            ((self.a[rows], self.b, partners), (self.b[partners], self.a, rows))
        ):
            ahead = (left @ right[self.among].T >= own) & (self.among[None] != excluded[:, None])
            found[:, k] = ahead.sum(1) / max(1, len(self.among) - 1)
        return found


def match(a: np.ndarray, b: np.ndarray, usable: np.ndarray, distinct: np.ndarray, seed: int) -> Matching | None:
    """The percentiles of pairs of aligned unit rows, and their shifts. None for fewer than LEAST distinct pairs.

    a, b: in float32; they are changed.
    Copies of earlier rows are neither queries nor counted: a batch that was written twice looks like a shift.
    """
    generator = np.random.default_rng(seed)
    numbers = np.flatnonzero(usable & distinct)
    if len(numbers) < LEAST:
        return None
    queries, among = (
        np.sort(generator.choice(numbers, min(len(numbers), most), replace=False)) for most in (QUERIES, CANDIDATES)
    )
    pairs = _CenteredPairs(a, b, usable, among)
    given = pairs.percentiles(queries, queries)
    corrected, segments = given, []
    while len(segments) < SEGMENTS and (found := _segment(pairs, queries, corrected)) is not None:
        segment, corrected = found
        segments.append(segment)
    z = np.einsum("nd,nd->", pairs.a, pairs.b, dtype=np.float64) / (pairs.deviation * math.sqrt(len(a)) or 1.0)
    return Matching(len(a), queries, given, float(z), tuple(segments), corrected, len(among))


def _segment(pairs: _CenteredPairs, queries: np.ndarray, percentiles: np.ndarray) -> tuple[Segment, np.ndarray] | None:
    """The rows that match best after one shift, and the percentiles with them put right; None where nothing is shifted.

    Each row has the score log p − log q − DRIFT, with p its percentile as given and q that after the shift; the segment
    is the run of rows with the largest sum. For random pairs, p and q are uniform and independent, and the largest sum
    exceeds s with probability below n exp(−DECAY s) (Karlin and Altschul 1990); the shift is one of n.
    """
    given = percentiles.mean(1)
    astray = given > AT_CHANCE
    if astray.sum() < LEAST // 4 or not pairs.deviation:
        return None
    n, least = pairs.n, 1 / len(pairs.among)
    shift, z = _shift(pairs, queries[astray])
    if not shift:
        return None

    def after(rows: np.ndarray, side: int) -> np.ndarray:
        return pairs.percentiles(*((rows, (rows + shift) % n) if side == 0 else ((rows - shift) % n, rows)))

    def run(rows: np.ndarray, side: int) -> tuple[int, int, float]:
        place = np.searchsorted(queries, rows).clip(max=len(queries) - 1)
        before, unknown = given[place], queries[place] != rows
        before[unknown] = pairs.percentiles(rows[unknown], rows[unknown]).mean(1)
        return _largest_run(np.log(before + least) - np.log(after(rows, side).mean(1) + least) - DRIFT)

    side, total = 1, run(queries, 1)[2]
    if (other := run(queries, 0)[2]) > total + MARGIN:  # the shifted modality has one row more that is out of place
        side, total = 0, other
    if total < (2 * math.log(n) - math.log(P_VALUE)) / DECAY:
        return None
    ends = [queries[k] for k in run(queries, side)[:2]]
    # every row near both ends, copies and rows that were not sampled among them
    gap = 1 + int(np.diff(queries).max())
    near = [row for end in ends for row in range(max(0, end - gap), min(n, end + gap + 1)) if pairs.usable[row]]
    rows = np.union1d(queries, near)
    first, last = (int(rows[k]) for k in run(rows, side)[:2])
    inside = (queries >= first) & (queries <= last)
    put_right = percentiles.copy()
    put_right[inside] = after(queries[inside], side)
    better = int((put_right.mean(1) < given)[inside].sum())
    return Segment(shift, side, first, last, better, z), put_right


def _largest_run(values: np.ndarray) -> tuple[int, int, float]:
    """First and last index of the run with the largest sum, and the sum."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    gains = sums[1:] - np.minimum.accumulate(sums)[:-1]
    last = int(gains.argmax())
    return int(sums[: last + 1].argmin()), last, float(gains[last])


def _shift(pairs: _CenteredPairs, rows: np.ndarray) -> tuple[int, float]:
    """The shift at which these rows of a match b best, and its score, by one cross-correlation; 0 for none.

    Of n random sums the largest is near √(2 ln n) standard deviations.
    """
    a, b, n = pairs.a, pairs.b, pairs.n
    size: Any = next_fast_len(2 * n, real=True)  # not cyclic in itself: shifts s and s − n are added below
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
    """start: percentile from which on the tail is flat. beyond: queries beyond it, on average of both directions.

    share: of random pairs, beyond/(1 − start)/n; at most this, since pairs that belong together can rank as low. error:
    its standard error. gain: log likelihood of the percentiles with random pairs, less that of a weak model without.
    """

    start: float
    beyond: float
    share: float
    error: float
    gain: float

    @property
    def separate(self) -> bool:
        """Whether the random pairs are apart from the others, rather than the tail of a weak model."""
        return self.gain > LIKELIHOOD


def random_share(percentiles: np.ndarray, least: float) -> RandomShare:
    """Estimate the share of random pairs.

    Percentiles of random pairs are uniform, whatever the model, so that their density in the flat tail of all is their
    share (Storey's π₀). A tail that falls is that of a weak model. A short tail is flat by chance; random pairs have to
    explain all percentiles better: a weak model's are normal on the probit scale, with a mean below 0 and a deviation
    of at most 1 (scores with Gaussian noise); random pairs add a standard normal part.

    Args:
        percentiles: (q, 2), in both directions.
        least: The smallest step of a percentile.
    """
    values = percentiles.ravel()
    n = len(percentiles)
    # both directions of a pair are nearly equal: n pairs, not 2 n values
    start = next((start for start in TAILS if _fall(values, start) < FLAT), TAILS[-1])
    beyond = float((values > start).sum() / 2)
    share = min(1.0, beyond / (1 - start) / n)
    error = math.sqrt(max(beyond, 1.0) * (1 - beyond / n)) / (1 - start) / n
    scores = ndtri(np.clip(values + least / 2, least / 2, 1 - least / 2))
    gain = (_log_likelihood(scores, mixed=True) - _log_likelihood(scores, mixed=False)) / 2
    return RandomShare(start, beyond, share, error, gain)


def _fall(values: np.ndarray, start: float) -> float:
    """By how many standard deviations the values beyond `start` lie below the middle of the tail, on average."""
    tail = values[values > start]
    return (0.5 - (tail.mean() - start) / (1 - start)) * math.sqrt(12 * len(tail) / 2) if len(tail) else 0.0


def _log_likelihood(scores: np.ndarray, mixed: bool) -> float:
    """The largest log likelihood of a normal part with mean at most 0 and deviation at most 1, by the EM algorithm;
    mixed: beside a standard normal one."""
    share = 0.5 if mixed else 0.0
    own = scores <= np.median(scores) if mixed else np.ones(len(scores), bool)
    mean, deviation = min(scores[own].mean(), 0.0), min(max(scores[own].std(), 0.1), 1.0)
    flat = np.exp(-(scores**2) / 2)
    total = -np.inf
    for _ in range(200):
        matched = np.exp(-(((scores - mean) / deviation) ** 2) / 2) / deviation
        density = share * flat + (1 - share) * matched
        before, total = total, float(np.log(np.maximum(density, 1e-300)).sum())
        if total - before < 1e-4 * len(scores) ** 0.5:
            break
        weights = (1 - share) * matched / np.maximum(density, 1e-300)
        share = 1 - weights.mean() if mixed else 0.0
        mean = min(float(np.average(scores, weights=weights)), 0.0)
        deviation = float(np.sqrt(np.average((scores - mean) ** 2, weights=weights)))
        deviation = min(max(deviation, 0.1), 1.0)
    return total
