"""Figures that experiments share: panels of curves over steps, logarithmic axes, and dot plots with a line per map."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from clip_geometry.display.numbers import fixed, plus_minus
from clip_geometry.display.origin import Row
from clip_geometry.display.style import DASHED, DOTTED, NEUTRAL, WIDTH, error_dots, name_lines, styled
from clip_geometry.display.words import Words
from clip_geometry_experiments.kit.significance import differ
from clip_geometry_experiments.report.figures import Drawing

# Tol 2021, muted: distinguishable with every common color vision deficiency; no modality has these colors
WINE, INDIGO, GREEN, ROSE, CYAN = "#882255", "#332288", "#117733", "#CC6677", "#88CCEE"
SERIES = (WINE, GREEN, ROSE, CYAN, "#DDCC77", "#AA4499", "#44AA99", INDIGO, "#999933")
LINES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2)))  # a second cue beside the color
MARKERS = ("o", "^", "s", "D")  # a second cue beside the color; together they distinguish 44 languages

# colors of Okabe & Ito 2008, except for those of the modalities
SIGNS = (("#009E73", "o"), ("#CC79A7", "^"), ("#E69F00", "s"), ("#56B4E9", "D"))
DODGE = 0.24  # distance between the markers of a line's series, as a fraction of the line's height
WORDS = Words(Path(__file__).with_name("words.j2"))

Series = Mapping[str, Mapping[str, Row]]  # legend → map → row


class PanelCurve(NamedTuple):
    """A curve of a panel.

    Attributes:
        x: (states,) positions.
        values: (states,), or (runs, states), which are drawn as their mean and one standard deviation.
        color: Color of the curve.
        label: Name in the legend.
        line: Line style.
        gid: The `gid` of the drawn line.
        style: More options of `Axes.plot`.
        errors: (states,) lengths of bars above and below the values; None for no bars.
    """

    x: Sequence[float] | NDArray[Any]
    values: NDArray[np.float64]
    color: str
    label: str = ""
    line: Any = "-"
    gid: str = ""
    style: Mapping[str, Any] = {}
    errors: NDArray[np.float64] | None = None


class Panel(NamedTuple):
    """Curves on common axes.

    Attributes:
        label: Label of the y axis.
        curves: The curves.
        limits: Limits of the y axis. A limit is dropped if a curve goes beyond it.
        log: Whether the y axis is logarithmic; it stays linear unless all values are positive.
        levels: Value → style of a horizontal line.
        legend: Whether a legend of the curves is above the panel.
        title: Title above the panel on the left.
        ends: Number of decimals of the first and last values, which are printed above the panel; None to omit them.
    """

    label: str
    curves: Sequence[PanelCurve]
    limits: tuple[float | None, float | None] = (None, None)
    log: bool = False
    levels: Mapping[float, Mapping[str, Any]] = {}
    legend: bool = False
    title: str = ""
    ends: int | None = None


@styled
def panels_figure(
    panels: Sequence[Panel],
    *,
    size: tuple[float, float],
    xlabel: str,
    columns: int = 1,
    share: bool = False,
    log_steps: bool = False,
    legend: Mapping[str, Any] | None = None,
) -> Figure:
    """Draw panels row by row.

    Args:
        panels: The panels, from left to right, then from top to bottom.
        size: Width and height of the figure in inches.
        xlabel: Label of the common x axis.
        columns: Panels per row.
        share: Whether the panels of a row share their y axis.
        log_steps: Whether the x axis is logarithmic from step 1 on.
        legend: Options of a legend of all labels above the figure; None for no legend.
    """
    figure = Figure(figsize=size, layout="constrained")
    rows = -(-len(panels) // columns)
    grid = figure.subplots(rows, columns, sharex=True, sharey="row" if share else False, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        _draw(axes, panel)
        if log_steps and panel.curves:
            # linear up to step 1 and logarithmic beyond, so that the first steps remain visible
            last = int(panel.curves[0].x[-1])
            ticks = [0, *(10**k for k in range(len(str(last))) if 10**k <= last)]
            axes.set_xscale("symlog", linthresh=1, linscale=0.5)
            axes.set_xticks(ticks, ["" if tick == 1 else f"{tick}" for tick in ticks])
            axes.set_xlim(0, last)
            axes.xaxis.minorticks_off()
    for place, (axes, panel) in enumerate(zip(grid, panels, strict=False)):  # the scales depend on all curves of a row
        first = place // columns * columns
        sharing = panels[first : first + columns] if share else [panel]
        drawn = [curve.values.ravel() for other in sharing for curve in other.curves]
        _scale(axes, panel, np.concatenate([*drawn, np.zeros(0)]))
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes in grid[: len(panels)][-columns:]:
        axes.set_xlabel(xlabel)
        axes.tick_params(labelbottom=True)
        if not log_steps:
            whole = all((np.mod(curve.x, 1) == 0).all() for panel in panels for curve in panel.curves)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=whole))
    if legend is not None:
        handles = {label: line for axes in grid for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(list(handles.values()), list(handles), loc="outside upper left", **legend)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    """Draw the curves of a panel; curves over several seeds are shown as mean and standard deviation."""
    for k, (x, values, color, label, line, gid, style, errors) in enumerate(panel.curves):
        mean = values if values.ndim == 1 else values.mean(axis=0)
        drawn: Any = {"color": color, "label": label, "linestyle": line, "gid": gid, **style}
        if errors is None:
            axes.plot(x[: len(mean)], mean, **drawn)
        else:
            axes.errorbar(x, mean, yerr=errors, elinewidth=0.9, **drawn)
        if values.ndim == 2:
            band = (mean - deviation(values), mean + deviation(values))
            axes.fill_between(x[: len(mean)], *band, color=color, alpha=0.25, linewidth=0)
        if panel.ends is not None:
            ends = "→".join(fixed(value, panel.ends) if np.isfinite(value) else "?" for value in mean[[0, -1]])
            place: Any = {"x": k / max(len(panel.curves) - 1, 1), "ha": "right" if k else "left"}
            axes.text(**place, y=1.04, s=ends, transform=axes.transAxes, color=color, fontsize=7)
    for level, style in panel.levels.items():
        axes.axhline(level, **style)
    axes.set_ylabel(panel.label)
    if panel.legend:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=7, handlelength=2.2)
    if panel.title:
        axes.set_title(panel.title, fontsize=8, fontweight="bold", loc="left", pad=13)


def _scale(axes: Axes, panel: Panel, values: NDArray[np.float64]) -> None:
    """Set a logarithmic axis, or limits that no value exceeds."""
    if panel.log:
        log_axis(axes.yaxis, values)
        return
    low, high = panel.limits
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.set_ylim(
        low if low is None or np.nanmin(values, initial=low) >= low else None,
        high if high is None or np.nanmax(values, initial=high) <= high else None,
    )


def log_axis(axis: Any, values: NDArray[np.float64]) -> None:
    """Make an axis logarithmic, with plain numbers as tick labels, if all values are positive."""
    known = values[np.isfinite(values)]
    if not len(known) or known.min() <= 0:
        return
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if known.max() < 100 * known.min() else (1,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def deviation(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviation (n − 1) over the first axis, the runs; 0 for a single run."""
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])


def draw_maps(rows: Sequence[Row], measures: Mapping[str, str], *, key: str | None = None) -> dict[str, Drawing]:
    """Draw the figure of rows of maps.

    Args:
        rows: Result rows; `at.row` is the name of the map.
        measures: Measure → its name in the legend. With `key`, there is a single measure.
        key: The key of `at` whose values are the series. Default: the measures are the series.

    Returns:
        File name → drawing; empty if no row has one of the measures.
    """
    series: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["measure"] in measures and row.get("value") is not None:
            legend = str(row["at"][key]) if key else measures[row["measure"]]
            series.setdefault(legend, {})[row["at"]["row"]] = row
    if not series:
        return {}
    word = next(iter(measures.values())) if key else "accuracy"
    maps = _map_names(series)
    title = f"{word[0].upper()}{word[1:]}"
    caption = WORDS("dots", word, len(maps), maps[0])
    return {"maps": Drawing(f"{title} after each map", map_dots({word: series}), caption)}


def map_sentences(
    rows: Sequence[Row], measures: Mapping[str, str], *, key: str | None, of: str = "pairs", label: str = ""
) -> list[str]:
    """Return sentences on what maps change: one for each measure, or for each value of `at[key]`, the last value first.

    Args:
        rows: Result rows. `at.row` is the name of the map, and the other maps are compared with the first one.
        measures: Measure → its name in the sentence.
        key: The key of `at` that groups the rows; None for one sentence per measure.
        of: What the values of `at[key]` are kinds of.
        label: Name of the run if there are several.
    """
    sentences = []
    for measure, what in measures.items():
        of_measure = [row for row in rows if row["measure"] == measure and row.get("value") is not None]
        if any("draw" not in row["at"] for row in of_measure):  # keep only the means over several draws
            of_measure = [row for row in of_measure if "draw" not in row["at"]]
        for kind in reversed(dict.fromkeys(row["at"].get(key) for row in of_measure)):
            first, *others = [row for row in of_measure if row["at"].get(key) == kind]
            above = [row for row in others if row["value"] > first["value"] and differ(row, first)]
            below = [row for row in others if row["value"] < first["value"] and differ(row, first)]
            effect = {
                "unknown": any(differ(row, first) is None for row in others),
                "what": f"{what} on {kind.replace(' ', '-')} {of}" if kind else what,
                "highest": _extreme(above, 1),
                "lowest": _extreme(below, -1),
                "ends": [fixed(end(row["value"] for row in others), 3) for end in (min, max)] if others else [],
            }
            sentences.append(
                WORDS("map_effect", label, _name_and_value(first), first.get("null_value"), len(others), **effect)
            )
    return sentences


def _name_and_value(row: Row) -> dict[str, str]:
    return {"name": row["at"]["row"], "value": plus_minus(row["value"], row.get("standard_error"))}


def _extreme(rows: Sequence[Row], sign: int) -> list[dict[str, str]]:
    """Return the row with the largest value, or the smallest for sign −1, then the rows that do not differ from it."""
    if not rows:
        return []
    best = max(rows, key=lambda row: sign * row["value"])
    ties = [row for row in rows if row is not best and not differ(row, best)]
    return [_name_and_value(row) for row in (best, *ties)]


def _map_names(series: Series) -> list[str]:
    return list(dict.fromkeys(name for members in series.values() for name in members))


@styled
def map_dots(panels: Mapping[str, Series], styles: Mapping[str, tuple[str, str]] | None = None) -> Figure:
    """Draw one panel per number, one line per map and one marker per series.

    The dotted line is the value of the first map, and the dashed line is its null value.

    Args:
        panels: Number → series.
        styles: Legend → (color, marker). Default: `SIGNS` in the order of the series.
    """
    maps = list(dict.fromkeys(name for series in panels.values() for name in _map_names(series)))
    width = WIDTH if len(panels) == 1 else 2.15 * WIDTH
    figure = Figure(figsize=(width, 0.75 + (0.22 if len(panels) == 1 else 0.27) * len(maps)), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (word, series) in zip(grid, panels.items(), strict=True):
        signs = styles or dict(zip(series, SIGNS, strict=False))
        for place, (legend, members) in enumerate(series.items()):
            color, marker = signs[legend]
            heights = [maps.index(name) + DODGE * (place - (len(series) - 1) / 2) for name in members]
            error_dots(axes, members.values(), heights, marker=marker, color=color, label=legend, gid=f"maps:{legend}")
            if first := members.get(maps[0]):
                axes.axvline(first["value"], color=color, linewidth=1, linestyle=DOTTED, zorder=1)
                if place == 0 and first.get("null_value") is not None:
                    axes.axvline(first["null_value"], color=NEUTRAL, linewidth=1, linestyle=DASHED, zorder=1)
        axes.set_xlabel(word, fontsize=None if len(panels) == 1 else 7.5)
        axes.set_xlim(left=0 if len(panels) == 1 else min(0, axes.get_xlim()[0]))
        axes.xaxis.set_major_locator(MaxNLocator(5 if len(panels) == 1 else 2))
        axes.xaxis.set_major_formatter("{x:g}")
    name_lines(grid[0], maps)
    handles = {label: line for axes in grid for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    columns = 3 if len(panels) == 1 else len(handles)
    figure.legend(list(handles.values()), list(handles), loc="outside upper left", ncols=columns)
    return figure
