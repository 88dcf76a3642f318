"""What the rows of before_after say about maps and repairs: the facts behind the sentences of words.j2."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clip_geometry.display.numbers import as_number, plus_minus
from clip_geometry.display.words import Words

GAP, SILHOUETTE, COSINE, ISOSCORE, ZERO_SHOT = (
    "modality_gap", "modality_silhouette", "average_cosine", "isoscore[unbiased]", "zero_shot.top_1",
)  # fmt: skip
MIXED = "retrieval[mixed]."
WAYS = {"image": "image_to_text", "text": "text_to_image"}
OWN = {modality: f"{MIXED}{modality}.same_modality_at_10" for modality in WAYS}
FIRST = {modality: f"{MIXED}{way}.r_at_1" for modality, way in WAYS.items()}
RECALL = {modality: f"retrieval.{way}.r_at_1" for modality, way in WAYS.items()}
CLOSED = 0.2  # of the gap without a map, below which it counts as closed
OPENED = 0.2  # of the average cosine likewise
ISOTROPIC = 3.0  # times the IsoScore without a map, above which rows count as more isotropic
ERRORS = 2.0  # standard errors of a difference, up to which two shares are a tie

WORDS = Words(Path(__file__).with_name("words.j2"))

Row = Mapping[str, Any]
Key = tuple[str, str, str]  # measure, modality, classes


class Table:
    """Result rows by their line of the table (a map, a repair or a twin), measure, modality and classes."""

    def __init__(self, rows: Sequence[Row]):
        self.names = list(dict.fromkeys(row["at"]["row"] for row in rows))
        self._rows = {
            (at["row"], row["measure"], at.get("modality", "both"), at.get("classes", "")): row
            for row in rows
            for at in [row["at"]]
        }

    def row(self, name: str, measure: str, modality: str = "both", classes: str = "") -> Row | None:
        """The row if it has a finite value."""
        row = self._rows.get((name, measure, modality, classes))
        return None if row is None or as_number(row.get("value")) is None else row

    def get(self, name: str, *key: str) -> float | None:
        row = self.row(name, *key)
        return None if row is None else row["value"]

    def of(self, names: Sequence[str], *key: str) -> dict[str, Row]:
        """Name → row, of the lines that have one."""
        return {name: row for name in names if (row := self.row(name, *key)) is not None}


def tell(rows: Sequence[Row], first: str, twins: Sequence[str] = ()) -> list[str]:
    """The sentences that the rows support.

    Args:
        rows: Result rows of the experiment.
        first: The line of the table that has no map and no repair.
        twins: Lines of other models, which no sentence is about.
    """
    table = Table(rows)
    maps = [name for name in table.names if name != first and name not in twins]
    about = (_index, _best, _isotropic, _accuracy, _clusters, _opened_cone)
    return [sentence for tell_of in about if (sentence := tell_of(table, first, maps))]


def _index(table: Table, first: str, maps: Sequence[str]) -> str | None:
    """A closed gap does not say what a query finds: the map that closes the gap but leaves most images."""
    gap, share = table.get(first, GAP), table.get(first, OWN["image"])
    if share is None:
        return None
    closing = [name for name, row in table.of(maps, GAP).items() if gap and row["value"] < CLOSED * gap]
    left = table.of(closing, OWN["image"])
    closed = None
    if left:
        name = max(left, key=lambda name: left[name]["value"])
        closed = {"name": name, "before": gap, "after": table.get(name, GAP), "share": left[name]["value"]}
    return WORDS("index", share=share, closed=closed)


def _clusters(table: Table, first: str, maps: Sequence[str]) -> str | None:
    """The silhouette of the modalities beside what a query finds."""
    silhouette, share = table.get(first, SILHOUETTE), table.get(first, OWN["image"])
    if silhouette is None or share is None or silhouette > 0.1 or share < 0.6:
        return None
    return WORDS("clusters", silhouette=silhouette, share=share)


def _best(table: Table, first: str, maps: Sequence[str]) -> str | None:
    """The lines on which most queries of both modalities find their partner first in a mixed index, ties included, and
    what ordinary recall becomes on them."""
    names = [modality for modality, key in FIRST.items() if table.row(first, key)]
    before = _both(table, first, names)
    known = {name: row for name in maps if (row := _both(table, name, names)) is not None}
    if before is None or not known:
        return None
    best = max(known.values(), key=lambda row: row["value"])
    if best["value"] <= before["value"]:
        return None
    ties = [name for name, row in known.items() if not _beyond(best, row)]

    def said(name: str) -> dict[str, Any]:
        own = [table.get(name, OWN[modality]) for modality in names]
        shares = [_share(row) for modality in names if (row := table.row(name, FIRST[modality]))]
        return {"name": f"“{name}”", "shares": shares, "own": None if None in own else own}

    found = {"modalities": names, "before": said(first), "lines": [said(name) for name in ties]}
    if not _beyond(best, before):
        return WORDS("no_help", **found)
    return WORDS("best", **found, recall=_recall(table, first, ties))


def _both(table: Table, name: str, modalities: Sequence[str]) -> Row | None:
    """The mean share of queries of these modalities that find their partner first; None where one is unknown.

    Its error is the mean of theirs: the queries are the same pairs, so that the errors may well be equal ones.
    """
    rows = [row for modality in modalities if (row := table.row(name, FIRST[modality]))]
    if not rows or len(rows) < len(modalities):
        return None
    value, error = (sum(each) / len(rows) for each in (map(_value, rows), map(_error, rows)))
    return {"value": value, "standard_error": error, "n": rows[0]["n"]}


def _recall(table: Table, first: str, maps: Sequence[str]) -> dict[str, Any] | None:
    """Ordinary recall without a map and after these; None where it was not measured for all of them."""
    rows = {name: [row for key in RECALL.values() if (row := table.row(name, key))] for name in (first, *maps)}
    before = rows.pop(first)
    if not before or any(len(after) < len(before) for after in rows.values()):
        return None
    losers = [
        f"“{name}”"
        for name, after in rows.items()
        if any(_beyond(b, a) and a["value"] < b["value"] for b, a in zip(before, after, strict=True))
    ]
    return {
        "ways": [row["measure"].split(".")[1].replace("_", " ") for row in before],
        "before": [row["value"] for row in before],
        "after": {name: [row["value"] for row in after] for name, after in rows.items()},
        "losers": losers,
    }


def _value(row: Row) -> float:
    return row["value"]


def _error(row: Row) -> float:
    """Of a share: as recorded, or that of n independent draws."""
    value = row["value"]
    return as_number(row.get("standard_error")) or math.sqrt(max(0.0, value * (1 - value)) / row["n"])


def _beyond(one: Row, other: Row) -> bool:
    """Whether two shares differ by more than ERRORS standard errors. The rows do not say how the two errors depend on
    each other; as of independent samples they are rather too large, so that no tie is called a difference."""
    return abs(one["value"] - other["value"]) > ERRORS * math.hypot(_error(one), _error(other))


def _share(row: Row) -> str:
    return WORDS("share", {"value": row["value"], "error": f"{100 * _error(row):.1g}%"})


def _opened_cone(table: Table, first: str, maps: Sequence[str]) -> str | None:
    """Without its mean a set has no cone, and may be no more isotropic than before."""
    cosine, score = table.get(first, COSINE, "image"), table.get(first, ISOSCORE, "image")
    if cosine is None or score is None:
        return None
    for name, row in table.of(maps, COSINE, "image").items():
        after, scored = row["value"], table.get(name, ISOSCORE, "image")
        if scored is not None and abs(after) < OPENED * cosine and scored < 1.5 * score:
            return WORDS("opened_cone", name=name, cosine=cosine, after=after, score=score, scored=scored)
    return None


def _isotropic(table: Table, first: str, maps: Sequence[str]) -> str | None:
    """The maps that make rows more isotropic and the accuracy worse, beyond its error, and the others that do not."""
    score, right = table.get(first, ISOSCORE, "image"), table.row(first, ZERO_SHOT, "both", "seen")
    if score is None or right is None:
        return None
    accuracy = table.of(maps, ZERO_SHOT, "both", "seen")
    worse, others = [], []
    for name, row in table.of(maps, ISOSCORE, "image").items():
        if row["value"] > ISOTROPIC * score and (after := accuracy.get(name)):
            lost = after["value"] < right["value"] and _beyond(after, right)
            (worse if lost else others).append((name, row["value"], after["value"]))
    return WORDS("isotropic", score=score, accuracy=right["value"], worse=worse, others=others) if worse else None


def _accuracy(table: Table, first: str, maps: Sequence[str]) -> str | None:
    """Seen and held-out classes without a map, and the map by which held-out classes lose most beyond what seen ones
    do, if that is beyond the error."""
    kinds = {kind: row for kind in ("seen", "held out") if (row := table.row(first, ZERO_SHOT, "both", kind))}
    if not kinds:
        return None
    costs, compared = {}, 0
    for name in maps if len(kinds) == 2 else ():
        after = [row for kind in kinds if (row := table.row(name, ZERO_SHOT, "both", kind))]
        if len(after) < 2:
            continue
        seen, held_out, *then = (row["value"] for row in (*kinds.values(), *after))
        compared += 1
        more = (held_out - then[1]) - (seen - then[0])
        error = math.hypot(*map(_error, (*kinds.values(), *after)))
        if more > ERRORS * error:
            costs[more] = {"name": name, "seen": then[0], "held_out": then[1],
                           "more": plus_minus(100 * more, 100 * error)}  # fmt: skip
    chance = as_number(kinds.get("seen", {}).get("null_value"))
    costly = {**costs[max(costs)], "of": compared} if costs else None
    return WORDS("accuracy", kinds=kinds, chance=chance, costly=costly)
