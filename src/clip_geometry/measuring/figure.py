"""A measurement as a figure: a panel per measure, and heat maps across three modalities or more."""

import io
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from clip_geometry.display.explained import explain, group_order
from clip_geometry.display.numbers import number
from clip_geometry.display.origin import Row
from clip_geometry.display.style import COLOR, COLORS, INK, MARKER, NEUTRAL, WIDTH, error_dots, name_lines, styled
from clip_geometry.measuring.table import couples, names_of, set_of, set_order
from clip_geometry.registry import InputError
from clip_geometry.results import Record

COLUMNS = 3
LINE, FRAME = 0.17, 0.52  # inches of a line in a panel, and of its title and axis
CELL, TITLE = 0.42, 0.14  # inches of a cell of a map, and of the second line of a title
TITLE_LENGTH = 28  # characters of a line of a title, beyond which it has two
SCREEN = 110  # pixels per inch in a notebook


class _Shown(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=2 * SCREEN)
        width, height = (round(SCREEN * float(inches)) for inches in self.get_size_inches())
        return buffer.getvalue(), {"width": width, "height": height}


@styled
def draw(records: Sequence[Record]) -> Figure:
    """Draws the numbers of a measurement; InputError without any."""
    crossed = couples(records)
    panels = _by_measure([r for r in records if r.value is not None and r not in crossed])
    maps = _by_measure(crossed)
    if not panels and not maps:
        raise InputError("no number was computed, so that there is nothing to draw; .notes says why")
    lines = max((len(rows) for rows in panels.values()), default=0)
    modalities = names_of(crossed)
    long = TITLE * any("\n" in panel_title(name) for name in panels)
    heights = [0.3 + ceil(len(panels) / COLUMNS) * (FRAME + long + LINE * lines)] if panels else []
    heights += [height_of(maps, modalities)] if maps else []
    figure = _Shown(figsize=(2 * WIDTH, sum(heights)), layout="constrained")
    parts = list(figure.subfigures(len(heights), squeeze=False, height_ratios=heights).flat)
    if panels:
        _draw_panels(parts[0], panels)
    if maps:
        draw_maps(parts[-1], maps, modalities)
    return figure


def _by_measure(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each measure; measures in the order of their groups, sets as in the tables."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=set_order):
        found.setdefault(record.measure, []).append(record)

    def place(name: str) -> int:
        return group_order(getattr(explain(name), "group", ""))

    order = dict.fromkeys(record.measure for record in records)
    return {name: found[name] for name in sorted(order, key=place)}


def _draw_panels(part: SubFigure, panels: Mapping[str, list[Record]]) -> None:
    names = dict.fromkeys(set_of(record) for rows in panels.values() for record in rows)
    others = [name for name in names if name not in (*COLOR, "both")]
    color = {**dict(zip(others, COLORS[2:] * len(others), strict=False)), "both": INK} | COLOR
    grid = part.subplots(ceil(len(panels) / COLUMNS), COLUMNS, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, (measure, rows) in zip(grid.flat, panels.items(), strict=False):
        for k, record in enumerate(rows):
            style = {"color": color[set_of(record)], "marker": MARKER.get(set_of(record), "o"), "zorder": 3}
            error_dots(axes, [record], [k], **style)
            if record.null_value is not None:
                axes.plot(record.null_value, k, "|", color=NEUTRAL, markersize=9, markeredgewidth=1.6)
        name_lines(axes, [" · ".join(str(value) for value in record.at.values()) for record in rows])
        axes.set_title(panel_title(measure), loc="left", fontsize=7.5, color=INK)
        axes.xaxis.set_major_locator(MaxNLocator(3, min_n_ticks=2))
        axes.margins(x=0.12)
        axes.grid(axis="y", visible=False)
        axes.tick_params(length=0, axis="y")
    keys = [
        Line2D([], [], marker="o", linestyle="-", color=INK, markersize=4, linewidth=1, label="value ± standard error"),
        Line2D(
            [], [], marker="|", linestyle="none", color=NEUTRAL, markersize=9, markeredgewidth=1.6, label="null value"
        ),
    ]
    part.legend(handles=keys, loc="outside upper left", ncols=2)


def height_of(maps: Mapping[str, Any], names: Sequence[str]) -> float:
    """In inches, of all maps."""
    long = TITLE * any("\n" in panel_title(name) for name in maps)
    return ceil(len(maps) / _across(names)) * (_side(names) + 0.3 + long) + _beside(names)


def _side(names: Sequence[str]) -> float:
    return max(1.2, CELL * len(names))


def _beside(names: Sequence[str]) -> float:
    """The room of the names, left of the maps and below them."""
    return 0.08 * max(map(len, names))


def _across(names: Sequence[str]) -> int:
    return min(COLUMNS, max(1, int((2 * WIDTH - _beside(names)) / (_side(names) + 0.1))))


def draw_maps(part: Figure | SubFigure, maps: Mapping[str, Sequence[Row]], names: Sequence[str]) -> None:
    """A map for each measure: from the first modality of a couple, the row, to the second one."""
    across = _across(names)
    grid = part.subplots(ceil(len(maps) / across), across, squeeze=False)
    for axes in grid.flat[len(maps) :]:
        axes.set_axis_off()
    for axes, (measure, rows) in zip(grid.flat, maps.items(), strict=False):
        values = np.full((len(names), len(names)), np.nan)
        for row in rows:
            one, other = (names.index(name) for name in row["at"]["modality"].split("+"))
            values[one, other] = row["value"]
            if "swap" in getattr(explain(measure), "invariances", ()):
                values[other, one] = row["value"]
        image = axes.imshow(values, cmap="cividis", aspect="equal")
        for (k, m), value in np.ndenumerate(values):
            if np.isfinite(value):
                color = "white" if image.norm(value) < 0.5 else INK
                axes.text(m, k, number(value), ha="center", va="center", fontsize=7, color=color)
        place = axes.get_subplotspec()
        lowest = place.rowspan.start * across + place.colspan.start + across >= len(maps)
        axes.set(xticks=range(len(names)), yticks=range(len(names)))
        axes.set_yticklabels(names if place.is_first_col() else [])
        turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if max(map(len, names)) > 6 or len(names) > 4 else {}
        axes.set_xticklabels(names if lowest else [], **turned)
        axes.set_title(panel_title(measure), loc="left", fontsize=7.5, color=INK)
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)


def panel_title(measure: str) -> str:
    """The name and its unit, in two lines where they would reach into the next panel."""
    unit = getattr(explain(measure), "unit", "")
    title = f"{measure} ({unit})" if unit else measure
    evaluator, dot, number = title.rpartition(".")
    return f"{evaluator}.\n{number}" if dot and len(title) > TITLE_LENGTH else title
