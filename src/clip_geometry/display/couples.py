"""Numbers of two of three modalities or more: a matrix for each measure, as a table and as a heat map."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from clip_geometry.catalog import descriptions
from clip_geometry.display.numbers import number, plus_minus, to_error
from clip_geometry.display.origin import Row
from clip_geometry.display.table import explain

if TYPE_CHECKING:  # a table needs no matplotlib
    from matplotlib.figure import Figure, SubFigure

COLUMNS = 3
CELL, TITLE = 0.42, 0.14  # inches of a cell of a map, and of the second line of a title
TITLE_LENGTH = 28  # characters of a line of a title, beyond which it has two

R = TypeVar("R", bound=Row)


def couples(rows: Iterable[R]) -> list[R]:
    """The numbers of two of three modalities or more, where they are those of all rows."""
    at = ((row, row.get("at") or {}) for row in rows if row.get("value") is not None)
    return [row for row, place in at if place.keys() == {"modality"} and "+" in str(place["modality"])]


def names_of(rows: Iterable[Row]) -> list[str]:
    """The modalities of couples, in the order of the matrices."""
    return sorted({name for row in rows for name in row["at"]["modality"].split("+")})


def matrices(rows: Iterable[Row]) -> dict[str, tuple[list[str], dict[tuple[str, str], str]]]:
    """Measure → its modalities, and the text of each cell: the value above the diagonal, the null value below it."""
    found = {}
    for row in rows:
        one, other = row["at"]["modality"].split("+")
        names, cells = found.setdefault(row["measure"], ([], {}))
        names[:] = sorted({*names, one, other})
        upper, lower = ((one, other), (other, one)) if one < other else ((other, one), (one, other))
        cells[upper] = plus_minus(row["value"], row.get("standard_error"), row.get("null_value"))
        cells[lower] = to_error(row.get("null_value"), row.get("standard_error"), row["value"])
    return found


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
    from clip_geometry.display.style import WIDTH

    return min(COLUMNS, max(1, int((2 * WIDTH - _beside(names)) / (_side(names) + 0.1))))


def draw_maps(part: "Figure | SubFigure", maps: Mapping[str, Sequence[Row]], names: Sequence[str]) -> None:
    """A map for each measure: from the first modality of a couple, the row, to the second one."""
    from clip_geometry.display.style import INK

    across = _across(names)
    grid = part.subplots(ceil(len(maps) / across), across, squeeze=False)
    for axes in grid.flat[len(maps) :]:
        axes.set_axis_off()
    for axes, (measure, rows) in zip(grid.flat, maps.items(), strict=False):
        values = np.full((len(names), len(names)), np.nan)
        for row in rows:
            one, other = (names.index(name) for name in row["at"]["modality"].split("+"))
            values[one, other] = row["value"]
            if "swap" in getattr(explain(measure, descriptions), "invariances", ()):
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
    unit = getattr(explain(measure, descriptions), "unit", "")
    title = f"{measure} ({unit})" if unit else measure
    evaluator, dot, number = title.rpartition(".")
    return f"{evaluator}.\n{number}" if dot and len(title) > TITLE_LENGTH else title
