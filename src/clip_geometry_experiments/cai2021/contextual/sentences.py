"""What the layers say: whether words lie in a cone, what is left of it within clusters, and how many dimensions."""

from collections.abc import Sequence
from typing import Any

from clip_geometry.display.numbers import number, plus_minus
from clip_geometry_experiments.cai2021.contextual.figures import COSINES, Row, words
from clip_geometry_experiments.report.findings import differ


def sentences(runs: Sequence[tuple[str, Sequence[Row]]]) -> list[str]:
    """Least and largest values over the layers. runs: the name of a run, "" for a single one, and its rows."""
    found = []
    for name, rows in runs:
        between, within, adjusted = (_ends(rows, COSINES[kind]) for kind in ("inter", "intra", "adjusted inter"))
        if between:
            found.append(words("cone", name, between, within))
        if adjusted:
            counts = [int(row["value"]) for row in _layers(rows, "contextual.clusters")]
            found.append(words("clusters", name, adjusted, counts))
        # neighbors among all rows where those were searched
        lids = [row for row in _layers(rows, "lid") if "probes" in row["at"]] or _layers(rows, "lid")
        if dimension := _ends(lids, "lid"):
            nulls = [row["null_value"] for row in lids if row.get("null_value") is not None]
            found.append(words("dimensions", name, dimension, number(min(nulls)) if nulls else None, lids[0]["d"]))
    # of several runs, what is the same number first
    return sorted(found, key=lambda said: said.split(": ")[-1][:20]) if len(runs) > 1 else found


def _layers(rows: Sequence[Row], measure: str) -> list[Row]:
    wanted = (row for row in rows if row["measure"] == measure and row["value"] is not None)
    return [row for row in wanted if row["at"].get("layer") != "mean"]


def _ends(rows: Sequence[Row], measure: str) -> dict[str, Any] | None:
    found = _layers(rows, measure)
    if not found:
        return None
    ends = [choose(found, key=lambda row: row["value"]) for choose in (min, max)]
    return {
        "texts": [plus_minus(row["value"], row.get("standard_error")) for row in ends],
        "layers": [row["at"].get("layer") for row in ends],
        "one": len(found) == 1,
        "tie": differ(*ends) is False,
    }
