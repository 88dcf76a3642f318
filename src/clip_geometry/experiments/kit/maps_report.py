"""Figures of tables whose rows are maps: a line of dots per map, and a curve where maps differ in a number only."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, ScalarFormatter

from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.style import NEUTRAL, WIDTH, legend_above, save_figure, styled

# of Okabe & Ito 2008, without those of the modalities
SIGNS = (("#009E73", "o"), ("#CC79A7", "^"), ("#E69F00", "s"), ("#56B4E9", "D"))
DODGE = 0.24  # of a line's height, between the signs of its series
LEAST_FAMILY = 3  # maps that make a curve
_NUMBER = re.compile(r"\((\d+)")

Row = Mapping[str, Any]
Series = Mapping[str, Mapping[str, Row]]  # legend → map → row


def draw_maps(
    rows: Sequence[Row],
    measures: Mapping[str, str],
    *,
    folder: Path,
    origin: str,
    key: str | None = None,
    prefix: str = "",
    group: str = "",
) -> list[FigureEntry]:
    """The figures of these rows: `at.row` names their map.

    measures: name → its word in the legend; with `key` one measure, whose series are told apart by at[key]. Empty
    where no row has one of the measures.
    """
    series = _series(rows, measures, key)
    if not series:
        return []
    word = next(iter(measures.values())) if key else "accuracy"
    maps = list(dict.fromkeys(name for members in series.values() for name in members))
    titled = {"maps": (f"{word[0].upper()}{word[1:]} after each map", map_dots(series, word), _told(word, maps))}
    families = _families(series)
    for number, (family, members) in enumerate(families.items()):
        name = "maps_curve" + (f"_{number + 1}" if number else "")
        title = f"{word[0].upper()}{word[1:]} against k of {family}"
        told = (
            f"The same numbers of {len(members)} maps {family} as a curve; dotted: {maps[0]}. Bars: one standard error."
        )
        titled[name] = (title, map_curve(series, members, word), told)
    entries = []
    for name, (title, figure, caption) in titled.items():
        png, svg = save_figure(figure, folder, prefix + name)
        entries.append(FigureEntry(prefix + name, title, f"{caption} {origin}", svg, png, group))
    return entries


def _told(word: str, maps: Sequence[str]) -> str:
    return (
        f"{word[0].upper()}{word[1:]} after each of {len(maps)} maps, in the order of the config; dotted: {maps[0]}. "
        "Bars: one standard error, where it is larger than the sign."
    )


def _series(rows: Sequence[Row], measures: Mapping[str, str], key: str | None) -> Series:
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["measure"] in measures and row.get("value") is not None:
            legend = str(row["at"][key]) if key else measures[row["measure"]]
            found.setdefault(legend, {})[row["at"]["row"]] = row
    return found


def _families(series: Series) -> dict[str, dict[str, int]]:
    """`whiten(k)[pooled] on scenes/train:pooled` → map → k, of maps that differ in this one number."""
    families: dict[str, dict[str, int]] = {}
    for name, row in next(iter(series.values())).items():
        steps = " → ".join(row.get("pipeline") or ())
        numbers = _NUMBER.findall(steps)
        if len(numbers) == 1:
            families.setdefault(f"{_NUMBER.sub('(k', steps)} on {row.get('fitted_on')}", {})[name] = int(numbers[0])
    return {family: members for family, members in families.items() if len(members) >= LEAST_FAMILY}


@styled
def map_dots(series: Series, word: str) -> Figure:
    """A line per map, a sign per series; dotted: the first map's value of the first series."""
    maps = list(dict.fromkeys(name for members in series.values() for name in members))
    figure = Figure(figsize=(WIDTH, 0.75 + 0.22 * len(maps)), layout="constrained")
    axes = figure.add_subplot()
    first = next(iter(series.values()))
    if maps[0] in first:
        axes.axvline(first[maps[0]]["value"], color=NEUTRAL, linewidth=1, linestyle=(0, (1, 1.5)), gid="baseline")
    for place, ((legend, members), (colour, marker)) in enumerate(zip(series.items(), SIGNS, strict=False)):
        axes.errorbar(
            [row["value"] for row in members.values()],
            [maps.index(name) + DODGE * (place - (len(series) - 1) / 2) for name in members],
            xerr=[row.get("standard_error") or 0 for row in members.values()],
            fmt=marker,
            markersize=4,
            color=colour,
            elinewidth=1,
            label=legend,
            gid=f"maps:{legend}",
        )
    axes.set(yticks=range(len(maps)), yticklabels=maps, ylim=(len(maps) - 0.4, -0.6), xlabel=word)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    legend_above(figure, axes, columns=3)
    return figure


@styled
def map_curve(series: Series, members: Mapping[str, int], word: str) -> Figure:
    """Value against the number in the map's name, logarithmic; dotted: the first map of each series."""
    figure = Figure(figsize=(WIDTH, 2.4), layout="constrained")
    axes = figure.add_subplot()
    for (legend, rows), (colour, marker) in zip(series.items(), SIGNS, strict=False):
        known = sorted(((members[name], rows[name]) for name in members if name in rows), key=lambda each: each[0])
        axes.errorbar(
            [k for k, _ in known],
            [row["value"] for _, row in known],
            yerr=[row.get("standard_error") or 0 for _, row in known],
            color=colour,
            marker=marker,
            markersize=3.5,
            elinewidth=1,
            label=legend,
            gid=f"curve:{legend}",
        )
        baseline = next(iter(rows.values()))
        axes.axhline(baseline["value"], color=colour, linewidth=1, linestyle=(0, (1, 1.5)))
    ticks = sorted(members.values())
    axes.set(xscale="log", xlabel="k", ylabel=word, xticks=ticks)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    legend_above(figure, axes, columns=4)
    return figure
