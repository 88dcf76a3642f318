"""Every published number with its printed digits, and the rules of each paper: which of our rows stand beside a number,
or why there are none. Experiments know nothing of papers."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from clip_geometry.config import Config, read_yaml, validate
from clip_geometry_experiments.run.config import PUBLISHED, shipped_configs

FOLDER = Path(__file__).parent
FILE = FOLDER / "published.yaml"
ABOUT_PAPER = ("title", "reference", "models")  # keys of a paper that are not tables

Scalar = bool | int | float | str | None
Where = dict[str, Scalar | tuple[Scalar, ...]]


# --- the numbers


@dataclass(frozen=True)
class Paper:
    name: str
    title: str
    reference: str


@dataclass(frozen=True)
class Published:
    """One number, or statement.

    Args:
        paper: Name of the paper.
        section: Its table.
        keys: The labels of the number, row first.
        text: The number as printed.
        value: Its value, None for words.
        reach: What is needed to check it ("real", "proxy", "online"), "" where the file does not say.
    """

    paper: str
    section: str
    keys: tuple[str, ...] = ()
    text: str = ""
    value: float | None = None
    reach: str = ""

    @property
    def path(self) -> str:
        return ".".join((self.section, *self.keys))

    @property
    def shown(self) -> str:
        """As printed, a number with a typographic minus."""
        return self.text if self.value is None else self.text.replace("-", "−")

    @property
    def decimals(self) -> int:
        """Printed decimals: 2 of 66.40."""
        return len(self.text.partition(".")[2])


@cache
def papers() -> dict[str, Paper]:
    """The papers with numbers, in the order of the file."""
    found = read_yaml(FILE).items()
    return {name: Paper(name, part["title"], part["reference"]) for name, part in found if "title" in part}


@cache
def published(paper: str) -> tuple[Published, ...]:
    """Every leaf of a paper's tables, in the order of the file; positions in a list are "0", "1", …"""
    text = FILE.read_text(encoding="utf-8")
    tables = yaml.load(text, Loader=yaml.BaseLoader)[paper]  # every value is a string: 0.00 as it is printed
    named = ((name, node) for name, node in tables.items() if name not in ABOUT_PAPER)
    return tuple(leaf for name, node in named for leaf in _leaves(Published(paper, name), node))


def _leaves(place: Published, node: Any) -> Iterator[Published]:
    if isinstance(node, str):
        is_number = re.fullmatch(r"-?\d+(\.\d+)?", node)
        yield replace(place, text=node, value=float(node) if is_number else None)
        return
    children = {str(k): child for k, child in enumerate(node)} if isinstance(node, list) else dict(node)
    place = replace(place, reach=children.pop("reach", place.reach))
    for key, child in children.items():
        yield from _leaves(replace(place, keys=(*place.keys, key)), child)


# --- the rules


class Variant(Config):
    """One of several of our rows beside the same number.

    Args:
        label: Distinguishes it from the others.
        where: Selectors, beside those of the rule.
        cause: Why it differs, in a few words.
        aside: It is not what was published and stands in the row of the variant that is.
    """

    label: str
    where: Where = Field(default_factory=dict)
    cause: str = ""
    aside: bool = False


class Rule(Config):
    """The rule for a section of published.yaml, or for one label in it.

    Args:
        config: configs/<this>.yaml computes ours, for each of these; its run is named with "-" for "/".
        reason: Why nothing here computes it, one sentence.
        where: Selectors of result rows, see `comparing`.
        same: Selectors that a row with the paper's own model and data fulfills; any other row is a proxy. Without any
            the source does not name its setup, and every row is a proxy.
        differs: What to say where a row does not fulfill one of `same`, or of the `setup` that is not named; {} stands
            for our value.
        cause: Why ours differs, in a few words: it stands beside the number.
        note: The long explanation, below the table.
        needs: What the paper's own setup needs.
        unit: The printed unit. A "share" of rows that is 0 or 1 has a limit, a "percent" if its error is 0.
        depends_on_n: The number depends on the number of rows, so that numbers of other `n` have no order.
        variants: Several rows of ours beside the number.
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
    """The rule for a section of published.yaml.

    Args:
        title: Its heading.
        match: The fields of a result row that hold the labels of a number, null for a label that is no field.
        names: Labels in words, for readers; a label without an entry is shown as it is.
        labels: What a label adds to the rule, or replaces.
    """

    title: str
    match: tuple[str | None, ...] = ()
    names: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, Rule] = Field(default_factory=dict)


class PaperFinding(Config):
    """A statement about the numbers of a paper.

    Args:
        title: The statement.
        text: What it rests on. Numbers of ours are `{{ ours(RUN, KEY, **SELECTORS) }}`, see `pages`, or are asserted by
            a test of the evidence.
        evidence: Tests, commands and sources.
        article: Its page in docs/findings, without the ending, "" where it has none.
    """

    title: str
    text: str
    evidence: tuple[str, ...] = Field(min_length=1)
    article: str = ""


class Claim(Config):
    """A claim of a paper, which the numbers that it names decide (`claims.judge`), or a test.

    Args:
        text: The claim, one sentence, and how far ours tests it. Numbers of ours are written as in a finding.
        numbers: Paths of published numbers, `SECTION.LABEL.…`, each with the label of a variant after "@" where ours
            has several. "PATH minus PATH" is the difference of two numbers.
        where: Selects the setup of ours that is compared, as in `Rule`; all numbers are of the same setup.
        says: The claim beyond the sizes: the numbers are in the published order, only the first is compared with each
            of the others, or they are all above or below a bound.
        bound: That of `above` and `below`.
        no_test: Why ours decides nothing without the paper's own setup, such as a choice of ours that decides the sign.
        decimals: Show the printed numbers to this precision. The verdict is of all that were printed.
        holds: For a claim that is no number: whether the test named in `run` shows it or refutes it.
        run: The command or test, if not that of the rows.
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
    """A paper: the question that it asks, its main claims, what its numbers turn out to be, the rules of its tables."""

    asks: str = ""
    claims: tuple[Claim, ...] = ()
    findings: tuple[PaperFinding, ...] = ()
    sections: dict[str, SectionRule]


@cache
def ledger(paper: str) -> Ledger:
    """The ledger of a paper. It is read strictly: an unknown key is an error that names the nearest known one."""
    return validate(Ledger, read_yaml(FOLDER / f"{paper}.yaml"), f"ledger of {paper}")


def combined(rules: Sequence[Rule]) -> Rule:
    """Merge rules, the more specific ones last: selectors add up, everything else is replaced.

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
class LedgerEntry:
    """A published number and the rule for it.

    Args:
        published: The number.
        title: That of its section.
        label: The number in words: "CLIP, I1 of texts".
        rule: Its rule.
        causes: Those of its section and of its labels.
        notes: Likewise.
    """

    published: Published
    title: str
    label: str
    rule: Rule
    causes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[str, ...]:
        """Names of the runs that compute ours."""
        return tuple(config.replace("/", "-") for config in self.rule.config)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants of our number, with complete selectors."""
        variants = self.rule.variants or (Variant(label=""),)
        return tuple(each.model_copy(update={"where": {**self.rule.where, **each.where}}) for each in variants)

    @property
    def factor(self) -> float:
        """published = factor × ours."""
        return 100.0 if self.rule.unit == "percent" else 1.0

    @property
    def command(self) -> str:
        """The command for the paper's own setup, "" where no config has it."""
        config = next(iter(self.rule.config), "")
        return f"clip-geometry run {config} --published" if config and _has_own_setup(config) else ""


@cache
def _has_own_setup(config: str) -> bool:
    path = shipped_configs().get(config)
    return path is not None and PUBLISHED in read_yaml(path)


@cache
def entries(paper: str) -> tuple[LedgerEntry, ...]:
    """One entry for every number of a paper, in the order of published.yaml."""
    sections = ledger(paper).sections
    return tuple(_entry(leaf, sections[leaf.section]) for leaf in published(paper))


def _entry(leaf: Published, section: SectionRule) -> LedgerEntry:
    # the row says more than the column
    rules = [section, *(section.labels[key] for key in reversed(leaf.keys) if key in section.labels)]
    by_label: Where = {field: key for field, key in zip(section.match, leaf.keys, strict=False) if field}
    return LedgerEntry(
        leaf,
        title=section.title,
        label=", ".join(section.names.get(key, key) for key in leaf.keys) or section.title,
        rule=combined([Rule(where=by_label), *rules]),
        causes=tuple(rule.cause for rule in rules if rule.cause),
        notes=tuple(rule.note for rule in rules if rule.note),
    )


def all_entries() -> list[LedgerEntry]:
    return [entry for paper in papers() for entry in entries(paper)]
