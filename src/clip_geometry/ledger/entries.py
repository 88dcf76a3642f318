"""The ledger of a paper: for every published number our results beside it, or why there are none."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from clip_geometry.ledger.published import Published, papers, published
from clip_geometry.ledger.rules import (
    Finding,
    Ledger,
    Rule,
    Section,
    Variant,
    Where,
    combined,
    ledger_file,
    read_ledger,
)
from clip_geometry.registry import InputError, did_you_mean

FACTORS = {"": 1.0, "percent": 100.0}


@dataclass(frozen=True)
class Entry:
    """A published number and the rule for it. title: of its section. causes: of its section and its labels."""

    published: Published
    title: str
    rule: Rule
    causes: tuple[str, ...]

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
        return FACTORS[self.rule.unit or ""]

    @property
    def command(self) -> str:
        """The command for the paper's own setup, "" where there is none."""
        if not self.rule.config:
            return ""
        return " ".join(filter(None, ("clip-geometry run", f"configs/{self.rule.config[0]}.yaml", self.rule.arguments)))


def entries(paper: str, file: Path | None = None) -> tuple[Entry, ...]:
    """One entry for every number of a paper, in the order of published.yaml.

    Args:
        paper: Name of the paper.
        file: Its ledger, if not the package's own. A number that it does not name has neither config nor reason.

    Raises:
        InputError: If the ledger names what was not published, or selects nothing.
    """
    return _entries(paper, file or ledger_file(paper))


def findings(paper: str) -> tuple[Finding, ...]:
    return read_ledger(ledger_file(paper)).findings if has_ledger(paper) else ()


def has_ledger(paper: str) -> bool:
    return ledger_file(paper).exists()


def all_entries() -> list[Entry]:
    return [entry for paper in papers() if has_ledger(paper) for entry in entries(paper)]


@cache
def _entries(paper: str, file: Path) -> tuple[Entry, ...]:
    leaves = published(paper)
    ledger = read_ledger(file) if file.exists() else Ledger(sections={})
    _require_known(file, "section", ledger.sections, dict.fromkeys(leaf.section for leaf in leaves))
    found = []
    for leaf in leaves:
        section = ledger.sections.get(leaf.section)
        if section is None:
            found.append(Entry(leaf, leaf.section, Rule(), ()))
        else:
            found.append(_entry(_named(leaf, section), section, file))
    for name, section in ledger.sections.items():
        labels = {key for entry in found if entry.published.section == name for key in entry.published.keys}
        _require_known(file, f"label of {name}", section.labels, labels)
    return tuple(found)


def _named(leaf: Published, section: Section) -> Published:
    """With names for the places of a list."""
    if not section.positions or not leaf.keys:
        return leaf
    names = dict(zip(map(str, range(len(section.positions))), section.positions, strict=True))
    return replace(leaf, keys=(*leaf.keys[:-1], names.get(leaf.keys[-1], leaf.keys[-1])))


def _entry(leaf: Published, section: Section, file: Path) -> Entry:
    # the row says more than the column
    rules = [section, *(section.labels[key] for key in reversed(leaf.keys) if key in section.labels)]
    by_label: Where = {field: key for field, key in zip(section.match, leaf.keys, strict=False) if field}
    rule = combined([Rule(where=by_label), *rules])
    entry = Entry(leaf, section.title, rule, tuple(each.cause for each in rules if each.cause))
    if bool(rule.config) == bool(rule.reason):
        raise InputError(f"ledger {file.name}: {leaf.path} needs either a config or a reason")
    if rule.config and not all("measure" in variant.where for variant in entry.variants):
        raise InputError(f"ledger {file.name}: {leaf.path} selects no 'measure' in its where")
    return entry


def _require_known(file: Path, kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"; known are {', '.join(known)}"
            raise InputError(f"ledger {file.name}: unknown {kind} {name!r}{hint}")
