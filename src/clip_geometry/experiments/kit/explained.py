"""What the report says about the numbers of an experiment, beside those of the registries."""

from dataclasses import dataclass
from pathlib import Path

from clip_geometry.config import read_yaml


@dataclass(frozen=True)
class Explained:
    """What the report says about a number (`report.table.Explanation`)."""

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


def read_explanations(file: Path) -> dict[str, Explained]:
    """Name → explanation, from the experiment's numbers.yaml.

    Args:
        file: YAML with `experiment` (the prefix of the names), `defaults` and `numbers`: name → fields of `Explained`,
            where they are not the defaults.
    """
    found = read_yaml(file)
    defaults = {"direction": ""} | found.get("defaults", {})
    made = (
        Explained(**{**defaults, **fields, "name": f"{found['experiment']}.{name}", "range": tuple(fields["range"])})
        for name, fields in found["numbers"].items()
    )
    return {each.name: each for each in made}
