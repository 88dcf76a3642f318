"""Figures of tables whose lines are maps: one line of dots per map, and curves over the number in their names."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, ScalarFormatter

from clip_geometry.report.gallery import FigureEntry, save_entry
from clip_geometry.report.style import DOTTED, NEUTRAL, error_dots, legend_above, name_lines, new_axes, styled
from clip_geometry.report.words import Words

# of Okabe & Ito 2008, without those of the modalities
SIGNS = (("#009E73", "o"), ("#CC79A7", "^"), ("#E69F00", "s"), ("#56B4E9", "D"))
DODGE = 0.24  # of a line's height, between the markers of its series
LEAST_FAMILY = 3  # maps that make a curve
_NUMBER = re.compile(r"\((\d+)")
WORDS = Words(Path(__file__).with_name("words.j2"))

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
    """Draw and save the figures of rows of maps.

    Args:
        rows: Result rows; `at.row` names their map.
        measures: Name → its name in the legend; with `key` a single measure.
        folder: Where the files go.
        origin: Model and data, for the captions.
        key: The key of `at` whose values are the series.
        prefix: Of the file names.
        group: Heading in the report.

    Returns:
        The entries, none where no row has one of the measures.
    """
    series: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["measure"] in measures and row.get("value") is not None:
            legend = str(row["at"][key]) if key else measures[row["measure"]]
            series.setdefault(legend, {})[row["at"]["row"]] = row
    if not series:
        return []
    word = next(iter(measures.values())) if key else "accuracy"
    maps = _maps(series)
    save = partial(save_entry, prefix=prefix, group=group)
    title = f"{word[0].upper()}{word[1:]}"
    caption = WORDS("dots", word, len(maps), maps[0], origin)
    entries = [save(map_dots(series, word), folder, "maps", f"{title} after each map", caption)]
    for number, (family, members) in enumerate(_families(series).items()):
        name = "maps_curve" + (f"_{number + 1}" if number else "")
        caption = WORDS("curve", family, len(members), maps[0], origin)
        entries.append(save(map_curve(series, members, word), folder, name, f"{title} against k of {family}", caption))
    return entries


def _maps(series: Series) -> list[str]:
    return list(dict.fromkeys(name for members in series.values() for name in members))


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
    """One line per map, one marker per series; dotted: the first map's value of the first series."""
    maps = _maps(series)
    figure, axes = new_axes(0.75 + 0.22 * len(maps))
    first = next(iter(series.values()))
    if maps[0] in first:
        axes.axvline(first[maps[0]]["value"], color=NEUTRAL, linewidth=1, linestyle=DOTTED, gid="baseline")
    for place, ((legend, members), (colour, marker)) in enumerate(zip(series.items(), SIGNS, strict=False)):
        at = [maps.index(name) + DODGE * (place - (len(series) - 1) / 2) for name in members]
        error_dots(axes, members.values(), at, marker=marker, color=colour, label=legend, gid=f"maps:{legend}")
    name_lines(axes, maps)
    axes.set(xlabel=word)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    legend_above(figure, axes, columns=3)
    return figure


@styled
def map_curve(series: Series, members: Mapping[str, int], word: str) -> Figure:
    """Value against the number in the map's name, on a log axis; dotted: the first map of each series."""
    figure, axes = new_axes(2.4)
    for (legend, rows), (colour, marker) in zip(series.items(), SIGNS, strict=False):
        known = sorted((name for name in members if name in rows), key=lambda name: members[name])
        style = {"fmt": f"-{marker}", "markersize": 3.5, "color": colour, "label": legend, "gid": f"curve:{legend}"}
        error_dots(axes, [rows[name] for name in known], [members[name] for name in known], upright=True, **style)
        axes.axhline(next(iter(rows.values()))["value"], color=colour, linewidth=1, linestyle=DOTTED)
    axes.set(xscale="log", xlabel="k", ylabel=word, xticks=sorted(members.values()))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    legend_above(figure, axes, columns=4)
    return figure
