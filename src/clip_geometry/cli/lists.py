"""The command that lists the names that other commands accept, from the catalogs and from other packages."""

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import typer
from typer import Argument

from clip_geometry import catalog
from clip_geometry.catalog import GROUPS, PACKAGE, Description, describe
from clip_geometry.cli.options import JsonFile
from clip_geometry.display.explained import facts
from clip_geometry.display.table import WIDTH, Table, TableColumn
from clip_geometry.registry import of_packages, unknown

OF_MEASURES = ("measures", "evaluators")  # a name in either list is looked up in both


class ListEntry(NamedTuple):
    """An entry of a list.

    Attributes:
        name: Its name, with its parameters in parentheses.
        says: A one-line summary.
        below: Paragraphs that follow when the entry is shown alone.
        group: The heading under which it is listed.
        about: Text below it in the list, such as its variants.
    """

    name: str
    says: str
    below: tuple[str, ...] = ()
    group: str = ""
    about: str = ""


Entries: TypeAlias = Callable[[], Iterable[ListEntry]]


def _complete(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names in the list that precedes on the command line, without parameters."""
    return [entry.name.partition("(")[0] for entry in lines_of(str(ctx.params.get("what")))]


def list_names(
    what: Annotated[
        str,
        Argument(
            metavar="LIST",
            help="measures, evaluators, models, datasets, formats, transforms, repairs, checks",
            autocompletion=lambda: list(all_lists()),
        ),
    ],
    name: Annotated[str | None, Argument(metavar="NAME", help="explain this one", autocompletion=_complete)] = None,
    json_file: JsonFile = None,
) -> None:
    """Lists what is available, or explains one entry."""
    found = list_table(what, name)
    found.print(most=WIDTH)
    if json_file is not None:
        from clip_geometry.files import write_text  # imports NumPy

        write_text(json_file, json.dumps(found.as_dict(), indent=1, ensure_ascii=False) + "\n")


def list_table(what: str, name: str | None = None) -> Table:
    """Return a list with one line per entry, or a single entry in full.

    Args:
        what: Name of the list.
        name: Name of the entry. The name of an evaluator stands for all of its numbers. Default: the whole list.

    Returns:
        The table to print.

    Raises:
        InputError: The list or the entry does not exist.
    """
    if what not in all_lists():
        raise unknown("list", what, all_lists(), "clip-geometry list --help")
    if name is not None:
        kinds = OF_MEASURES if what in OF_MEASURES else (what,)
        entries = [entry for kind in kinds for entry in entries_of(kind)]
        begins = re.compile(re.escape(name) + r"(?!\w)")
        chosen = [entry for entry in entries if entry.name == name]
        chosen = chosen or [entry for entry in entries if begins.match(entry.name)]
        if not chosen:
            names = [entry.name.partition("(")[0] for entry in entries]
            raise unknown(what.removesuffix("s"), name, names, f"clip-geometry list {what}")
        return Table(more=[Table(title=f"{entry.name}: {entry.says}", heading=entry.below) for entry in chosen])
    groups: dict[str, list[tuple[str, str]]] = {}
    for entry in lines_of(what):
        rows = groups.setdefault(entry.group, [])
        rows.append((entry.name, entry.says))
        rows += [("", entry.about)] if entry.about else []
    columns = TableColumn(what.removesuffix("s"), "name"), TableColumn("summary")
    notes = [f"clip-geometry list {what} NAME shows the whole entry"]
    return Table(columns, groups, notes=notes, named_groups=True)


@functools.cache
def all_lists() -> Mapping[str, tuple[Entries, ...]]:
    """Return list → functions that yield its entries, from this package and from other packages.

    The entry points of the group `clip_geometry.lists` are functions that return list → function that yields entries.
    """
    found: dict[str, tuple[Entries, ...]] = {what: (entries,) for what, entries in LISTS.items()}
    for package in of_packages("clip_geometry.lists"):
        for what, entries in package.load()().items():
            found[what] = (*found.get(what, ()), entries)
    return found


def entries_of(what: str) -> list[ListEntry]:
    """Return the entries of a list; [] if the list is unknown."""
    return [entry for entries in all_lists().get(what, ()) for entry in entries()]


def lines_of(what: str) -> list[ListEntry]:
    """Return the lines of a list; a measure and its variants share a line, as do an evaluator and its numbers."""
    if what not in OF_MEASURES:
        return entries_of(what)
    families: dict[str, list[Description]] = {}
    for each in _descriptions(what):
        families.setdefault(re.split(r"[.[]", each.name)[0], []).append(each)
    lines = []
    for name, members in families.items():
        variants = dict.fromkeys(re.findall(r"\[.*?\]", " ".join(each.name for each in members)))
        first = members[0]
        lines.append(ListEntry(name, first.brief or first.title, group=first.group, about=" ".join(variants)))
    return lines


def _descriptions(what: str) -> list[Description]:
    found = [each for each in map(describe, catalog.names()) if bool(each.evaluator) == (what == "evaluators")]
    return sorted(found, key=lambda each: GROUPS.index(each.group))


def _measures(what: str) -> Iterator[ListEntry]:
    for m in _descriptions(what):
        below = f"{m.summary} {m.reading}", f"Caveat: {m.caveat}", facts(m), m.formula, m.reference
        yield ListEntry(m.name, m.title, below)


def _models() -> Iterator[ListEntry]:
    """Yield models from the registry of encoders, since open_clip has too many architectures to ship a list."""
    from clip_geometry.encoders import encoders, models
    from clip_geometry.encoders.hub import MODELS

    families, architectures = models()
    fields = {entry.headline[0]: sorted(set(entry.config.model_fields) - {"model"}) for entry in encoders.values()}
    for name, summary in families:
        yield ListEntry(name, summary, (f"options (key=value): {', '.join(fields[name])}",))
    for name, summary in MODELS.items():
        yield ListEntry(name, summary, group="trained models that the package brings")
    for name, tags in architectures.items():
        yield ListEntry(name, ", ".join(tags), group="NAMEs of open_clip and their TAGs, besides fresh")


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
    """Yield the entries of a catalog of members with a config, whose fields are the options."""
    for name, about in catalog.read(folder).items():
        yield ListEntry(name, about["summary"], (f"{heading}: {about['options']}",))


LISTS: Mapping[str, Entries] = {
    "measures": functools.partial(_measures, "measures"),
    "evaluators": functools.partial(_measures, "evaluators"),
    "models": _models,
    "datasets": functools.partial(configured, PACKAGE / "data"),
    "formats": _formats,
    "transforms": _transforms,
    "repairs": _repairs,
    "checks": _checks,
}
