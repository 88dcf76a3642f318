"""How well pairs match: where each row's partner ranks among all others, and whether it is a fixed number of rows off.

The percentile of a pair is the share of other rows that are at least as near, by the cosine of centered unit rows, mean
of both directions. Pairs of a trained model have percentiles near 0; random pairs have 0.5 on average, half of them
more.
"""

import math
from typing import Any, NamedTuple

import numpy as np

LEAST = 20  # fewer pairs prove nothing
QUERIES = 2000
CANDIDATES = 5000
AT_CHANCE = 0.25  # percentile beyond which a pair is looked for elsewhere
MATCHED = 0.05  # percentile up to which it is found there
FOUND = 0.2  # of the pairs looked for, at least; 5% are by chance
SURE = 6.0  # standard deviations beyond the largest of n normal values


class Matching(NamedTuple):
    """queries: positions among the n pairs whose percentiles are known. percentiles: with the pairs as given.

    z: Σ⟨a, b⟩ of the pairs in standard deviations among all ways to pair the rows. shift: row i belongs with the
    partner of row i + shift, from `start` on; 0 for none. shifted: number of queries that match there and not as given;
    z_shift as z. corrected: percentiles after the shift is undone.
    """

    n: int
    queries: np.ndarray
    percentiles: np.ndarray
    z: float
    shift: int
    start: int
    shifted: int
    z_shift: float
    corrected: np.ndarray

    @property
    def at_chance(self) -> int:
        """Number of queries whose partner ranks in the farther half, the shift undone: half of all random pairs."""
        return int((self.corrected > 0.5).sum())


def match(a: np.ndarray, b: np.ndarray, usable: np.ndarray, seed: int) -> Matching | None:
    """The percentiles of the usable pairs of aligned unit rows, and their shift. None for fewer than LEAST pairs."""
    n = len(a)
    if usable.sum() < LEAST:
        return None
    # the others keep their places, so that a shift stays one, and match nothing
    a, b = (np.where(usable[:, None], x - x[usable].mean(0), np.float32(0)) for x in (a, b))
    deviation = math.sqrt(((a.T @ a).astype(np.float64) * (b.T @ b)).sum()) / n  # of one product
    generator = np.random.default_rng(seed)
    numbers = np.flatnonzero(usable)
    queries, among = (
        np.sort(generator.choice(numbers, min(len(numbers), most), replace=False)) for most in (QUERIES, CANDIDATES)
    )
    percentiles = _percentiles(a, b, queries, queries, among)
    z = float(np.einsum("nd,nd->", a, b, dtype=np.float64) / (deviation * math.sqrt(n))) if deviation else 0.0
    plain = Matching(n, queries, percentiles, z, 0, 0, 0, 0.0, percentiles)
    astray = percentiles > AT_CHANCE
    if astray.sum() < LEAST // 4 or not deviation:
        return plain
    shift, z_shift = _shift(a, b, queries[astray], deviation)
    if not shift:
        return plain
    there = _percentiles(a, b, queries, (queries + shift) % n, among)
    found = astray & (there <= MATCHED)
    if found.sum() < FOUND * astray.sum() or found.sum() < LEAST // 4:
        return plain
    # rows before `start` are as given: the split between the two that most queries agree with
    votes = np.where(found, -1, 0) + np.where(percentiles <= MATCHED, 1, 0)
    split = np.concatenate(([0], np.cumsum(votes))).argmax()
    start = int(queries[split]) if split else 0
    corrected = np.where(queries >= start, there, percentiles)
    shifted = int(((percentiles > MATCHED) & (there <= MATCHED)).sum())
    return Matching(n, queries, percentiles, z, shift, start, shifted, z_shift, corrected)


def _percentiles(a: np.ndarray, b: np.ndarray, rows: np.ndarray, partners: np.ndarray, among: np.ndarray) -> np.ndarray:
    own = np.einsum("nd,nd->n", a[rows], b[partners])[:, None]
    ranks = np.zeros(len(rows))
    for left, right, excluded in ((a[rows], b, partners), (b[partners], a, rows)):
        ahead = (left @ right[among].T >= own) & (among[None] != excluded[:, None])
        ranks += ahead.sum(1) / max(1, len(among) - 1) / 2
    return ranks


def _shift(a: np.ndarray, b: np.ndarray, rows: np.ndarray, deviation: float) -> tuple[int, float]:
    """The shift at which these rows of a match b best, and its score, by one cross-correlation; 0 for none.

    Of n random sums the largest is near √(2 ln n) standard deviations.
    """
    from scipy.fft import irfft, next_fast_len, rfft

    n = len(a)
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
    z = float(cyclic[best] / (deviation * math.sqrt(len(rows))))
    shift = best if best <= n // 2 else best - n
    return (shift, z) if z > math.sqrt(2 * math.log(n)) + SURE else (0, z)
