"""`clip-geometry list …`: what the catalogs say of measures, transforms, … and what other packages add."""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from clip_geometry import catalog
from clip_geometry.catalog import GROUPS, PACKAGE, Description, describe
from clip_geometry.display.explained import facts
from clip_geometry.display.table import Table, TableColumn
from clip_geometry.registry import InputError, did_you_mean, listed, of_packages, shown, unknown

OF_MEASURES = ("measures", "evaluators")  # a name of one is looked up in both
ListBlock: TypeAlias = tuple[str, ...]  # a head, "name: what it is", and what is said below it


class ListEntry(NamedTuple):
    """An entry of a list.

    Attributes:
        name: With what it takes in parentheses.
        says: What it is, in a line.
        below: The paragraphs that follow when it is listed alone.
        group: The heading that it stands under in the list.
        about: What the list says below it, such as its variants.
    """

    name: str
    says: str
    below: tuple[str, ...] = ()
    group: str = ""
    about: str = ""


Entries: TypeAlias = Callable[[], Iterable[ListEntry]]


def list_table(what: str, name: str | None = None) -> Table:
    """One of the lists, a line for each entry, or one whole entry.

    Args:
        what: One of the LISTS, or a list of another package.
        name: The entry. The name of an evaluator stands for all of its numbers.

    Raises:
        InputError: There is no such list, or no such entry.
    """
    known = all_lists()
    if what not in known:
        raise InputError(
            f"there is no list of {shown(what)}{did_you_mean(what, known) or f'; known are {listed(known, 12)}'}"
        )
    if name is None and what != "models":
        groups: dict[str, list[tuple[str, str]]] = {}
        for entry in index_of(what):
            rows = groups.setdefault(entry.group, [])
            rows.append((entry.name, entry.says))
            rows += [("", entry.about)] if entry.about else []
        columns = TableColumn(what.removesuffix("s"), "name"), TableColumn("summary")
        notes = [f"clip-geometry list {what} NAME shows the whole entry"]
        return Table(columns, groups, notes=notes, named_groups=True)
    if what == "models":  # those of open_clip are too many for a catalog
        blocks = [*model_blocks()]
    else:
        parts = OF_MEASURES if what in OF_MEASURES else (what,)
        blocks = [(f"{entry.name}: {entry.says}", *entry.below) for part in parts for entry in entries_of(part)]
    if name is not None:
        by_name = {head.partition(": ")[0]: (head, *parts) for head, *parts in blocks}
        begins = re.compile(re.escape(name) + r"(?!\w)")
        blocks = [by_name[name]] if name in by_name else [by_name[each] for each in by_name if begins.match(each)]
        if not blocks:
            names = [each.partition("(")[0] for each in by_name]
            raise unknown(what.removesuffix("s"), name, names, f"clip-geometry list {what}")
    return Table(more=[Table(title=head, heading=parts) for head, *parts in blocks])


@functools.cache
def all_lists() -> Mapping[str, tuple[Entries, ...]]:
    """List → what yields its entries, of this package and of others.

    The entry points of the group `clip_geometry.lists` are functions that return list → function that yields entries.
    """
    found: dict[str, tuple[Entries, ...]] = {what: (entries,) for what, entries in LISTS.items()}
    for package in of_packages("clip_geometry.lists"):
        for what, entries in package.load()().items():
            found[what] = (*found.get(what, ()), entries)
    return found


def entries_of(what: str) -> list[ListEntry]:
    """The entries of a list; none of an unknown one."""
    return [entry for entries in all_lists().get(what, ()) for entry in entries()]


def index_of(what: str) -> list[ListEntry]:
    """The entries of a list as its lines: a measure and its variants, an evaluator and its numbers are one."""
    if what not in OF_MEASURES:
        return entries_of(what)
    found: dict[str, list[Description]] = {}
    for each in _members(what):
        found.setdefault(re.split(r"[.[]", each.name)[0], []).append(each)
    lines = []
    for name, members in found.items():
        variants = dict.fromkeys(re.findall(r"\[.*?\]", " ".join(each.name for each in members)))
        first = members[0]
        lines.append(ListEntry(name, first.brief or first.title, group=first.group, about=" ".join(variants)))
    return lines


def _members(what: str) -> list[Description]:
    members = [each for each in map(describe, catalog.names()) if bool(each.evaluator) == (what == "evaluators")]
    return sorted(members, key=lambda each: GROUPS.index(each.group))


def _measures(what: str) -> Iterator[ListEntry]:
    for m in _members(what):
        below = f"{m.summary} {m.reading}", f"Caveat: {m.caveat}", facts(m), m.formula, m.reference
        yield ListEntry(m.name, m.title, below)


def _formats() -> Iterator[ListEntry]:
    for name, about in catalog.read(PACKAGE / "io").items():
        files = ", ".join([*about.get("suffixes", ()), *(["folders"] if "recognizes" in about else [])])
        lines = {"holds": "holds: {}", "limits": "limits: {}", "package": "needs: pip install {}"}
        below = tuple(line.format(about[key]) for key, line in lines.items() if key in about)
        yield ListEntry(name, f"{about['title']} ({files}); {about.get('streams', 'has to fit into memory')}", below)


def _transforms() -> Iterator[ListEntry]:
    for name, about in catalog.read(PACKAGE / "transforms").items():
        usage = f"{name}({about['parameters']})" if "parameters" in about else name
        yield ListEntry(usage, about["summary"], (about["formula"], about["fitted"]))


def _repairs() -> Iterator[ListEntry]:
    for name, about in catalog.read(PACKAGE / "search" / "repairs").items():
        form = "a reranker" if "reranker" in about else "one inner product, for any vector index"
        form = "a baseline of separate indices" if "baseline" in about else form
        yield ListEntry(name, about["summary"], (about["formula"], form, about.get("reference", "")))


def _checks() -> Iterator[ListEntry]:
    for name, about in catalog.read(PACKAGE / "search" / "checks").items():
        yield ListEntry(name, about["title"], (f"reports: {about['threshold']}",))


def configured(folder: Path, heading: str = "options (key=value)") -> Iterator[ListEntry]:
    """The entries of a catalog of what has a config, whose fields are its options."""
    for name, about in catalog.read(folder).items():
        yield ListEntry(name, about["summary"], (f"{heading}: {about['options']}",))


def model_blocks() -> Iterator[ListBlock]:
    """The blocks of the models, from their registry: there are too many architectures to ship their list."""
    from clip_geometry.encoders import encoders, models
    from clip_geometry.encoders.hub import MODELS

    families, architectures = models()
    options = {entry.headline[0]: sorted(set(entry.config.model_fields) - {"model"}) for entry in encoders.values()}
    for pattern, summary in families:
        yield f"{pattern}: {summary}", f"options (key=value): {', '.join(options[pattern])}"
    yield "Trained models that the package brings:", *(f"{name}: {summary}" for name, summary in MODELS.items())
    yield "NAMEs of open_clip and their TAGs, besides fresh:", ""
    yield from ((f"{name}: {', '.join(tags)}",) for name, tags in architectures.items())


LISTS: Mapping[str, Entries] = {
    "measures": functools.partial(_measures, "measures"),
    "evaluators": functools.partial(_measures, "evaluators"),
    "models": tuple,  # `model_blocks` prints them
    "datasets": functools.partial(configured, PACKAGE / "data"),
    "formats": _formats,
    "transforms": _transforms,
    "repairs": _repairs,
    "checks": _checks,
}
