"""`clip-geometry list …`: what there is, out of the registries."""

from collections.abc import Callable, Iterable
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table

from clip_geometry.cli.tables import console, plain_table
from clip_geometry.registry import InputError, did_you_mean

if TYPE_CHECKING:
    from clip_geometry.geometry import Measure


def print_list(what: str) -> None:
    """Prints one of the lists; an unknown one is an InputError."""
    if what not in LISTS:
        near = did_you_mean(what, LISTS)
        raise InputError(f"there is no list of {what!r}{near or '; known are ' + ', '.join(LISTS)}")
    console().print(LISTS[what]())


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = plain_table(*columns)
    for row in rows:
        table.add_row(*row)
    return table


def _measures() -> str:
    from clip_geometry.geometry import by_group

    return "\n\n".join(_described(measure) for measure in by_group(all=True))


def _described(m: "Measure") -> str:
    from clip_geometry.report.explained import facts

    width = max(60, min(100, get_terminal_size().columns)) - 4
    parts = (f"{m.summary} {m.reading}", f"Beware: {m.trap}", facts(m), m.formula, m.reference)
    return "\n".join(
        [
            f"{m.name}: {m.title}",
            *(f"    {line}" for part in parts for line in wrap(part, width, break_on_hyphens=False)),
        ]
    )


def _transforms() -> Table:
    from clip_geometry.transforms import transforms
    from clip_geometry.transforms.step import DIRECTIONS, SCOPES, usage

    scopes = f"one of [{'], ['.join(SCOPES)}]; without: each set by itself"
    pairs = f"pairs: [{'] or ['.join(DIRECTIONS[:2])}]"
    return _table(
        ("step", "what it does", "formula", "fitted on"),
        (
            (usage(name), t.summary, t.formula, pairs if t.paired else scopes if t.fits else "nothing to fit")
            for name, t in transforms.items()
        ),
    )


def _datasets() -> Table:
    from clip_geometry.data import datasets

    return _table(
        ("data set", "what it is", "options (key=value)"),
        (
            (name, entry.summary, ", ".join(key for key in entry.config.model_fields if key != "name"))
            for name, entry in datasets.items()
        ),
    )


def _models() -> Group:
    from clip_geometry.encoders import encoders, models

    families, architectures = models()
    options = {entry.pattern: sorted(set(entry.config.model_fields) - {"model"}) for entry in encoders.values()}
    return Group(
        _table(
            ("model", "what it is", "options (key=value)"),
            ((pattern, summary, ", ".join(options[pattern])) for pattern, summary in families),
        ),
        "",
        _table(
            ("open_clip NAME", "its TAGs (besides fresh)"),
            ((name, ", ".join(tags)) for name, tags in architectures.items()),
        ),
    )


def _experiments() -> Table:
    from clip_geometry.experiments import experiments

    return _table(
        ("experiment", "what it does", "keys of its config"),
        ((name, kind.summary, ", ".join(kind.Config.model_fields)) for name, kind in experiments.items()),
    )


LISTS: dict[str, Callable[[], RenderableType]] = {
    "measures": _measures,
    "models": _models,
    "datasets": _datasets,
    "transforms": _transforms,
    "experiments": _experiments,
}
