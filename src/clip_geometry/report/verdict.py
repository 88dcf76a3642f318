"""What the core measures say of a set of embeddings, in two or three sentences."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from clip_geometry.report.words import Words
from clip_geometry.results import Row

WORDS = Words(Path(__file__).with_name("verdict.j2"))
CONE = 0.2  # average cosine from which rows that are no sphere are called a cone
FAR, NEAR = 0.5, 0.95  # IsoScore relative to its null value: below, far from isotropic; above, as good as isotropic
SEPARATED = 0.9  # share of the own modality among ten neighbors
Found = Mapping[str, Mapping[str, Row]]


def verdict(rows: Sequence[Row]) -> str:
    """What the numbers say together. A difference of less than two standard errors is called none.

    Args:
        rows: Records of one table. Those of other measures than the core are ignored.

    Returns:
        Sentences on cones and isotropy, on the gap, and on pairs, each where there are numbers for it; empty without.
    """
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.get("value") is not None:
            found.setdefault(row["measure"], {})[row["at"]["modality"]] = row
    parts = ("; ".join(part) for part in (_sets(found), _gap(found), _pairs(found)))
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in parts if part)


def _sets(found: Found) -> Iterator[str]:
    for measure, kind in (("average_cosine", _cone), ("isoscore[unbiased]", _isotropy)):
        places = found.get(measure, {})
        groups: dict[str, list[str]] = {}
        for place, row in places.items():
            groups.setdefault(kind(row), []).append(place)
        for name, members in groups.items():
            yield WORDS(name, members, [places[each]["value"] for each in members], len(places) == 1)


def _cone(row: Row) -> str:
    if row["value"] - row["null_value"] <= 2 * _error(row):
        return "no_cone"
    return "cone" if row["value"] >= CONE else "weak"


def _isotropy(row: Row) -> str:
    if row["value"] >= NEAR * row["null_value"] or row["null_value"] - row["value"] <= 2 * _error(row):
        return "isotropic"
    return "far" if row["value"] < FAR * row["null_value"] else "uneven"


def _gap(found: Found) -> Iterator[str]:
    gaps = found.get("modality_gap", {})
    if len(gaps) > 1:
        low, *_, high = sorted(gaps, key=lambda place: gaps[place]["value"])
        yield WORDS("gaps", gaps[low]["value"], low, gaps[high]["value"], high)
    if len(gaps) != 1:
        return
    gap, own = (
        _only(found, "modality_gap"),
        [f"retrieval[mixed].{each}.same_modality_at_10" for each in ("image", "text")],
    )
    apart = gap["value"] - gap["null_value"] > 2 * _error(gap)
    yield WORDS("gap" if apart else "no_gap", gap["value"], gap["null_value"])
    if all(len(found.get(name, {})) == 1 for name in own):
        shares = [_only(found, name) for name in own]
        kind = "mixed"
        if apart and all(each["value"] >= SEPARATED > each["null_value"] for each in shares):
            kind = "separated"
        elif all(abs(each["value"] - each["null_value"]) <= 2 * _error(each) for each in shares):
            kind = "even"
        yield WORDS(kind, *(each["value"] for each in shares))


def _pairs(found: Found) -> Iterator[str]:
    if any(len(found.get(name, {})) != 1 for name in ("matching_cosine", "random_cosine")):
        return
    matching, random = _only(found, "matching_cosine"), _only(found, "random_cosine")
    closer = matching["value"] - random["value"] > 2 * math.hypot(_error(matching), _error(random))
    text = WORDS("pairs" if closer else "no_pairs", matching["value"], random["value"])
    first = [f"retrieval.{way}.r_at_1" for way in ("image_to_text", "text_to_image")]
    if closer and all(len(found.get(name, {})) == 1 for name in first):
        text += " " + WORDS("found", *(_only(found, name)["value"] for name in first))
    yield text


def _only(found: Found, measure: str) -> Row:
    (row,) = found[measure].values()
    return row


def _error(row: Row) -> float:
    return row.get("standard_error") or 0.0
