"""What the pictures of fine-tuning show, read from result rows: numbers of each method over its seeds."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Row = Mapping[str, Any]
SEED, ALL = "training.seed", "all"
PERFORMANCE = "finetune.performance"
EMPTY = 0.05  # of the height of the tallest bar: nothing is to be seen on that scale


class Way(NamedTuple):
    """A method as it was trained. value: λ, or the number of components that all_but_the_top removes."""

    method: str
    value: float

    @property
    def regularised(self) -> bool:
        """Whether it is a point of the λ axis of I-STAR, 0 among them."""
        return self.method in ("none", "i_star")

    @property
    def words(self) -> str:
        """`λ = −1`; `none`; `CosReg 1`; `top 3 removed`."""
        value = f"{self.value:g}".replace("-", "−")
        named = {"none": "none (λ = 0)", "i_star": f"I-STAR, λ = {value}", "cosreg": f"CosReg, λ = {value}"}
        return named.get(self.method, f"all-but-the-top, {value}")


def ways(rows: Iterable[Row]) -> list[Way]:
    """Those that were trained, in their order."""
    return sorted({_way(row) for row in _trainings(rows)}, key=_place)


def _place(way: Way) -> tuple[Any, ...]:
    """I-STAR by λ, plain training as 0 among them, then the others."""
    return (not way.regularised, "" if way.regularised else way.method, way.value)


def over_seeds(
    rows: Iterable[Row], measure: str, at: Mapping[str, Any] | None = None
) -> dict[Way, NDArray[np.float64]]:
    """Way → the values of its seeds, in their order, of one measure in one place, where they are defined."""
    found: dict[Way, dict[int, float]] = {}
    for row in _trainings(rows):
        if row["measure"] == measure and (at or {}).items() <= row["at"].items() and row["value"] is not None:
            found.setdefault(_way(row), {})[row["at"][SEED]] = row["value"]
    return {way: np.array([found[way][seed] for seed in sorted(found[way])]) for way in sorted(found, key=_place)}


def lists(rows: Iterable[Row], field: str) -> dict[Way, NDArray[np.float64]]:
    """Way → the list that its rows carry beside their value (`coordinates`, `histogram`), of its first seed."""
    found: dict[Way, NDArray[np.float64]] = {}
    for row in _trainings(rows):
        if field in row:
            found.setdefault(_way(row), np.array(row[field], dtype=float))
    return found


def visible(means: Mapping[Way, NDArray[np.float64]], shown: Sequence[Way]) -> list[Way]:
    """Those of the shown ones whose largest coordinate is above a few per cent of the largest of all: which one it is
    is chance in the others (all-but-the-top takes the mean away)."""
    largest = {way: float(np.abs(means[way]).max()) for way in shown if way in means}
    return [way for way, height in largest.items() if height > EMPTY * max(largest.values())]


def metric(rows: Iterable[Row]) -> str:
    """How the task's own number is called."""
    named = (row["at"].get("metric") for row in rows if row["measure"] == PERFORMANCE)
    name = next((each for each in named if each), "performance")
    return {"matthews": "Matthews' correlation", "score_pearson": "Pearson correlation", "f1": "F1"}.get(name, name)


def chosen(found: Sequence[Way]) -> list[Way]:
    """At most five for a figure with a panel or a line of each: both ends of λ, 0, CosReg, all-but-the-top."""
    axis = [way for way in found if way.regularised]
    picked = [*axis[:1], *(way for way in axis if way.value == 0), *axis[-1:]]
    for method in ("cosreg", "all_but_the_top"):
        picked += [way for way in found if way.method == method][-1:]
    return list(dict.fromkeys(picked))


def _trainings(rows: Iterable[Row]) -> Iterable[Row]:
    return (row for row in rows if row["at"].get(SEED) not in (None, ALL))


def _way(row: Row) -> Way:
    at = row["at"]
    return Way(at["method"], float(at.get("lambda", at.get("components", 0))))
