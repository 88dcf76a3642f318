"""What the numbers of one run say, in plain sentences: only what its rows state, nothing fitted to a model."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from clip_geometry.report.numbers import as_number, brief, fixed, plus_minus, to_error

Row = Mapping[str, Any]
CLEARLY = 0.9  # a cone is called one where its half angle is below this share of the null value
ROUNDING = 1e-9  # a gap below this after centring is rounding


def _cosine(value: float) -> str:
    return fixed(value, 4)


class Values:
    """The rows of one run by measure and set."""

    def __init__(self, rows: Iterable[Row]):
        self._rows = {(row["measure"], (row.get("at") or {}).get("modality")): row for row in rows}

    def get(self, measure: str, modality: str = "both", key: str = "value") -> float | None:
        return as_number(self._rows.get((measure, modality), {}).get(key))

    def quote(self, measure: str, modality: str = "both", plain: Callable[[float], str] = _cosine) -> str:
        """A value that is there with its standard error; `plain` where the row has none."""
        value, error = self.get(measure, modality), self.get(measure, modality, "standard_error")
        return plus_minus(value, error) if error or value is None else plain(value)

    def last_step(self) -> str:
        """The last step of the pipeline, "" for raw rows."""
        pipelines = [row["pipeline"] for row in self._rows.values() if row.get("pipeline")]
        return pipelines[0][-1] if pipelines else ""


def findings(rows: Iterable[Row]) -> list[str]:
    """The sentences that these rows support, the most telling first; empty where they support none."""
    values = Values(rows)
    sentences = (tell(values) for tell in _TELL)
    return [sentence for sentence in sentences if sentence]


def before_and_after(before: Iterable[Row], after: Iterable[Row], when: tuple[str, str]) -> list[str]:
    """What changed between two runs of the same rows, in round numbers. when: what the runs are called, as in "before
    training"."""
    both = Values(before), Values(after)
    told = [sentence for tell in _TELL_BOTH if (sentence := tell(*both, when))]
    return [f"{sentence[:1].upper()}{sentence[1:]}" for sentence in told]


def _gap_then(before: Values, after: Values, when: tuple[str, str]) -> str | None:
    gaps, null = _two(before, after, "modality_gap", "both"), after.get("modality_gap", key="null_value")
    if gaps is None:
        return None
    without = "" if null is None else f"; without a gap it would be about {brief(null)}"
    return f"{when[0]} the mean image and the mean text lie {gaps[0]} apart, {when[1]} {gaps[1]}{without}."


def _pairs_then(before: Values, after: Values, when: tuple[str, str]) -> str | None:
    own, other = _two(before, after, "matching_cosine", "both"), _two(before, after, "average_cosine", "image")
    if own is None or other is None:
        return None
    told = []
    for values, mine, random in zip((before, after), own, other, strict=True):
        here, there = (f"its own caption (cosine {mine})", f"a picture at random (cosine {random})")
        own_is_nearer = (values.get("matching_cosine") or 0) > (values.get("average_cosine", "image") or 0)
        near, far = (here, there) if own_is_nearer else (there, here)
        told.append(f"nearer to {near} than to {far}")
    return f"{when[0]} a picture is {told[0]}, {when[1]} {told[1]}."


def _cones_then(before: Values, after: Values, when: tuple[str, str]) -> str | None:
    image, text = (_two(before, after, "average_cosine", name) for name in ("image", "text"))
    if image is None or text is None:
        return None
    return (
        f"{when[0]} two images at random have a cosine of {image[0]} and two texts of {text[0]}; {when[1]} {image[1]} "
        f"and {text[1]}."
    )


def _classes_then(before: Values, after: Values, when: tuple[str, str]) -> str | None:
    values = _two(before, after, "silhouette", "image")
    if values is None:
        return None
    return f"With the class as label the silhouette of images is {values[0]} {when[0]} and {values[1]} {when[1]}."


def _dimensions_then(before: Values, after: Values, when: tuple[str, str]) -> str | None:
    d = after.get("participation_ratio", "image", "d")
    image, text = (_two(before, after, "participation_ratio", name, _count) for name in ("image", "text"))
    if image is None or text is None:
        return None
    return (
        f"{when[1]} the variance of images spreads over the equivalent of {image[1]} of {d:.0f} directions and that of "
        f"texts over {text[1]} ({when[0]} {image[0]} and {text[0]})."
    )


def _two(
    before: Values, after: Values, measure: str, modality: str, words: Callable[[float], str] = brief
) -> tuple[str, str] | None:
    first, second = (values.get(measure, modality) for values in (before, after))
    return None if first is None or second is None else (words(first), words(second))


def _own_caption(values: Values) -> str | None:
    matching, random = values.get("matching_cosine"), values.get("random_cosine")
    stranger = values.get("average_cosine", "image")
    if matching is None or stranger is None:
        return None
    own = (matching, "its own text", values.quote("matching_cosine"))
    other = (stranger, "another image drawn at random", values.quote("average_cosine", "image"))
    (near, who, this), (far, whom, that) = sorted((own, other), reverse=True)
    tail = "" if random is None else f"; the text of another image comes to {values.quote('random_cosine')}"
    if _cosine(near) == _cosine(far):
        both = " and ".join(dict.fromkeys((this, that)))
        return f"On average an image is as close to {who} as to {whom} (cosine {both}){tail}."
    if near - far < _scatter(values):
        return f"An image is no closer to {who} (cosine {this}) than to {whom} ({that}) beyond what chance gives{tail}."
    return f"On average an image is closer to {who} (cosine {this}) than to {whom} ({that}){tail}."


def _scatter(values: Values) -> float:
    """What chance gives: two standard errors of the two cosines, and four of n cosines of random directions."""
    n, d = (values.get("matching_cosine", key=key) for key in ("n", "d"))
    rows = (("matching_cosine", "both"), ("average_cosine", "image"))
    errors = (values.get(*row, "standard_error") or 0.0 for row in rows)
    return max(2 * math.hypot(*errors), 4 / math.sqrt(n * d) if n and d else 0.0)


def _gap(values: Values) -> str | None:
    gap, null = values.get("modality_gap"), values.get("modality_gap", key="null_value")
    if gap is None:
        return None
    if gap < ROUNDING and values.last_step().startswith("center"):
        return "The mean image and the mean text coincide, because centring was the last step."
    error = values.get("modality_gap", key="standard_error")
    without = "" if null is None else f"; without a gap it would be about {to_error(null, error, gap)}"
    return f"The mean image and the mean text lie {plus_minus(gap, error, null)} apart{without}."


def _cone(values: Values) -> str | None:
    """Few rows always fit into a cone, so one is claimed only where it is clearly narrower than the null value."""
    parts, nulls = {}, []
    for name in ("image", "text"):
        angle, null = (values.get("cone_half_angle", name, key) for key in ("value", "null_value"))
        if angle is not None and angle < min(90, math.inf if null is None else CLEARLY * null):
            lies = "" if parts else " lies"
            # rounded up, so that "within" stays true
            parts[name] = f"every {name}{lies} within {math.ceil(angle)}° of the mean {name} direction"
            nulls.append(None if null is None else f"{fixed(null, 0)}°")
    if not parts:
        return None
    who = "Each modality sits" if len(parts) == 2 else f"The {next(iter(parts))}s sit"
    return f"{who} in a cone: {' and '.join(parts.values())}{_against(nulls, 'reach')}."


def _dimensions(values: Values) -> str | None:
    parts, nulls, dims = [], [], []
    for name in ("image", "text"):
        ratio, null, d = (values.get("participation_ratio", name, key) for key in ("value", "null_value", "d"))
        if ratio is None or d is None:
            continue
        who = "that" if parts else "The variance"
        spread = "over" if parts else "spreads over the equivalent of"
        whole = "" if d in dims else f" of {d:.0f}" + ("" if parts else " directions")
        parts.append(f"{who} of the {name}s {spread} {values.quote('participation_ratio', name, _count)}{whole}")
        nulls.append(None if null is None else _count(null))
        dims.append(d)
    return f"{', '.join(parts)}{_against(nulls, 'give')}." if parts else None


def _against(nulls: list[str | None], verb: str) -> str:
    """What isotropic samples give, where that is known for all that is told."""
    known = [null for null in nulls if null is not None]
    if len(known) < len(nulls):
        return ""
    if len(known) == 1:
        return f"; an isotropic sample of the same size {verb}{'es' if verb.endswith('ch') else 's'} {known[0]}"
    return f"; isotropic samples of the same sizes {verb} {' and '.join(known)}"


def _count(ratio: float) -> str:
    """An effective number: 2.4, 43."""
    return fixed(ratio, 1 if ratio < 9.95 else 0)


_TELL: tuple[Callable[[Values], str | None], ...] = (_own_caption, _gap, _cone, _dimensions)
_TELL_BOTH = (_gap_then, _pairs_then, _cones_then, _classes_then, _dimensions_then)
