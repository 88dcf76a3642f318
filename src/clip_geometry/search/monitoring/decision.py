"""Name what changed in a set since its baseline."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.stats import poisson, rankdata

from clip_geometry.display.numbers import percent
from clip_geometry.search.monitoring.drift import Drift, drift
from clip_geometry.search.monitoring.known import KnownRows
from clip_geometry.search.monitoring.profile import NEAR, Observed, Profile

Kind: TypeAlias = Literal[
    "same", "data", "preprocessing", "model", "mixed", "quantized", "poisoned", "queries", "ids", "text_length"
]
# a kind explains those after it: another model also has other data
ORDER: tuple[Kind, ...] = ("model", "queries", "mixed", "text_length", "ids", "poisoned", "preprocessing", "quantized")

BITS = {"": 24, "float16": 11, "bfloat16": 8}  # of the mantissa
INT8 = 7  # int8, and every other grid
ALL = 0.98  # share of foreign rows above which the model is another one
FOREIGN = 0.01  # share of foreign rows beyond those of the baseline
FEWEST = 3  # rows
OTHERS = 0.9  # share of edited rows above which positions or text lengths say nothing
RELATED = 6.0  # z-score of the cosines of canaries with their successors; two models: below 2, one model: above 20
LEAST_RELATED = 8  # fewest canaries for it
ALIGNED = 0.35  # cosine of the change of a poisoned row with the mean of another modality
SLIGHT = 0.5  # largest distance of a poisoned row from the original
ONE_BY_ONE = 0.2  # share of edited rows; more were not edited one by one
FACTOR = 1.75  # multiple of the baseline's most frequent row, as in the check hubs
LEAST_SHARE = 0.02  # as in the check hubs
FLOODED = 0.05  # share of the lists
SIMILAR = 0.8  # median cosine after a prefix: 0.90 to 0.97; after another pooling: 0.30 to 0.61
RECOGNIZED = 0.5  # median cosine of truncated texts: 0.8 or more
LONGEST = 0.95  # probability that a truncated text is longer than another one
ORDERED = 0.9  # rank correlation of rows and lengths of texts
TOLERATED = 0.05  # share of edited, and of removed rows that an index may have from day to day
LENGTH = 0.01  # relative
DRIFT = 0.25  # tolerated drift in standard deviations of the rows


@dataclass(frozen=True)
class Difference:
    """One difference between an index and its baseline.

    Attributes:
        kind: As in `GateCheck.kind`.
        modality: The set.
        detail: What exactly, such as "pooling" or "int8"; "" if the kind says everything.
        evidence: What was observed, in one sentence.
        changed: Whether the gate fails.
        rows: Numbers of the rows concerned, if the difference concerns some rows only.
        values: The same evidence in numbers.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
        >>> for difference in cg.gate({"image": x}).check({"image": x.astype(np.float16)}).differences:
        ...     print(difference.kind, difference.detail)
        quantized float16
    """

    kind: Kind
    modality: str
    detail: str
    evidence: str
    changed: bool = True
    rows: tuple[int, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.modality}: {self.kind}{f' ({self.detail})' if self.detail else ''}. {self.evidence}"


def is_coarser(profile: Profile, seen: Observed) -> bool:
    """Return whether the values are stored in a coarser number format than those of the baseline."""
    return BITS.get(seen.number_format, INT8) < BITS.get(profile.number_format, INT8)


def is_int8(profile: Profile, seen: Observed) -> bool:
    """Return whether the values have been quantized to 8 bits since the baseline."""
    return is_coarser(profile, seen) and seen.number_format not in BITS


def relation(before: np.ndarray, after: np.ndarray) -> float:
    """Return how much better rows match their successors than other rows, as a z-score; 0 for fewer than 8 rows.

    The score is Σ⟨u_i, v_i⟩ of the centered rows, in standard deviations among all ways to pair them.
    """
    if len(before) < LEAST_RELATED:
        return 0.0
    products = (before - before.mean(0)) @ (after - after.mean(0)).T
    deviation = math.sqrt(float(np.square(products, dtype=np.float64).sum()) / (len(before) - 1))
    return float(np.trace(products, dtype=np.float64)) / max(deviation, 1e-12)


@dataclass(frozen=True, eq=False)
class SetComparison:
    """A set and its baseline.

    Attributes:
        modality: The set.
        profile: Its baseline.
        seen: What one pass over its present rows gave.
        known: The rows of the baseline that are still in it.
        unit: (c, d) present unit rows of the known canaries.
        error: Error rate of this check.
    """

    modality: str
    profile: Profile
    seen: Observed
    known: KnownRows
    unit: np.ndarray
    error: float

    @cached_property
    def drift(self) -> Drift:
        return drift(self.profile, self.seen, self.error)

    @cached_property
    def foreign(self) -> np.ndarray:
        """Numbers of the rows outside the principal axes of the baseline, where another model's rows lie."""
        return np.flatnonzero(self.seen.valid & (self.seen.energies < self.profile.cut))

    @cached_property
    def edited_canaries(self) -> tuple[np.ndarray, np.ndarray]:
        """Unit rows of the edited canaries, (e, d), in the baseline and now."""
        edited = np.isin(self.known.canary_rows, self.known.rows[self.known.edited])
        return self.profile.canaries.values[self.known.canaries][edited], self.unit[edited]

    @cached_property
    def relation(self) -> float:
        return relation(*self.edited_canaries)

    @property
    def asks_as_before(self) -> bool:
        """Whether queries of this set find the same rows as before, unless these have changed."""
        return self.relation <= RELATED and not self._is_mixed(self.foreign) and self.drift.low <= DRIFT

    def _is_mixed(self, foreign: np.ndarray) -> bool:
        excess = len(foreign) / max(1, self.seen.valid.sum()) - self.profile.below
        return excess > FOREIGN and len(foreign) >= FEWEST

    def differences(self, asking: Iterable[str]) -> Iterator[Difference]:
        """Yield what is different; nothing if the set is the same.

        Args:
            asking: The sets that ask as before. Others find other rows, none of which has to be poisoned.
        """
        yield from self._number_format()
        yield from self._lengths()
        yield from self._removed_and_added()
        known, valid = self.known, max(1, int(self.seen.valid.sum()))
        share = len(self.foreign) / valid
        values = {"known": len(known.rows), "edited": known.share, "foreign": share, "relation": self.relation}
        moved = (known.moved >= 0) & known.edited
        if moved.sum() >= 2 and moved.sum() >= known.edited.sum() / 2:
            yield self._wrong_ids(moved, values)
            return
        if self.relation > RELATED:
            cosines = np.einsum("cd,cd->c", *self.edited_canaries)
            yield self._preprocessing(float(np.median(cosines)), values)
            return
        outside = "outside the principal axes of the baseline"
        if share > ALL:
            text = f"{percent(share)} of the rows lie {outside}."
            yield Difference("model", self.modality, "", text, values=values)
            return
        poisoned = self._poisoned_rows([] if self.drift.low > DRIFT else asking)
        foreign = np.setdiff1d(self.foreign, poisoned)
        if self._is_mixed(foreign):
            text = f"{len(foreign):,} of {valid:,} rows lie {outside}, as rows of another model do."
            yield self._difference_in_rows("mixed", foreign.tolist(), text, values)
        if poisoned:
            yield self._poisoned(poisoned, values)
        rest = known.edited & ~np.isin(known.rows, self.foreign) & ~np.isin(known.rows, poisoned)
        has_other_items = not self.profile.keyed and known.share > OTHERS
        if rest.any() and not has_other_items:
            yield self._edited(rest, values)
        else:
            yield from self._drifted(values)

    def _difference_in_rows(
        self, kind: Kind, rows: Sequence[int], text: str, values: Mapping[str, Any], changed: bool = True
    ) -> Difference:
        """Return a difference that concerns some rows, with their number as its detail."""
        count = "1 row" if len(rows) == 1 else f"{len(rows):,} rows"
        return Difference(kind, self.modality, count, text, changed, tuple(rows), values)

    def _number_format(self) -> Iterator[Difference]:
        """Report a number format that is coarser than that of the baseline."""
        if is_coarser(self.profile, self.seen):
            now, before = self.seen.number_format, self.profile.number_format or "float32"
            text = f"The values lie on the grid of {now}, and those of the baseline on that of {before}."
            yield Difference("quantized", self.modality, now, text)

    def _lengths(self) -> Iterator[Difference]:
        """Compare the quantiles of the lengths: whether rows are normalized, and whether all have one length."""
        (low, median, high), now = self.profile.lengths, self.seen.lengths
        was_equal, is_equal = high - low < LENGTH * median, now[2] - now[0] < LENGTH * now[1]
        was_unit, is_unit = was_equal and abs(median - 1) < LENGTH, is_equal and abs(now[1] - 1) < LENGTH
        is_scaled = not median / 2 < now[1] < 2 * median
        if was_equal != is_equal or was_unit != is_unit or is_scaled:
            text = (
                f"The lengths of the rows, from the 1% to the 99% quantile, were {low:.3g} to {high:.3g} and are "
                f"{now[0]:.3g} to {now[2]:.3g}."
            )
            yield Difference("preprocessing", self.modality, "normalization", text)

    def _removed_and_added(self) -> Iterator[Difference]:
        """Count the rows that are missing and those that are new, if most rows are as before.

        Of a large index, the baseline knows a sample. Then the numbers are estimates.
        """
        known, before, now = self.known, self.profile.n, self.seen.n
        of = max(1, len(self.profile.keys.values))
        unchanged, present = (int(count) / of for count in ((~known.edited).sum(), len(known.rows)))
        values = {"present": present, "unchanged": unchanged}
        about = "about " if before > of else ""
        removed, added = round((1 - present) * before), max(0, round(now - present * before))
        if removed and unchanged * before >= now / 2:
            text = f"{about}{removed:,} of {before:,} rows are missing; {percent(TOLERATED)} may be."
            is_too_many = 1 - present > TOLERATED
            count = f"{about}{removed:,} removed"
            yield Difference("data", self.modality, count, text[0].upper() + text[1:], is_too_many, (), values)
        if added and unchanged >= 0.5:
            text = f"{about}{added:,} of {now:,} rows are new."
            count = f"{about}{added:,} new"
            yield Difference("data", self.modality, count, text[0].upper() + text[1:], False, (), values)

    def _wrong_ids(self, moved: np.ndarray, values: Mapping[str, Any]) -> Difference:
        """Describe rows that hold the vectors of others, which may be in the order of the lengths of their texts."""
        known, texts = self.known, self.seen.texts
        present = np.full(len(self.profile.keys.values), -1)
        present[known.stored] = known.rows
        rows, sources = known.rows[moved], present[known.moved[moved]]
        text = f"{len(rows):,} of {len(known.rows):,} known rows hold the vector of another row."
        is_known = sources >= 0
        if texts is not None and is_known.sum() >= LEAST_RELATED:
            lengths = [len(str(texts[row])) for row in sources[is_known]]
            correlation = np.corrcoef(rankdata(rows[is_known]), rankdata(lengths))[0, 1]
            if abs(correlation) > ORDERED:
                text = f"{text} The vectors are in the order of the lengths of their texts."
                return Difference("text_length", self.modality, "", text, values=values)
        return self._difference_in_rows("ids", rows.tolist(), text, values)

    def _preprocessing(self, cosine: float, values: Mapping[str, Any]) -> Difference:
        """Name the step that changed rows of one model.

        Truncation changes the long texts. Padding that enters the mean leaves the longest text of each batch as it was.
        A prefix changes every row to a cosine of 0.8 to 0.97, and another pooling to one of 0.3 to 0.7.
        """
        known, texts = self.known, self.seen.texts
        rows, others = known.rows[known.edited], known.rows[~known.edited]
        if len(others) < 2:
            detail = "prefix" if cosine > SIMILAR else "pooling"
        elif texts is None:
            detail = "padding" if known.share > OTHERS else "truncation"
        else:
            detail = "truncation" if longer(texts, rows, others) > 0.5 else "padding"
        text = (
            f"{len(rows):,} of {len(known.rows):,} known rows changed, to a median cosine of {cosine:.2f}, and "
            "are still related to what they were."
        )
        chosen = tuple(rows.tolist()) if detail == "truncation" else ()
        return Difference("preprocessing", self.modality, detail, text, True, chosen, {**values, "cosine": cosine})

    @property
    def _searches(self) -> dict[str, np.ndarray]:
        """Modality → lists of nearest rows, where the baseline has them, too."""
        return {asking: lists for asking, lists in self.seen.lists.items() if asking in self.profile.hubs}

    def _poisoned_rows(self, asking: Iterable[str]) -> list[int]:
        """Return the numbers of slightly edited rows that moved towards another modality, and of rows that too many
        queries find.

        If a large share of the rows was edited, the edits are an update of the index, not poison.

        Args:
            asking: Modalities of the queries.
        """
        known, rows = self.known, [np.empty(0, dtype=np.int64)]
        if known.share < ONE_BY_ONE:
            rows.append(known.rows[(known.aligned > ALIGNED) & (known.distance < SLIGHT)])
        for name in self._searches.keys() & {*asking}:
            rows.append(self._hubs(name))
        return np.unique(np.concatenate(rows)).tolist()

    def _hubs(self, asking: str) -> np.ndarray:
        """Return rows that more queries find than the most frequent row of the baseline, and copies that flood lists.

        The limit is a multiple of the baseline's largest count, plus what chance adds to such a count.
        """
        lists, copied, before = self.seen.lists[asking], self.seen.copied[asking], self.profile.hubs[asking]
        rows = [np.unique(lists[copied])] if copied.mean() > before.flooded + FLOODED else []
        for k, share in ((1, before.share), (NEAR, before.top)):
            if k == 1 and asking == self.modality:
                continue
            limit = poisson.isf(self.error, FACTOR * len(lists) * max(share, LEAST_SHARE))
            rows.append(np.flatnonzero(np.bincount(lists[:, :k].ravel()) > limit))
        return np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)

    def _poisoned(self, rows: list[int], values: Mapping[str, Any]) -> Difference:
        """Describe rows that attract too many queries, with the share of the queries that find them."""
        shares = {asking: float(np.isin(lists, rows).any(1).mean()) for asking, lists in self._searches.items()}
        asking = max(shares, key=lambda name: shares[name], default="")
        what = "it" if len(rows) == 1 else "one of them"
        text = f"{percent(shares.get(asking, 0.0))} of the {asking} queries have {what} among their ten nearest rows."
        return self._difference_in_rows("poisoned", rows, text, {**values, "captured": shares})

    def _edited(self, rest: np.ndarray, values: Mapping[str, Any]) -> Difference:
        """Describe rows with new content; if these are the longest texts and changed only slightly, truncation."""
        known, texts = self.known, self.seen.texts
        rows = known.rows[rest]
        cosine = float(np.median(1 - np.square(known.distance[rest]) / 2))
        text = f"{len(rows):,} of {len(known.rows):,} known rows changed, to a median cosine of {cosine:.2f}."
        values = {**values, "cosine": cosine}
        is_similar = len(rows) >= FEWEST and cosine > RECOGNIZED
        if is_similar and texts is not None and longer(texts, rows, known.rows[~known.edited]) > LONGEST:
            text = f"{text} They are the longest texts."
            return Difference("preprocessing", self.modality, "truncation", text, True, tuple(rows.tolist()), values)
        return self._difference_in_rows("data", rows.tolist(), text, values, changed=float(rest.mean()) > TOLERATED)

    def _drifted(self, values: Mapping[str, Any]) -> Iterator[Difference]:
        """Report the movement of the mean of the rows, if its interval does not contain 0."""
        found = self.drift
        if found.low > 0:
            text = (
                f"The mean moved by {found.size:.2f} standard deviations of the rows ({found.low:.2f} to "
                f"{found.high:.2f}); up to {DRIFT:g} is tolerated."
            )
            values = {**values, **found._asdict()}
            yield Difference("data", self.modality, "drift", text, found.low > DRIFT, (), values)


def longer(texts: np.ndarray, rows: np.ndarray, others: np.ndarray) -> float:
    """Return the probability that the text of one of the rows is longer than that of one of the others."""
    lengths = [np.array([len(str(texts[row])) for row in numbers]) for numbers in (rows, others)]
    order = np.sort(lengths[1])
    return float((np.searchsorted(order, lengths[0]) / max(1, len(order))).mean())


def cause(differences: Sequence[Difference]) -> Difference | None:
    """Return the difference that explains the others, of those that fail the gate if there are any."""
    failing = [each for each in differences if each.changed] or differences
    return min(failing, key=lambda each: [*ORDER, "data", "same"].index(each.kind)) if failing else None
