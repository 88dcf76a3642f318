"""What the report is told of numbers that an experiment has of its own, beside those of the registries."""

from dataclasses import dataclass

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
