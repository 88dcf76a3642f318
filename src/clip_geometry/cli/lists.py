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
    table = list_table(what, name)
    table.print(most=WIDTH)
    if json_file is not None:
        from clip_geometry.files import write_text  # imports NumPy

        write_text(json_file, json.dumps(table.as_dict(), indent=1, ensure_ascii=False) + "\n")


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
        lists = OF_MEASURES if what in OF_MEASURES else (what,)
        entries = [entry for one in lists for entry in entries_of(one)]
        starts_with_name = re.compile(re.escape(name) + r"(?!\w)")
        matches = [entry for entry in entries if entry.name == name]
        matches = matches or [entry for entry in entries if starts_with_name.match(entry.name)]
        if not matches:
            names = [entry.name.partition("(")[0] for entry in entries]
            raise unknown(what.removesuffix("s"), name, names, f"clip-geometry list {what}")
        return Table(more=[Table(title=f"{entry.name}: {entry.says}", heading=entry.below) for entry in matches])
    groups: dict[str, list[tuple[str, str]]] = {}
    for entry in lines_of(what):
        rows = groups.setdefault(entry.group, [])
        rows.append((entry.name, entry.says))
        if entry.about:
            rows.append(("", entry.about))
    columns = TableColumn(what.removesuffix("s"), "name"), TableColumn("summary")
    notes = [f"clip-geometry list {what} NAME shows the whole entry"]
    return Table(columns, groups, notes=notes, named_groups=True)


@functools.cache
def all_lists() -> Mapping[str, tuple[Entries, ...]]:
    """Return list → functions that yield its entries, from this package and from other packages.

    The entry points of the group `clip_geometry.lists` are functions that return list → function that yields entries.
    """
    lists: dict[str, tuple[Entries, ...]] = {what: (entries,) for what, entries in LISTS.items()}
    for entry_point in of_packages("clip_geometry.lists"):
        for what, entries in entry_point.load()().items():
            lists[what] = (*lists.get(what, ()), entries)
    return lists


def entries_of(what: str) -> list[ListEntry]:
    """Return the entries of a list; [] if the list is unknown."""
    return [entry for entries in all_lists().get(what, ()) for entry in entries()]


def lines_of(what: str) -> list[ListEntry]:
    """Return the lines of a list; a measure and its variants share a line, as do an evaluator and its numbers."""
    if what not in OF_MEASURES:
        return entries_of(what)
    families: dict[str, list[Description]] = {}
    for description in _descriptions(what):
        families.setdefault(re.split(r"[.[]", description.name)[0], []).append(description)
    lines = []
    for name, members in families.items():
        variants = dict.fromkeys(re.findall(r"\[.*?\]", " ".join(member.name for member in members)))
        first = members[0]
        lines.append(ListEntry(name, first.brief or first.title, group=first.group, about=" ".join(variants)))
    return lines


def _descriptions(what: str) -> list[Description]:
    descriptions = [describe(name) for name in catalog.names()]
    chosen = [entry for entry in descriptions if bool(entry.evaluator) == (what == "evaluators")]
    return sorted(chosen, key=lambda entry: GROUPS.index(entry.group))


def _measures(what: str) -> Iterator[ListEntry]:
    for entry in _descriptions(what):
        paragraphs = (f"{entry.summary} {entry.reading}", f"Caveat: {entry.caveat}", facts(entry))
        yield ListEntry(entry.name, entry.title, (*paragraphs, entry.formula, entry.reference))


def _models() -> Iterator[ListEntry]:
    """Yield models from the registry of encoders, since open_clip has too many architectures to ship a list."""
    from clip_geometry.encoders import encoders, models
    from clip_geometry.encoders.hub import MODELS

    families, architectures = models()
    fields = {entry.headline[0]: sorted(set(entry.config.model_fields) - {"model"}) for entry in encoders.values()}
    for name, summary in families:
        yield ListEntry(name, summary, (f"options (key=value): {', '.join(fields[name])}",))
    for name, summary in MODELS.items():
        yield ListEntry(name, summary, group="trained models that come with the package")
    for name, tags in architectures.items():
        yield ListEntry(name, ", ".join(tags), group="NAMEs of open_clip and their TAGs (in addition to fresh)")


def _formats() -> Iterator[ListEntry]:
    """Yield the file formats for `clip-geometry list formats`."""
    for name, about in catalog.read(PACKAGE / "io").items():
        files = [*about.get("suffixes", ()), *(["folders"] if "recognizes" in about else [])]
        streams = about.get("streams", "has to fit into memory")
        patterns = {"holds": "holds: {}", "limits": "limits: {}", "package": "needs: pip install {}"}
        below = tuple(pattern.format(about[key]) for key, pattern in patterns.items() if key in about)
        yield ListEntry(name, f"{about['title']} ({', '.join(files)}); {streams}", below)


def _transforms() -> Iterator[ListEntry]:
    for name, about in catalog.read(PACKAGE / "transforms").items():
        usage = f"{name}({about['parameters']})" if "parameters" in about else name
        yield ListEntry(usage, about["summary"], (about["formula"], about["fitted"]))


def _repairs() -> Iterator[ListEntry]:
    """Yield the repairs for `clip-geometry list repairs`."""
    for name, about in catalog.read(PACKAGE / "search" / "repairs").items():
        if "baseline" in about:
            kind = "a baseline of separate indices"
        elif "reranker" in about:
            kind = "a reranker"
        else:
            kind = "one inner product, for any vector index"
        yield ListEntry(name, about["summary"], (about["formula"], kind, about.get("reference", "")))


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
