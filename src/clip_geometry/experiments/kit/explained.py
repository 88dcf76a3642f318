"""Explanations of the numbers of an experiment, beside those of the registered measures."""

from pathlib import Path

from clip_geometry.config import read_yaml
from clip_geometry.report.table import Explained


def read_explanations(file: Path) -> dict[str, Explained]:
    """Read the explanations of an experiment from its numbers.yaml.

    Args:
        file: YAML with `experiment` (the prefix of the names), `defaults`, and `numbers`: name → the fields of
            `Explained` that differ from the defaults.

    Returns:
        Name → explanation.
    """
    found = read_yaml(file)
    defaults = {"direction": ""} | found.get("defaults", {})
    made = (
        Explained(**{**defaults, **fields, "name": f"{found['experiment']}.{name}", "range": tuple(fields["range"])})
        for name, fields in found["numbers"].items()
    )
    return {each.name: each for each in made}
