"""What the core measures say of a set of embeddings, in two or three sentences."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from clip_geometry.display.origin import Row
from clip_geometry.display.words import Words
from clip_geometry.measuring.names import CORE

WORDS = Words(Path(__file__).with_name("verdict.j2"))
CONE = 0.2  # average cosine from which rows that are no sphere are called a cone
FAR, NEAR = 0.5, 0.95  # IsoScore relative to its null value: below, far from isotropic; above, as good as isotropic
SEPARATED = 0.9  # share of the own modality among ten neighbors
ROUNDING = 1e-9  # values that differ by less are the same
CLEAR = 2.0  # standard errors of a difference, from which it is claimed
Found = Mapping[str, Mapping[str, Row]]


def verdict(rows: Sequence[Row]) -> str:
    """What the numbers say together. A difference of less than two standard errors is called none, and nothing is
    claimed of a number without a standard error.

    Args:
        rows: Records of one table, those without a value included.

    Returns:
        Sentences on cones and isotropy, on the gap, and on pairs, each where there are numbers for it. Empty where the
        core was not measured, or in groups.
    """
    if not set(CORE) <= {row["measure"] for row in rows} or any(row["at"].keys() - {"modality"} for row in rows):
        return ""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.get("value") is not None and row.get("null_value") is not None:
            found.setdefault(row["measure"], {})[row["at"]["modality"]] = row
    parts = ("; ".join(part) for part in (_sets(found), _gap(found), _pairs(found)))
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in parts if part)


def _sets(found: Found) -> Iterator[str]:
    for measure, kind in (("average_cosine", _cone), ("isoscore[unbiased]", _isotropy)):
        places = found.get(measure, {})
        groups: dict[str, list[str]] = {}
        for place, row in places.items():
            if _has_error(row):
                groups.setdefault(kind(row), []).append(place)
        for name, members in groups.items():
            yield WORDS(name, members, [places[each]["value"] for each in members], len(places) == 1)


def _cone(row: Row) -> str:
    if row["value"] <= 0 or _from_null(row) != 1:
        return "no_cone"
    return "cone" if row["value"] >= CONE else "weak"


def _isotropy(row: Row) -> str:
    if row["value"] >= NEAR * row["null_value"] or _from_null(row) != -1:
        return "isotropic"
    return "far" if row["value"] < FAR * row["null_value"] else "uneven"


def _gap(found: Found) -> Iterator[str]:
    gaps = {place: _beside_chance(place, row, found) for place, row in found.get("modality_gap", {}).items()}
    if len(gaps) > 1:
        ends = (end(gaps, key=lambda place: gaps[place]["value"]) for end in (min, max))
        without = [_names(place, found) for place, row in gaps.items() if _has_error(row) and _from_null(row) != 1]
        every = len(without) == len(gaps)
        yield WORDS("gaps", *((gaps[place]["value"], _names(place, found)) for place in ends), without, every)
    if len(gaps) != 1:
        return
    ((place, gap),) = gaps.items()
    names, apart = _names(place, found), _from_null(gap) == 1
    kind = "means" if not _has_error(gap) else "gap" if apart else "no_gap"
    yield WORDS(kind, gap["value"], gap["null_value"], [] if place == "both" else names)
    own = (found.get(f"retrieval[mixed].{role}.same_modality_at_10", {}) for role in ("image", "text"))
    shares = [rows[place] for rows in own if place in rows]
    if len(shares) == 2:
        kind = "mixed"
        if apart and all(each["value"] >= SEPARATED > each["null_value"] for each in shares):
            kind = "separated"
        elif all(_has_error(each) and _from_null(each) == 0 for each in shares):
            kind = "even"
        yield WORDS(kind, *(each["value"] for each in shares), names)


def _beside_chance(place: str, gap: Row, found: Found) -> Row:
    """The gap with what chance gives two samples of these rows about one mean: the null value, which is that of rows
    without a common direction, times √(1 − average cosine)."""
    cosines = [row["value"] for name in _names(place, found) if (row := found.get("average_cosine", {}).get(name))]
    spread = 1 - max(0.0, sum(cosines) / len(cosines)) if cosines else 1.0
    return {**gap, "null_value": gap["null_value"] * math.sqrt(spread)}


def _pairs(found: Found) -> Iterator[str]:
    cosines = [found.get(name, {}) for name in ("matching_cosine", "random_cosine")]
    if any(len(rows) != 1 for rows in cosines):
        return
    (place,) = cosines[0]
    matching, random = (rows[place] for rows in cosines)
    if not (_has_error(matching) and _has_error(random)):
        yield WORDS("cosines", matching["value"], random["value"])
        return
    error = math.hypot(matching["standard_error"], random["standard_error"])
    closer = matching["value"] - random["value"] > max(CLEAR * error, ROUNDING)
    text = WORDS("pairs" if closer else "no_pairs", matching["value"], random["value"])
    first = [found.get(f"retrieval.{way}.r_at_1", {}) for way in ("image_to_text", "text_to_image")]
    if closer and all(place in rows for rows in first):
        text += " " + WORDS("found", *(rows[place]["value"] for rows in first), _names(place, found))
    yield text


def _names(place: str, found: Found) -> list[str]:
    """The modalities of a couple, in the order in which a measure takes them."""
    return sorted(found.get("average_cosine", ("image", "text"))) if place == "both" else place.split("+")


def _from_null(row: Row) -> int:
    """1 where the value is clearly above its null value, −1 below: this is one draw, with an error as large."""
    difference = row["value"] - row["null_value"]
    clear = _has_error(row) and abs(difference) > max(CLEAR * math.sqrt(2) * row["standard_error"], ROUNDING)
    return (1 if difference > 0 else -1) if clear else 0


def _has_error(row: Row) -> bool:
    return row.get("standard_error") is not None
