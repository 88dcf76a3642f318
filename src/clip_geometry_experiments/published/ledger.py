"""Every published number with its printed digits, and the rules of each paper.

The rules say which of our rows a number is compared with, or why there are none. Experiments do not know the papers.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from clip_geometry.config import Config, read_yaml, validate
from clip_geometry.results import Row
from clip_geometry_experiments.run.config import PUBLISHED, shipped_configs

FOLDER = Path(__file__).parent
FILE = FOLDER / "published.yaml"

Scalar = bool | int | float | str | None
Where = dict[str, Scalar | tuple[Scalar, ...]]


# --- the numbers


@dataclass(frozen=True)
class Paper:
    """A paper with published numbers.

    Args:
        name: Name of the paper in published.yaml.
        title: Title of the paper.
        reference: Reference to the paper.
    """

    name: str
    title: str
    reference: str


@cache
def papers() -> dict[str, Paper]:
    """Return the papers with numbers by name, in the order of the file."""
    parts = read_yaml(FILE).items()
    return {name: Paper(name, part["title"], part["reference"]) for name, part in parts if "title" in part}


# --- the rules


class Variant(Config):
    """One of several rows of ours for the same number.

    Args:
        label: Distinguishes the variant from the others.
        where: Selectors, in addition to those of the rule.
        cause: Why its value differs, in a few words.
        aside: Whether it is not what was published, so that it is shown in the table row of the variant that is.
    """

    label: str
    where: Where = Field(default_factory=dict)
    cause: str = ""
    aside: bool = False


class Rule(Config):
    """The rule for a section of published.yaml, or for one label in it.

    Args:
        config: Names of the configs that compute our number, without configs/ and .yaml. The run of a config has its
            name with "-" instead of "/".
        reason: One sentence on why nothing here computes the number.
        where: Selectors of result rows, see `comparing`.
        same: Selectors that a row with the paper's own model and data fulfills; any other row is a proxy. If there are
            none, the source does not describe its setup, and every row is a proxy.
        differs: Text to show for a row that does not fulfill one of `same`, by selector, or by `setup` if the setup is
            not described; {} stands for our value.
        cause: Why our number differs, in a few words, shown beside the number.
        note: The long explanation, shown below the table.
        needs: What the paper's own setup needs.
        unit: The printed unit. A "share" of rows that is 0 or 1 has a limit; a "percent" has one if its error is 0.
        depends_on_n: Whether the number depends on the number of rows, so that numbers with different `n` cannot be
            ordered.
        variants: Several rows of ours for the number.
    """

    config: tuple[str, ...] = ()
    reason: str = ""
    where: Where = Field(default_factory=dict)
    same: Where = Field(default_factory=dict)
    differs: dict[str, str] = Field(default_factory=dict)
    cause: str = ""
    note: str = ""
    needs: str = ""
    unit: Literal["", "share", "percent"] | None = None
    depends_on_n: bool = False
    variants: tuple[Variant, ...] = ()


class SectionRule(Rule):
    """The rule for a section of published.yaml, in addition to the keys of `Rule`.

    Args:
        title: Heading of the section.
        match: The fields of a result row that hold the labels of a number; null for a label that is not a field.
        names: Labels as words for readers; a label without an entry is shown unchanged.
        labels: Label → what it adds to the rule or replaces in it.
    """

    title: str
    match: tuple[str | None, ...] = ()
    names: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, Rule] = Field(default_factory=dict)


class PaperFinding(Config):
    """A statement about the numbers of a paper.

    Args:
        title: The statement.
        text: The basis of the statement. Our numbers are written `{{ ours(RUN, KEY, **SELECTORS) }}`, see `pages`, or
            are asserted by a test in the evidence.
        evidence: Tests, commands and sources.
        article: Its page in docs/findings, without the file extension; "" if there is none.
    """

    title: str
    text: str
    evidence: tuple[str, ...] = Field(min_length=1)
    article: str = ""


class Claim(Config):
    """A claim of a paper, decided by the numbers that it names (see `claims.judge`) or by a test.

    Args:
        text: One sentence that states the claim and to what extent our numbers test it. Our numbers are written as in a
            finding.
        numbers: Paths of published numbers, `SECTION.LABEL.…`, each followed by "@" and the label of a variant if our
            number has several. "PATH minus PATH" is the difference of two numbers.
        where: Selectors of the setup of ours to compare, as in `Rule`; all numbers are from the same setup.
        says: What is claimed beyond the values: the numbers are in the published order ("order"), the first is the
            lowest or highest ("first lowest", "first highest"; the others are not compared with each other), or all are
            above or below a bound ("above", "below").
        bound: The bound of `above` and `below`.
        no_test: Why our numbers decide nothing without the paper's own setup, such as a choice of ours that determines
            the sign.
        decimals: Show the printed numbers to this precision. The verdict uses all printed decimals.
        holds: For a claim without numbers, whether the test named in `run` confirms or refutes it.
        run: The command or test, if it is not the command of the rows.
    """

    text: str
    numbers: tuple[str, ...] = ()
    where: Where = Field(default_factory=dict)
    says: Literal["", "order", "first lowest", "first highest", "above", "below"] = ""
    bound: float = 0.0
    no_test: str = ""
    decimals: int | None = None
    holds: bool | None = None
    run: str = ""


class Ledger(Config):
    """A paper: its question, its main claims, findings about its numbers, and the rules of its tables.

    Args:
        asks: The question that the paper asks.
        claims: The main claims of the paper.
        findings: What the numbers of the paper turn out to be.
        sections: Section of published.yaml → its rule.
    """

    asks: str = ""
    claims: tuple[Claim, ...] = ()
    findings: tuple[PaperFinding, ...] = ()
    sections: dict[str, SectionRule]


@cache
def ledger(paper: str) -> Ledger:
    """Return the ledger of a paper.

    Raises:
        InputError: If the file has an unknown key; the message names the nearest known key.
    """
    return validate(Ledger, read_yaml(FOLDER / f"{paper}.yaml"), f"ledger of {paper}")


def combined(rules: Sequence[Rule]) -> Rule:
    """Merge rules, the most specific last. Selectors are combined; all other keys are replaced.

    A reason replaces a config, and a config replaces a reason. `LedgerEntry` collects causes and notes.
    """
    values: dict[str, Any] = {}
    for rule in rules:
        given = {key: getattr(rule, key) for key in Rule.model_fields if key in rule.model_fields_set}
        if {"config", "reason"} & given.keys():
            values |= {"config": (), "reason": ""}
        for key in ("where", "same", "differs"):
            given[key] = values.get(key, {}) | given.get(key, {})
        values |= given
    return Rule(**values)


@dataclass(frozen=True)
class Ours:
    """One of our values, in the published unit.

    Args:
        row: The result row; if several rows were averaged, the first of them.
        variant: The variant of the published number.
        value: The value.
        error: Its standard error, or the standard deviation over seeds if `seeds` > 1. None if it is 0 or unknown, such
            as for a number that pools all seeds.
        unlike: The fields that differ from the paper's setup; `setup` if the source does not describe its setup.
        seeds: Number of rows that were averaged.
        null: The null value.
        limit: One-sided 95% limit of a share of 0 or 1, whose estimated error is 0. Then `error` is half of the
            distance from the value to the limit. None for other values.
    """

    row: Row
    variant: Variant
    value: float
    error: float | None
    unlike: tuple[str, ...]
    seeds: int = 1
    null: float | None = None
    limit: float | None = None

    @property
    def comparable(self) -> bool:
        """Whether the value comes from the paper's own setup."""
        return not self.unlike


@dataclass(frozen=True)
class LedgerEntry:
    """A published number or statement, its rule, and our values for it.

    Args:
        paper: Name of the paper.
        section: Table of the number.
        keys: The labels of the number, row first.
        text: The number as printed.
        value: Its value; None for words.
        reach: What is needed to check it ("real", "proxy", "online"); "" if the file does not say.
        title: The title of its section.
        label: The number in words: "CLIP, I1 of texts".
        rule: The combined rule.
        causes: The causes of its section and labels.
        notes: The notes of its section and labels.
        ours: Our values, once it was compared.
    """

    paper: str
    section: str
    keys: tuple[str, ...] = ()
    text: str = ""
    value: float | None = None
    reach: str = ""
    title: str = ""
    label: str = ""
    rule: Rule = field(default_factory=Rule)
    causes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ours: tuple[Ours, ...] = ()

    @property
    def path(self) -> str:
        """The section and the labels, joined by dots."""
        return ".".join((self.section, *self.keys))

    @property
    def shown(self) -> str:
        """The text as printed; a number has a typographic minus."""
        return self.text if self.value is None else self.text.replace("-", "−")

    @property
    def decimals(self) -> int:
        """The number of printed decimals: 2 for 66.40."""
        return len(self.text.partition(".")[2])

    @property
    def runs(self) -> tuple[str, ...]:
        """The names of the runs that compute our number."""
        return tuple(config.replace("/", "-") for config in self.rule.config)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants of our number, with complete selectors."""
        variants = self.rule.variants or (Variant(label=""),)
        return tuple(variant.model_copy(update={"where": {**self.rule.where, **variant.where}}) for variant in variants)

    @property
    def factor(self) -> float:
        """The factor of the unit: published = factor × ours."""
        return 100.0 if self.rule.unit == "percent" else 1.0

    @property
    def command(self) -> str:
        """The command for the paper's own setup; "" if no config has that setup."""
        config = next(iter(self.rule.config), "")
        return f"clip-geometry run {config} --published" if config and _has_own_setup(config) else ""

    @property
    def comparable(self) -> bool:
        """Whether the paper's own setup was run."""
        return any(ours.comparable for ours in self.ours)

    def agrees(self, ours: Ours) -> bool:
        """Return whether our value equals the published number when rounded to the printed decimals."""
        return self.value is not None and round(ours.value, self.decimals) == self.value


@cache
def _has_own_setup(config: str) -> bool:
    path = shipped_configs().get(config)
    return path is not None and PUBLISHED in read_yaml(path)


@cache
def entries(paper: str) -> tuple[LedgerEntry, ...]:
    """Return every leaf of a paper's tables, in the order of published.yaml.

    The positions in a list are labeled "0", "1", ….
    """
    text = FILE.read_text(encoding="utf-8")
    tables = yaml.load(text, Loader=yaml.BaseLoader)[paper]  # values are strings, so that 0.00 keeps its digits
    sections = ledger(paper).sections
    return tuple(
        _with_rule(leaf, section)
        for name, section in ((name, sections[name]) for name in tables if name in sections)
        for leaf in _leaves(LedgerEntry(paper, name, title=section.title), tables[name])
    )


def _leaves(place: LedgerEntry, node: Any) -> Iterator[LedgerEntry]:
    """Yield the published numbers and words in the YAML tree below a place."""
    if isinstance(node, str):
        is_number = re.fullmatch(r"-?\d+(\.\d+)?", node)
        yield replace(place, text=node, value=float(node) if is_number else None)
        return
    children = {str(k): child for k, child in enumerate(node)} if isinstance(node, list) else dict(node)
    place = replace(place, reach=children.pop("reach", place.reach))
    for key, child in children.items():
        yield from _leaves(replace(place, keys=(*place.keys, key)), child)


def _with_rule(leaf: LedgerEntry, section: SectionRule) -> LedgerEntry:
    """Return a published number with the rules of its section, row and column combined."""
    # labels are row first, and the rule of a row takes precedence over that of a column
    rules = [section, *(section.labels[key] for key in reversed(leaf.keys) if key in section.labels)]
    by_label: Where = {field: key for field, key in zip(section.match, leaf.keys, strict=False) if field}
    return replace(
        leaf,
        label=", ".join(section.names.get(key, key) for key in leaf.keys) or section.title,
        rule=combined([Rule(where=by_label), *rules]),
        causes=tuple(rule.cause for rule in rules if rule.cause),
        notes=tuple(rule.note for rule in rules if rule.note),
    )


def all_entries() -> list[LedgerEntry]:
    """Return the entries of all papers."""
    return [entry for paper in papers() for entry in entries(paper)]
