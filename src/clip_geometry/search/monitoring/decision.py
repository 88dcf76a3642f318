"""Name what changed in a set since its baseline."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.spatial import cKDTree
from scipy.stats import chi2, poisson, spearmanr

from clip_geometry.display.numbers import percent
from clip_geometry.embeddings import Embeddings
from clip_geometry.search.checks import Context
from clip_geometry.search.monitoring.profile import NEAR, SKETCH, STEP, Hub, Observed, Profile

Kind: TypeAlias = Literal[
    "same", "data", "preprocessing", "model", "mixed", "quantized", "poisoned", "queries", "ids", "text_length"
]
# in the order in which they explain others: a new model also changes the data
SEVERE: tuple[Kind, ...] = (
    *("model", "queries", "mixed", "text_length", "ids", "poisoned", "preprocessing", "quantized", "data", "same"),
)

BITS = {"": 24, "float16": 11, "bfloat16": 8, "int8": 7, "int8 by dimension": 7}  # other grids count as int8
EDITED = 0.03  # distance of unit rows that rounding to float16 or bfloat16 does not explain
EDITED_COARSE = 0.12  # the same for int8
EQUAL = 0.003  # distance that the rounding of sketches explains
KEPT = 0.98  # share of foreign rows above which all are
OTHERS = 0.9  # share of edited rows above which positions or batches say nothing
RELATED = 6.0  # z-score of the cosines of canaries with their successors; two models: below 2
FOREIGN = 0.01  # excess share of foreign rows
FEWEST = 3  # rows
ALIGNED = 0.35  # cosine of the change of a poisoned row with the mean of another modality
SLIGHT = 0.5  # largest distance of a poisoned row from the original
MOST_POISONED = 0.2  # share of edited rows; more were not edited one by one
SIMILAR = 0.8  # median cosine after a prefix: 0.90 to 0.97; after another pooling: 0.30 to 0.61
TOLERATED = 0.05  # share of edited rows that an index may have from day to day
RECOGNIZED = 0.5  # median cosine of truncated texts: 0.8 or more
LONGEST = 0.95  # probability that a truncated text is longer than another one
LENGTH = 0.01
DRIFT = 0.25  # tolerated drift in standard deviations of the rows
FACTOR = 1.75  # as in the check hubs
LEAST_SHARE = 0.02
FLOODED = 0.05  # share of the lists


@dataclass(frozen=True)
class Change:
    """One explanation of what is different in a set.

    Attributes:
        kind: As in `GateCheck.kind`.
        modality: The set.
        detail: What exactly, such as "pooling" or "int8"; "" if the kind says everything.
        evidence: What was observed, in one sentence.
        changed: Whether the gate fails.
        rows: Numbers of the rows concerned, if the change concerns some rows only.
        values: The same evidence in numbers.

    Example:
        >>> from clip_geometry.search.monitoring.decision import Change
        >>> str(Change("quantized", "image", "int8", "All values lie on a grid.", True))
        'image: quantized (int8). All values lie on a grid.'
    """

    kind: Kind
    modality: str
    detail: str
    evidence: str
    changed: bool
    rows: tuple[int, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.modality}: {self.kind}{f' ({self.detail})' if self.detail else ''}. {self.evidence}"


class Drift(NamedTuple):
    """Distance of the means of the unit rows, in standard deviations of the rows, and its simultaneous interval."""

    size: float
    low: float
    high: float


def drift(profile: Profile, seen: Observed, error: float) -> Drift:
    """Return the drift and an interval that misses the true drift with a probability of at most `error`.

    The difference of the two means is the true one plus noise. The norm of the noise is below its 1 − error quantile,
    that of a scaled χ² with the same mean and variance (Satterthwaite), so by the triangle inequality the norm of the
    true difference lies within this quantile of the norm of the observed one.
    """
    variance = max(1 - float(np.square(profile.mean.values.astype(np.float64)).sum()), 1e-12)
    noise = 1 / profile.n + 1 / max(1, int(seen.valid.sum()))
    freedom = 1 / profile.concentration
    bound = math.sqrt(noise / freedom * chi2.isf(error, freedom))
    size = float(np.linalg.norm(seen.mean - profile.mean.values)) / math.sqrt(variance)
    return Drift(size, max(0.0, size - bound), size + bound)


@dataclass(frozen=True, eq=False)
class Matched:
    """The rows of a baseline that are still in the index.

    rows: (m,) their present row numbers. stored: (m,) their position in the profile. distance: (m,) estimated distance
    of the unit row from the earlier one. edited: (m,) whether rounding does not explain it. aligned: (m,) largest cosine of the change with the mean of another set. moved:
    (m,) for an edited row, the stored row that it equals now, −1 for none. canaries: (c, 2) positions of canaries and
    their present rows.
    """

    rows: np.ndarray
    stored: np.ndarray
    distance: np.ndarray
    edited: np.ndarray
    aligned: np.ndarray
    moved: np.ndarray
    canaries: np.ndarray

    @property
    def share(self) -> float:
        """Share of the rows that are edited."""
        return float(self.edited.mean()) if len(self.rows) else 0.0


def by_content(profile: Profile, seen: Observed) -> np.ndarray:
    """Return the present row of each stored row of a set without ids, by position or else by its sketch, (m,).

    −1: not found, or not unique. If most rows that are found have moved, positions identify nothing.
    """
    scale = STEP * math.sqrt(profile.d) / math.sqrt(profile.d / SKETCH)
    before = profile.sketches.values[:, :SKETCH].astype(np.float64) / scale
    positions = profile.keys.values.astype(np.int64)
    inside = positions < seen.n
    after = np.full_like(before, np.inf)
    after[inside] = seen.sketches[positions[inside], :SKETCH].astype(np.float64) / scale
    in_place = np.linalg.norm(after - before, axis=1) < EQUAL
    rows = np.where(in_place, positions, -1)
    missing = np.flatnonzero(~in_place)
    if len(missing) and seen.n > 1:
        gaps, found = cKDTree(seen.sketches[:, :SKETCH].astype(np.float64) / scale).query(before[missing], k=2)
        unique = (gaps[:, 0] < EQUAL) & (gaps[:, 1] > 2 * EQUAL)
        rows[missing[unique]] = found[unique, 0]
    moved = int((rows[~in_place] >= 0).sum())
    if moved + in_place.sum() < len(rows) / 10:  # other rows, or all of them changed
        return np.where(inside, positions, -1)
    return rows if moved > in_place.sum() else np.where((rows < 0) & inside, positions, rows)


def matched(profile: Profile, seen: Observed, keys: np.ndarray) -> Matched:
    """Find the rows of the baseline by their keys, and compare their sketches."""
    stored_keys = profile.keys.values
    rows, stored = _positions(keys, stored_keys)
    usable = seen.valid[rows]
    rows, stored = rows[usable], stored[usable]
    scale = STEP * math.sqrt(profile.d)
    before = profile.sketches.values[stored].astype(np.float64) / scale
    change = seen.sketches[rows].astype(np.float64) / scale - before
    distance = np.sqrt(np.square(change[:, :SKETCH]).mean(1) * profile.d)
    along = change[:, SKETCH:].max(1, initial=0.0)
    is_int8 = is_coarser(profile, seen) and BITS.get(seen.number_format, 0) < BITS["bfloat16"]
    edited = distance > (EDITED_COARSE if is_int8 else EDITED)
    aligned = np.where(edited, along / np.maximum(distance, 1e-12), 0)
    moved = np.full(len(rows), -1)
    numbers = np.flatnonzero(edited)
    if len(numbers):
        tree = cKDTree(profile.sketches.values[:, :SKETCH].astype(np.float64) / scale)
        gaps, found = tree.query(seen.sketches[rows[numbers], :SKETCH].astype(np.float64) / scale)
        equal = gaps * math.sqrt(profile.d / SKETCH) < EQUAL
        moved[numbers[equal]] = found[equal]
    canary_rows, canary = _positions(keys, profile.canary_keys.values)
    usable = seen.valid[canary_rows]
    return Matched(rows, stored, distance, edited, aligned, moved, np.stack([canary[usable], canary_rows[usable]], axis=1))


def _positions(keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows whose key is wanted, and the positions of these keys in `wanted`."""
    _, rows, positions = np.intersect1d(keys, wanted, return_indices=True)
    return rows, positions


def explain(
    modality: str, profile: Profile, seen: Observed, unit: np.ndarray, same: Matched, error: float
) -> Iterator[Change]:
    """Yield what changed in one set, or that nothing did.

    Args:
        profile: The baseline of the set.
        seen: What the pass over its present rows gave.
        unit: (c, d) present unit rows of the matched canaries.
        same: The rows that are still in the index.
        error: Error rate of this check.
    """
    yield from _stored_values(profile, seen)
    edited, valid = same.edited, max(1, int(seen.valid.sum()))
    foreign = np.flatnonzero(seen.valid & (seen.energies < profile.cut))
    excess = len(foreign) / valid - profile.below
    is_foreign = excess > FOREIGN and len(foreign) >= FEWEST
    before = profile.canaries.values[same.canaries[:, 0]]
    cosines = np.einsum("cd,cd->c", before, unit)
    touched = np.isin(same.canaries[:, 1], same.rows[edited])
    z = relation(before[touched], unit[touched])
    values = {"matched": len(same.rows), "edited": same.share, "foreign": len(foreign) / valid, "relation": z}
    moved = (same.moved >= 0) & edited
    if moved.sum() >= 2 and moved.sum() >= edited.sum() / 2:
        yield _ids(profile, seen, same, moved, values)
        return
    if z > RELATED:
        yield _preprocessing(same, seen, float(np.median(cosines[touched])), values)
        return
    if excess > KEPT - profile.below:
        text = f"{percent(len(foreign) / valid)} of the rows lie outside the principal axes of the baseline."
        yield Change("model", modality, "", text, True, (), values)
        return
    if is_foreign:
        text = f"{len(foreign):,} of {valid:,} rows lie outside the principal axes of the baseline, as another model's do."
        yield Change("mixed", modality, f"{len(foreign):,} rows", text, True, tuple(foreign.tolist()), values)
    poisoned = _poisoned(modality, profile, seen, same, values, error)
    if poisoned is not None:
        yield poisoned
    rest = edited & ~np.isin(same.rows, [*foreign, *(poisoned.rows if poisoned else ())])
    others = not profile.keyed and same.share > OTHERS  # other items at the same positions
    if rest.any() and not others:
        yield _edited(same, seen, rest, values)
    else:
        yield from _drifted(modality, profile, seen, values, error)


def _drifted(
    modality: str, profile: Profile, seen: Observed, values: Mapping[str, Any], error: float
) -> Iterator[Change]:
    change = drift(profile, seen, error)
    if change.low > 0:
        text = (
            f"The mean moved by {change.size:.2f} standard deviations of the rows ({change.low:.2f} to "
            f"{change.high:.2f}); up to {DRIFT:g} is tolerated."
        )
        yield Change("data", modality, "drift", text, change.low > DRIFT, (), {**values, **change._asdict()})


def relation(before: np.ndarray, after: np.ndarray) -> float:
    """Return the z-score of Σ⟨u_i, v_i⟩, both centered, among all ways to pair the rows; 0 for fewer than 8 rows."""
    if len(before) < 8:
        return 0.0
    products = (before - before.mean(0)) @ (after - after.mean(0)).T
    deviation = math.sqrt(float(np.square(products, dtype=np.float64).sum()) / (len(before) - 1))
    return float(np.trace(products, dtype=np.float64)) / max(deviation, 1e-12)


def is_coarser(profile: Profile, seen: Observed) -> bool:
    """Return whether the values are stored in a coarser number format than those of the baseline."""
    bits = [BITS.get(name, BITS["int8"]) for name in (profile.number_format, seen.number_format)]
    return bits[1] < bits[0]


def _stored_values(profile: Profile, seen: Observed) -> Iterator[Change]:
    if is_coarser(profile, seen):
        before = profile.number_format or "float32"
        text = f"The values lie on the grid of {seen.number_format}, and those of the baseline on that of {before}."
        yield Change("quantized", "", seen.number_format, text, True)
    pairs = list(zip(profile.lengths, seen.lengths, strict=True))
    spread, now = (values[2] - values[0] for values in (profile.lengths, seen.lengths))
    was_unit, is_unit = (abs(low - 1) < LENGTH and abs(high - 1) < LENGTH for low, _, high in (profile.lengths, seen.lengths))
    scaled = not 0.5 < seen.lengths[1] / max(profile.lengths[1], 1e-12) < 2
    if was_unit != is_unit or scaled or (spread < LENGTH * profile.lengths[1]) != (now < LENGTH * seen.lengths[1]):
        text = f"The median length of the rows was {pairs[1][0]:.3g} and is {pairs[1][1]:.3g}."
        yield Change("preprocessing", "", "normalization", text, True)


def _ids(profile: Profile, seen: Observed, same: Matched, moved: np.ndarray, values: dict[str, Any]) -> Change:
    """Describe rows whose vectors belong to other rows, and whether the vectors are in the order of text lengths."""
    present = np.full(len(profile.keys.values), -1)
    present[same.stored] = same.rows
    rows, sources = same.rows[moved], present[same.moved[moved]]
    known = sources >= 0
    text = f"{len(rows):,} of {len(same.rows):,} known rows hold the vector of another row."
    if seen.texts is not None and known.sum() >= 8:
        lengths = [len(str(seen.texts[row])) for row in sources[known]]
        order = float(np.asarray(spearmanr(rows[known], lengths).statistic))
        if abs(order) > 0.9:
            return Change("text_length", "", "", f"{text} They are in the order of the lengths of the texts.", True, (), values)
    return Change("ids", "", f"{len(rows):,} rows", text, True, tuple(rows.tolist()), values)


def _preprocessing(same: Matched, seen: Observed, middle: float, values: dict[str, Any]) -> Change:
    """Name the step that changed rows of one model.

    Truncation changes the long texts. Padding that is counted in the mean leaves the longest text of each batch as it
    was. A prefix changes every row to a cosine of 0.8 to 0.97, and another pooling to one of 0.3 to 0.7.
    """
    rows, unchanged = same.rows[same.edited], same.rows[~same.edited]
    if len(unchanged) < 2:
        detail = "prefix" if middle > SIMILAR else "pooling"
    elif seen.texts is not None:
        detail = "truncation" if longer(seen.texts, rows, unchanged) > 0.5 else "padding"
    else:
        detail = "padding" if same.share > OTHERS else "truncation"
    text = (
        f"{len(rows):,} of {len(same.rows):,} known rows changed, to a median cosine of {middle:.2f}, but are related to "
        "what they were."
    )
    chosen = tuple(rows.tolist()) if detail == "truncation" else ()
    return Change("preprocessing", "", detail, text, True, chosen, {**values, "cosine": middle})


def _poisoned(
    modality: str, profile: Profile, seen: Observed, same: Matched, values: dict[str, Any], error: float
) -> Change | None:
    """Find edited rows that moved towards another modality, and rows that too many queries find."""
    rows: set[int] = set()
    if same.share < MOST_POISONED:
        rows |= set(same.rows[(same.aligned > ALIGNED) & (same.distance < SLIGHT)].tolist())
    known = {asking: lists for asking, lists in seen.lists.items() if asking in profile.hubs}
    for asking, lists in known.items():
        rows |= set(_hubs(lists, seen.copied[asking], profile.hubs[asking], asking == modality, error).tolist())
    if not rows:
        return None
    found = sorted(rows)
    captured = max((float(np.isin(lists, found).any(1).mean()) for lists in known.values()), default=0.0)
    one = "it" if len(found) == 1 else "one of them"
    text = f"{percent(captured)} of the queries have {one} among their ten nearest rows."
    return Change("poisoned", "", f"{len(found):,} rows", text, True, tuple(found), {**values, "captured": captured})


def _hubs(lists: np.ndarray, copied: np.ndarray, before: Hub, own: bool, error: float) -> np.ndarray:
    """Return the rows that more queries find than the most frequent row of the baseline, and copies that flood lists.

    The limit is FACTOR times the largest count of the baseline, plus what chance adds to such a count.
    """
    q = len(lists)
    rows = [np.unique(lists[copied])] if copied.mean() > before.flooded + FLOODED else []
    for k, share in ((1, before.share), (NEAR, before.top)):
        if not (own and k == 1):
            limit = poisson.isf(error, FACTOR * q * max(share, LEAST_SHARE))
            rows.append(np.flatnonzero(np.bincount(lists[:, :k].ravel()) > limit))
    return np.unique(np.concatenate(rows)) if rows else np.empty(0, dtype=int)


def _edited(same: Matched, seen: Observed, rest: np.ndarray, values: dict[str, Any]) -> Change:
    """Describe rows with new content; if these are the longest texts and have only slightly changed, truncation."""
    rows = same.rows[rest]
    cosine = float(np.median(1 - np.square(same.distance[rest]) / 2))
    text = f"{len(rows):,} of {len(same.rows):,} known rows changed, to a median cosine of {cosine:.2f}."
    values = {**values, "cosine": cosine}
    if len(rows) >= FEWEST and cosine > RECOGNIZED and seen.texts is not None:
        if longer(seen.texts, rows, same.rows[~same.edited]) > LONGEST:
            text = f"{text} They are the longest texts."
            return Change("preprocessing", "", "truncation", text, True, tuple(rows.tolist()), values)
    is_large = float(rest.mean()) > TOLERATED
    return Change("data", "", f"{len(rows):,} rows", text, is_large, tuple(rows.tolist()), values)


def longer(texts: np.ndarray, rows: np.ndarray, others: np.ndarray) -> float:
    """Return the probability that the text of one of the rows is longer than that of one of the others."""
    lengths = [np.array([len(str(texts[row])) for row in chosen]) for chosen in (rows, others)]
    return float((lengths[0][:, None] > lengths[1][None]).mean())


def foreign_share(profile: Profile, queries: Embeddings) -> float:
    """Return the share of queries that lie outside the principal axes of a set."""
    if queries.dim != profile.d:
        return 1.0
    context = Context({"queries": queries})
    rows = context.unit("queries")
    return float((np.square(rows @ profile.axes.values.T).sum(1) < profile.cut).mean()) if len(rows) else 0.0


def severest(changes: list[Change]) -> Change | None:
    """Return the change that explains the others."""
    failing = [change for change in changes if change.changed] or changes
    return min(failing, key=lambda change: SEVERE.index(change.kind)) if failing else None

