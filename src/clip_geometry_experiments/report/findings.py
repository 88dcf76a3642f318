"""What the numbers of one run say, in plain sentences: only what its rows state, nothing specific to a model."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clip_geometry.display.numbers import as_number, brief, fixed, plus_minus, to_error
from clip_geometry.display.words import Words

Row = Mapping[str, Any]
CLEARLY = 0.9  # a cone is called one where its half angle is below this share of the null value
ROUNDING = 1e-9  # a gap below this after centering is rounding
EQUAL = 1e-12  # what float64 may leave of an exact 0
TIE = 2.0  # standard errors of a difference, up to which two values are a tie
WORDS = Words(Path(__file__).with_name("findings.j2"))


def differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Whether the values of two rows differ by more than two standard errors of their difference; None, which is
    neither a difference nor a tie, where they differ and an error is not known.

    The rows do not say how their errors depend on each other. Errors of independent samples are assumed, which rather
    miss a difference than call a tie one. A constant has a standard error of 0.
    """
    step = abs(one["value"] - other["value"])
    if step <= EQUAL:
        return False
    errors = [as_number(row.get("standard_error")) for row in (one, other)]
    known = [error for error in errors if error is not None]
    return step > TIE * math.hypot(*known) if len(known) == len(errors) else None


class RunValues:
    """The rows of one run by measure and set."""

    def __init__(self, rows: Iterable[Row]):
        self._rows = {(row["measure"], (row.get("at") or {}).get("modality")): row for row in rows}

    def get(self, measure: str, modality: str = "both", key: str = "value") -> float | None:
        return as_number(self._rows.get((measure, modality), {}).get(key))

    def cosine(self, measure: str, modality: str = "both") -> str | None:
        """A cosine with its standard error, with four decimals where the row has none."""
        value, error = self.get(measure, modality), self.get(measure, modality, "standard_error")
        return None if value is None else plus_minus(value, error) if error else fixed(value, 4)

    def last_step(self) -> str:
        """The last step of the pipeline, "" for raw rows."""
        pipelines = [row["pipeline"] for row in self._rows.values() if row.get("pipeline")]
        return pipelines[0][-1] if pipelines else ""


def findings(rows: Iterable[Row]) -> list[str]:
    """The sentences that these rows support, the most important first; empty where they support none."""
    values = RunValues(rows)
    return [sentence for about in (_nearest, _gap, _cone, _dimensions) if (sentence := about(values))]


def across(runs: Sequence[tuple[str, Iterable[Row]]]) -> list[str]:
    """What several runs have in common and where they differ: how many keep pairs together, and the least and the
    largest gap, average cosine and number of directions, which are ties within two standard errors and undecided
    where an error is not known.

    Args:
        runs: The name of each run, and its rows.
    """
    found = [(name, RunValues(rows)) for name, rows in runs]
    sentences = []
    sides = [side for _, values in found if (side := _side(values)) is not None]
    if len(sides) > 1:
        sentences.append(WORDS("sides", sides.count("text"), sides.count("image"), len(sides)))
    for macro, measure, modalities in (
        ("gaps", "modality_gap", ("both",)),
        ("neighbors", "retrieval[mixed].image.same_modality_at_10", ("both",)),
        ("cosines", "average_cosine", ("image", "text")),
        ("spreads", "participation_ratio", ("image", "text")),
    ):
        ranges = [(name, ends) for name in modalities if (ends := _ends(found, measure, name))]
        if ranges:
            sentences.append(WORDS(macro, ranges))
    return sentences


def _ends(found: Sequence[tuple[str, RunValues]], measure: str, modality: str) -> dict[str, Any] | None:
    """The least and the largest value with the names of their runs; None of fewer than two runs."""
    known = [
        ({"value": value, "standard_error": values.get(measure, modality, "standard_error")}, name)
        for name, values in found
        if (value := values.get(measure, modality)) is not None
    ]
    if len(known) < 2:
        return None
    ends = [choose(known, key=lambda each: each[0]["value"]) for choose in (min, max)]
    least, most = (row for row, _ in ends)
    low, high = (plus_minus(*row.values(), least["value"], most["value"]) for row in (least, most))
    apart = differ(least, most)
    tie = None if apart is None else not apart  # None: an error is not known
    return {"low": low, "high": high, "at": [name for _, name in ends], "count": len(known), "tie": tie}


def _side(values: RunValues) -> str | None:
    """What an image is closer to, its own "text" or a random "image", "" for a tie; None if that is not known."""
    matching, stranger = values.get("matching_cosine"), values.get("average_cosine", "image")
    if matching is None or stranger is None or (by_chance := _by_chance(values)) is None:
        return None
    same = fixed(matching, 4) == fixed(stranger, 4) or by_chance
    return "" if same else "text" if matching > stranger else "image"


def _by_chance(values: RunValues) -> bool | None:
    """Whether the two cosines of `_nearest` differ by less than two standard errors, or by less than four of n cosines
    of random directions; None where the errors are not known."""
    pairs, images = ("matching_cosine", "both"), ("average_cosine", "image")
    n, d = (values.get(*pairs, key) for key in ("n", "d"))
    own, other = ({key: values.get(*row, key) for key in ("value", "standard_error")} for row in (pairs, images))
    if own["value"] is None or other["value"] is None:
        return None
    if n and d and abs(own["value"] - other["value"]) < 4 / math.sqrt(n * d):
        return True
    apart = differ(own, other)
    return None if apart is None else not apart


def before_and_after(before: Iterable[Row], after: Iterable[Row], when: tuple[str, str]) -> list[str]:
    """What changed between two runs of the same rows.

    Args:
        before: Rows of the first run.
        after: Rows of the second.
        when: What the runs are called, as in "before training".
    """
    both = RunValues(before), RunValues(after)

    def two(measure: str, modality: str = "both") -> Sequence[Mapping[str, Any]] | None:
        """Both values as numbers and as text with their errors."""
        found = [
            {"value": value, "text": plus_minus(value, error) if error else brief(value)}
            for values in both
            if (value := values.get(measure, modality)) is not None
            for error in [values.get(measure, modality, "standard_error")]
        ]
        return found if len(found) == 2 else None

    own, image, text = two("matching_cosine"), two("average_cosine", "image"), two("average_cosine", "text")
    directions = [two("participation_ratio", modality) for modality in ("image", "text")]
    d = both[1].get("participation_ratio", "image", "d")
    facts = {
        "gap_then": [two("modality_gap")],
        "pairs_then": [own, image],
        "cones_then": [image, text],
        "classes_then": [two("silhouette", "image")],
        "dimensions_then": [
            pair and [(each["text"] if "±" in each["text"] else _count(each["value"])) for each in pair]
            for pair in directions
        ],
    }
    more = {
        "gap_then": {"null": both[1].get("modality_gap", key="null_value")},
        "dimensions_then": {"d": f"{d or 0:.0f}"},
    }
    return [WORDS(macro, when, *pairs, **more.get(macro, {})) for macro, pairs in facts.items() if None not in pairs]


def _nearest(values: RunValues) -> str | None:
    """Whether an image is closer to its own text or to another image, or to both alike."""
    matching, stranger = values.get("matching_cosine"), values.get("average_cosine", "image")
    if matching is None or stranger is None:
        return None
    own = {"value": matching, "to": "its own text", "cosine": values.cosine("matching_cosine")}
    image = {"value": stranger, "to": "a random image", "cosine": values.cosine("average_cosine", "image")}
    near, far = (own, image) if matching > stranger else (image, own)
    same = fixed(matching, 4) == fixed(stranger, 4)
    return WORDS("nearest", near, far, values.cosine("random_cosine"), same, _by_chance(values))


def _gap(values: RunValues) -> str | None:
    gap, null, error = (values.get("modality_gap", key=key) for key in ("value", "null_value", "standard_error"))
    if gap is None:
        return None
    if gap < ROUNDING and values.last_step().startswith("center"):
        return WORDS("no_gap")
    return WORDS("gap", plus_minus(gap, error, null), None if null is None else to_error(null, error, gap))


def _cone(values: RunValues) -> str | None:
    """Few rows always fit into a cone, so one is claimed only where it is clearly narrower than the null value."""
    angles, nulls = [], []
    for name in ("image", "text"):
        angle, null = (values.get("cone_half_angle", name, key) for key in ("value", "null_value"))
        if angle is not None and angle < min(90, math.inf if null is None else CLEARLY * null):
            angles.append((name, math.ceil(angle)))  # rounded up, so that "within" stays true
            nulls.append(None if null is None else f"{fixed(null, 0)}°")
    return WORDS("cone", angles, _known(nulls)) if angles else None


def _dimensions(values: RunValues) -> str | None:
    parts, nulls = [], []
    for name in ("image", "text"):
        keys = ("value", "null_value", "d", "standard_error")
        ratio, null, d, error = (values.get("participation_ratio", name, key) for key in keys)
        if ratio is not None and d is not None:
            parts.append((name, plus_minus(ratio, error) if error else _count(ratio), f"{d:.0f}"))
            nulls.append(None if null is None else _count(null))
    return WORDS("dimensions", parts, _known(nulls)) if parts else None


def _known(nulls: Sequence[str | None]) -> Sequence[str | None]:
    """The null values, none unless all are known."""
    return [] if None in nulls else nulls


def _count(ratio: float) -> str:
    """An effective number: 2.4, 43."""
    return fixed(ratio, 1 if ratio < 9.95 else 0)
