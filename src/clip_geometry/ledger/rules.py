"""The format of a ledger file: which config and result rows stand beside which published numbers, or why none do."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from clip_geometry.config import Config, read_yaml, validate

FOLDER = Path(__file__).parent

Scalar = bool | int | float | str | None
Where = dict[str, Scalar | tuple[Scalar, ...]]


def _tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


class Variant(Config):
    """One of several of our rows beside the same number. label: distinguishes it from the others."""

    label: str
    where: Where = Field(default_factory=dict)
    cause: str = ""


class Rule(Config):
    """The rule for a section of published.yaml, or for one label in it.

    Args:
        config: configs/<this>.yaml computes ours (several are possible); its run is named with "-" for "/".
        reason: Why nothing here computes it, one sentence.
        where: Selectors of result rows, see `comparing`.
        same: Selectors that a row with the paper's own model and data fulfills; any other row is a proxy.
        cause: Why ours differs, one sentence.
        needs: What the paper's own setup needs.
        arguments: Arguments of `clip-geometry run` for the paper's own setup.
        unit: The printed unit.
        variants: Several rows of ours beside the number.
    """

    config: Annotated[tuple[str, ...], BeforeValidator(_tuple)] = ()
    reason: str = ""
    where: Where = Field(default_factory=dict)
    same: Where = Field(default_factory=dict)
    cause: str = ""
    needs: str = ""
    arguments: str = ""
    unit: Literal["", "percent"] | None = None
    variants: tuple[Variant, ...] = ()


class Section(Rule):
    """The rule for a section of published.yaml.

    Args:
        title: Its heading.
        match: The fields of a result row that hold the labels of a number, null for a label that is no field.
        positions: Names of the positions in a list.
        labels: What a label adds to the rule, or replaces.
    """

    title: str
    match: tuple[str | None, ...] = ()
    positions: tuple[str, ...] = ()
    labels: dict[str, Rule] = Field(default_factory=dict)


class Finding(Config):
    """A statement about the numbers of a paper. evidence: tests, commands and sources."""

    title: str
    text: str
    evidence: tuple[str, ...] = Field(min_length=1)


class Ledger(Config):
    findings: tuple[Finding, ...] = ()
    sections: dict[str, Section]


def ledger_file(paper: str) -> Path:
    return FOLDER / f"{paper}.yaml"


@cache
def read_ledger(path: Path) -> Ledger:
    """Read a ledger strictly: an unknown key is an error that names the nearest known one."""
    return validate(Ledger, read_yaml(path), f"ledger {path.name}")


def combined(rules: Sequence[Rule]) -> Rule:
    """Merge rules, the more specific ones last: selectors add up, everything else is replaced.

    A reason replaces a config, and a config replaces a reason. `Entry.causes` collects the causes.
    """
    values: dict[str, Any] = {}
    for rule in rules:
        given = {key: getattr(rule, key) for key in Rule.model_fields if key in rule.model_fields_set}
        if {"config", "reason"} & given.keys():
            values |= {"config": (), "reason": ""}
        both = {key: {**values.get(key, {}), **given.get(key, {})} for key in ("where", "same")}
        values |= given | both
    return Rule(**values)
