"""What the report is told of numbers that an experiment has of its own, beside those of the registries."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

INFINITY = float("inf")


@dataclass(frozen=True)
class Explained:
    """What the report tells of a number (`report.table.Explanation`)."""

    name: str
    title: str
    summary: str
    reading: str
    trap: str
    formula: str
    range: tuple[float | str, float | str]
    direction: str
    reference: str
    group: str = "maps"
    unit: str = ""


def explainer(experiment: str, **defaults: Any) -> Callable[..., Explained]:
    """Makes the `Explained` of an experiment, whose numbers are called `<experiment>.<name>`: title to formula, the two
    ends of the range, and by their names the others, where they are not `defaults`."""

    def number(
        name: str, title: str, summary: str, reading: str, trap: str, formula: str, low: float, high: float, **rest: Any
    ) -> Explained:
        rest = {"direction": ""} | defaults | rest
        return Explained(f"{experiment}.{name}", title, summary, reading, trap, formula, (low, high), **rest)

    return number
