"""What a figure shows, as a table and in words, read from the figure itself: no drawing function has to say it."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle, StepPatch
from matplotlib.ticker import FixedLocator

from clip_geometry.display.numbers import number

MOST_ROWS = 200  # of a table in the page
MOST_PANELS = 4  # that the words describe one by one
COLUMNS = ("panel", "series", "x", "y", "z", "±")
NAMELESS = "_"  # with which matplotlib begins the label of what has none


class Point(NamedTuple):
    """A point that is drawn. x, y: numbers, or the names at the ticks of the axis; error: half of its bar."""

    panel: str
    series: str
    x: Any
    y: Any
    z: Any = None
    error: Any = None


class Table(NamedTuple):
    """Columns that have a value, and a row for each point."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    left_out: int = 0

    @classmethod
    def read(cls, text: str, most: int = MOST_ROWS) -> "Table":
        """From CSV; of more rows than `most`, evenly spaced ones, and how many are left out."""
        columns, *rows = csv.reader(io.StringIO(text))
        kept = np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int))
        words = [name in COLUMNS[:2] for name in columns]
        shown = [tuple(map(_shown, rows[k], words)) for k in kept]
        return cls(tuple(columns), shown, len(rows) - len(kept))


def _shown(cell: str, word: bool) -> str:
    try:
        return cell if word else number(float(cell)) if "." in cell or "e" in cell else cell.replace("-", "−")
    except ValueError:  # the name of a tick
        return cell


def as_csv(figure: Figure) -> str:
    """The points of a figure as CSV: panel, series, x, y and error, of which those that none has are left out."""
    drawn = list(_panels(figure))
    points = [point for _, _, found in drawn for point in found]
    labels = [{axes.get_xlabel() for axes, _, _ in drawn}, {axes.get_ylabel() for axes, _, _ in drawn}]
    heads: list[str] = list(COLUMNS)
    for k, found in enumerate(labels):  # the axis' own label, where it is that of all panels
        heads[2 + k] = next(iter(found)) or heads[2 + k] if len(found) == 1 else heads[2 + k]
    used = [k for k in range(len(heads)) if any(point[k] not in (None, "") for point in points)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([heads[k] for k in used])
    writer.writerows([_written(point[k]) for k in used] for point in points)
    return text.getvalue()


def _written(cell: Any) -> str:
    return "" if cell is None else cell if isinstance(cell, str) else f"{cell:.7g}"


def in_words(figure: Figure) -> str:
    """The axes and the series of each panel, in a sentence for readers who do not see the figure."""
    panels = [
        (axes, title, list(dict.fromkeys(point.series for point in found))) for axes, title, found in _panels(figure)
    ]
    panels = [panel for panel in panels if panel[2]]
    said = []
    for axes, title, series in panels[:MOST_PANELS]:
        across, up = _plain(axes.get_xlabel()), _plain(axes.get_ylabel())
        what = f"{up} against {across}" if across and up else across or up
        named = [each for each in series if each]
        shown = f"{', '.join(named[:8])}{f' and {len(named) - 8} more' if len(named) > 8 else ''}"
        head = title if title != axes.get_ylabel() else ""
        said.append(": ".join(filter(None, (head, "; ".join(filter(None, (what, shown)))))))
    more = len(panels) - MOST_PANELS
    return ". ".join([*filter(None, said), *([f"{more} more panels"] if more > 0 else [])])


def _plain(label: str) -> str:
    return " ".join(label.replace("$", "").split())


def _panels(figure: Figure) -> Iterator[tuple[Axes, str, list[Point]]]:
    """Each panel that has points, with its name, "" for a single one."""
    keys = _keys(figure)
    every = [(axes, list(_points(axes, keys))) for axes in figure.axes if axes.get_label() != "<colorbar>"]
    every = [(axes, points) for axes, points in every if points]
    names: dict[str, int] = {}
    for place, (axes, points) in enumerate(every, start=1):
        title = axes.get_title("left") or axes.get_title() or (axes.get_ylabel() if len(every) > 1 else "")
        title = _plain(title) or (f"panel {place}" if len(every) > 1 else "")
        names[title] = names.get(title, 0) + 1
        title += f" ({names[title]})" if names[title] > 1 else ""
        yield axes, title, [Point(title, *rest) for rest in points]


def _keys(figure: Figure) -> dict[Any, str]:
    """How a line of a legend looks → its label, for lines that leave theirs to the legend."""
    found = {}
    for legend in [*figure.legends, *(axes.get_legend() for axes in figure.axes)]:
        if legend is not None:
            for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=False):
                if isinstance(handle, Line2D):
                    found.setdefault(_look(handle), _plain(text.get_text()))
    return found


def _look(line: Line2D) -> tuple[Any, ...]:
    return str(line.get_color()), str(getattr(line, "_unscaled_dash_pattern", line.get_linestyle())), line.get_marker()


def _name(artist: Any, keys: Mapping[Any, str]) -> str:
    """The label, else the one in a legend of a line that looks the same, else what the drawing calls it."""
    label = str(artist.get_label() or "")
    if not label.startswith(NAMELESS):
        return _plain(label)
    shared = keys.get(_look(artist), "") if isinstance(artist, Line2D) else ""
    return shared or (getattr(artist, "get_gid", str)() or "").replace(":", " ").strip()


def _points(axes: Axes, keys: Mapping[Any, str]) -> Iterator[tuple[Any, ...]]:
    across, up = _ticks(axes.xaxis), _ticks(axes.yaxis)

    def named(series: str, x: Any, y: Any, z: Any = None, error: Any = None) -> tuple[Any, ...]:
        return series, across(x), up(y), z, error

    within, areas = set(), [each for each in axes.collections if isinstance(each, PolyCollection)]
    for container in axes.containers:
        within |= {id(child) for child in container.get_children()}
        series = _name(container, keys)
        if isinstance(container, BarContainer):
            for bar in container.patches:
                assert isinstance(bar, Rectangle)
                upright = getattr(container, "orientation", "vertical") == "vertical"
                place = bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height() / 2
                ends = (place[0], bar.get_y() + bar.get_height()), (bar.get_x() + bar.get_width(), place[1])
                yield named(series, *ends[0 if upright else 1])
        elif isinstance(container, ErrorbarContainer) and container.lines[0] is not None:
            line, _, bars = container.lines
            lengths = [[float(np.ptp(ends, axis=0).max()) / 2 for ends in bar.get_segments()] for bar in bars]
            series = series or _name(line, keys)
            data: Any = line.get_data(orig=False)
            for k, (x, y) in enumerate(zip(*data, strict=True)):
                # of bars in both directions, those along y
                yield named(series, x, y, error=lengths[-1][k] if lengths and k < len(lengths[-1]) else None)
    for line in axes.lines:
        if id(line) in within or not line.get_visible():
            continue
        series = _name(line, keys)
        data = line.get_data(orig=False)
        z = getattr(line, "get_data_3d", lambda: (None, None, None))()[2]
        free = [not bound for bound in line.get_transform().contains_branch_seperately(axes.transData)]
        if any(free):  # a line across the panel, at a value of one axis
            x, y = (None if free[k] else float(np.ravel(data[k])[0]) for k in (0, 1))
            if (x is None) != (y is None):
                yield series, x, y, None, None
            continue
        band = next(filter(None, (_band(area, *data) for area in areas)), {})
        for k, (x, y) in enumerate(zip(*data, strict=True)):
            low, high = band.get(float(x), (0.0, 0.0))
            yield named(series, x, y, None if z is None else z[k], (high - low) / 2 if band else None)
    for points in axes.collections:
        if isinstance(points, PathCollection) and id(points) not in within:
            series, depth = _name(points, keys), getattr(points, "_offsets3d", None)
            offsets: Any = zip(*depth, strict=True) if depth is not None else np.asarray(points.get_offsets())
            for place in offsets:
                yield named(series, *place)
    for steps in axes.patches:
        if isinstance(steps, StepPatch) and not steps.get_fill():
            values, edges, _ = steps.get_data()
            for middle, value in zip((edges[1:] + edges[:-1]) / 2, values, strict=True):
                yield named(_name(steps, keys), middle, value)
    for image in axes.images:
        cells = np.ma.filled(np.ma.asarray(image.get_array(), dtype=float), np.nan)
        if cells.ndim == 2:
            for (row, column), value in np.ndenumerate(cells):
                if np.isfinite(value):
                    yield "", across(column), up(row), value, None


def _band(area: PolyCollection, xs: Iterable[float], ys: Sequence[float]) -> dict[float, tuple[float, float]]:
    """x → the lower and the upper end of an area between two curves, if the curve lies in its middle everywhere."""
    found: dict[float, tuple[float, float]] = {}
    for path in area.get_paths()[:1]:
        for x, y in np.asarray(path.vertices, dtype=float):
            low, high = found.get(x, (y, y))
            found[x] = min(low, y), max(high, y)
    ends = [found.get(float(x), (np.nan, np.nan)) for x in xs]
    known = [(np.mean(end), y) for end, y in zip(ends, ys, strict=True) if np.isfinite(y)]
    return found if known and np.allclose(*np.array(known).T) else {}


def _ticks(axis: Any) -> Any:
    """A value → the name of the nearest tick, of an axis whose ticks are names; else the value."""
    names: dict[float, str] = {}
    if isinstance(axis.get_major_locator(), FixedLocator):
        places = axis.get_majorticklocs()
        names = dict(zip(map(float, places), axis.get_major_formatter().format_ticks(places), strict=True))
    if not any(name[:1] != "$" and _plain(name)[:1].isalpha() for name in names.values()):
        return lambda value: None if value is None or not np.isfinite(value) else float(value)
    return lambda value: names[min(names, key=lambda place: abs(place - value))]
