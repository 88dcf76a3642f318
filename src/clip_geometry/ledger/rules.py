"""The ledger file of a paper: which config and which result rows stand beside which published numbers, and why not."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from clip_geometry.config import Config, read_yaml, validate

FOLDER = Path(__file__).parent

Scalar = bool | int | float | str | None
Where = dict[str, Scalar | tuple[Scalar, ...]]


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


class Variant(Config):
    """One of several of our rows beside the same number. label: what tells it from the others."""

    label: str
    where: Where = Field(default_factory=dict)
    cause: str = ""


class Rule(Config):
    """What holds for a section of published.yaml, or for one label in it.

    config: configs/<this>.yaml computes ours (several are possible), whose run is named with "-" for "/". reason: why
    nothing here does, one sentence. where: selectors of result rows (see `selecting`). same: those that a row of the
    paper's own model and data fulfils; a row that does not is a proxy. cause: why ours differs, one sentence. needs:
    what the paper's own setup needs; arguments: what to add to `clip-geometry run` for it. unit: what is printed.
    """

    config: Annotated[tuple[str, ...], BeforeValidator(_several)] = ()
    reason: str = ""
    where: Where = Field(default_factory=dict)
    same: Where = Field(default_factory=dict)
    cause: str = ""
    needs: str = ""
    arguments: str = ""
    unit: Literal["", "percent"] | None = None
    variants: tuple[Variant, ...] = ()


class Section(Rule):
    """match: the fields of a result row that hold the labels on the way to a number, null for those that hold none.

    positions: names of the places of a list. labels: what one of the labels adds to the rule, or says instead.
    """

    title: str
    match: tuple[str | None, ...] = ()
    positions: tuple[str, ...] = ()
    labels: dict[str, Rule] = Field(default_factory=dict)


class Finding(Config):
    """What the numbers of a paper turn out to be. evidence: tests, commands and sources."""

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
    """Strictly: an unknown key is an error that names the nearest known one."""
    return validate(Ledger, read_yaml(path), f"ledger {path.name}")


def combined(rules: Sequence[Rule]) -> Rule:
    """One rule of several, the later ones more special: selectors add up, all else is replaced.

    A reason takes the place of a config, and a config that of a reason. Causes are left to the reader.
    """
    values: dict[str, Any] = {}
    for rule in rules:
        given = {key: getattr(rule, key) for key in Rule.model_fields if key in rule.model_fields_set}
        if {"config", "reason"} & given.keys():
            values |= {"config": (), "reason": ""}
        both = {key: {**values.get(key, {}), **given.get(key, {})} for key in ("where", "same")}
        values |= given | both
    return Rule(**values)
