"""The rows of a baseline that are still in the index."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.spatial import KDTree

from clip_geometry.search.monitoring.profile import SKETCH, STEP, Observed, Profile

EDITED = 0.03  # distance of unit rows that rounding to float16 or bfloat16 does not explain
EDITED_COARSE = 0.12  # the same for int8
EQUAL = 0.003  # distance that the rounding of sketches explains
UNKNOWN = np.iinfo(np.uint64).max  # key of a row that the baseline does not know
FEW = 0.1  # share of rows found by their content, below which they are others or have all changed


@dataclass(frozen=True, eq=False)
class KnownRows:
    """The rows of a baseline that are still in the index.

    Attributes:
        rows: (m,) their present row numbers.
        stored: (m,) their positions in the profile.
        distance: (m,) estimated distance of each unit row from the earlier one.
        edited: (m,) whether rounding does not explain this distance.
        aligned: (m,) largest cosine of the change of an edited row with the mean of another set.
        moved: (m,) position in the profile of the row that an edited row is equal to; −1 for none.
        canaries: (c,) positions of canaries in the profile.
        canary_rows: (c,) their present row numbers.
    """

    rows: np.ndarray
    stored: np.ndarray
    distance: np.ndarray
    edited: np.ndarray
    aligned: np.ndarray
    moved: np.ndarray
    canaries: np.ndarray
    canary_rows: np.ndarray

    @property
    def share(self) -> float:
        """Share of the rows that are edited."""
        return float(self.edited.mean()) if len(self.rows) else 0.0


def _points(sketches: np.ndarray) -> np.ndarray:
    """Return the random part of sketches, scaled such that distances estimate those of the unit rows, (n, SKETCH)."""
    return sketches[:, :SKETCH].astype(np.float64) / (STEP * math.sqrt(SKETCH))


def keys_by_content(profile: Profile, seen: Observed) -> np.ndarray:
    """Return the keys of the rows of a set without ids: the positions that they had in the baseline, (n,).

    A row that is no longer at its position is looked for by its sketch. Rows that are not found keep their position,
    unless most of those that are found have moved: then positions identify nothing. Rows that the baseline does not
    know get the largest key.
    """
    before = _points(profile.sketches.values)
    present = _points(seen.sketches)
    positions = profile.keys.values.astype(np.int64)
    inside = positions < seen.n
    in_place = np.zeros(len(positions), dtype=bool)
    in_place[inside] = np.linalg.norm(before[inside] - present[positions[inside]], axis=1) < EQUAL
    found = np.where(in_place, positions, -1)
    missing = np.flatnonzero(~in_place)
    if len(missing):
        gaps, nearest = map(np.asarray, KDTree(present).query(before[missing], k=2))
        unique = (gaps[:, 0] < EQUAL) & (gaps[:, 1] > 2 * EQUAL)
        found[missing[unique]] = nearest[unique, 0]
    moved = int((found[missing] >= 0).sum())
    if moved + in_place.sum() < FEW * len(found):
        rows = np.where(inside, positions, -1)
    elif moved > in_place.sum():
        rows = found
    else:
        rows = np.where((found < 0) & inside, positions, found)
    keys = np.full(seen.n, UNKNOWN, dtype=np.uint64)
    if moved <= in_place.sum():
        keys[:] = np.arange(seen.n)
        keys[positions[inside]] = UNKNOWN
    keys[rows[rows >= 0]] = profile.keys.values[rows >= 0]
    return keys


def known_rows(profile: Profile, seen: Observed, keys: np.ndarray, is_int8: bool) -> KnownRows:
    """Find the rows of the baseline by their keys, and compare their sketches.

    Args:
        profile: The baseline of the set.
        seen: What the pass over its present rows gave.
        keys: (n,) keys of these rows.
        is_int8: Whether the rows have been quantized to 8 bits.
    """
    rows, stored = _positions(seen, keys, profile.keys.values)
    before, after = profile.sketches.values[stored].astype(np.float64), seen.sketches[rows].astype(np.float64)
    change = (after - before) / (STEP * math.sqrt(profile.d))
    distance = np.linalg.norm(_points(after) - _points(before), axis=1)
    edited = distance > (EDITED_COARSE if is_int8 else EDITED)
    along = change[:, SKETCH:].max(1, initial=0.0)
    moved = np.full(len(rows), -1)
    numbers = np.flatnonzero(edited)
    if len(numbers):
        gaps, nearest = KDTree(_points(profile.sketches.values)).query(_points(after[numbers]))
        moved[numbers] = np.where(gaps < EQUAL, nearest, -1)
    canary_rows, canaries = _positions(seen, keys, profile.canary_keys.values)
    return KnownRows(
        rows=rows,
        stored=stored,
        distance=distance,
        edited=edited,
        aligned=np.where(edited, along / np.maximum(distance, 1e-12), 0),
        moved=moved,
        canaries=canaries,
        canary_rows=canary_rows,
    )


def _positions(seen: Observed, keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the valid rows whose key is wanted, and the positions of these keys in `wanted`."""
    _, rows, positions = np.intersect1d(keys, wanted, return_indices=True)
    valid = seen.valid[rows]
    return rows[valid], positions[valid]


def neighbors_kept(profile: Profile, seen: Observed, keys: np.ndarray, known: KnownRows) -> float:
    """Return the share of the rows nearest to the earlier canaries, without unknown ones, that were nearest before."""
    shares = []
    for before, rows in zip(profile.neighbors.values[known.canaries], seen.near[known.canaries], strict=True):
        now = keys[rows][keys[rows] != UNKNOWN]
        shares.append(len(np.intersect1d(before, now)) / max(1, len(now)))
    return float(np.mean(shares))
