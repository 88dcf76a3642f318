"""What the figures of experiments share: panels of curves, axes, and saving a figure with its caption."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.numbers import fixed
from clip_geometry.report.style import save_figure, styled

INK = "#24292F"
# Tol 2021, muted: distinguishable with every common color vision deficiency, and the colors of no modality
WINE, INDIGO, GREEN, ROSE, CYAN = "#882255", "#332288", "#117733", "#CC6677", "#88CCEE"
SERIES = (WINE, GREEN, ROSE, CYAN, "#DDCC77", "#AA4499", "#44AA99", INDIGO, "#999933")
LINES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2)))  # a second cue beside the color
DASHED = LINES[1]


class Drawing(NamedTuple):
    """A figure that is not saved yet. wide: it takes the width of two others on the page."""

    title: str
    figure: Figure
    caption: str
    wide: bool = False


def save_drawings(
    drawings: Mapping[str, Drawing], folder: str | Path, *, origin: str, prefix: str = "", group: str = ""
) -> list[FigureEntry]:
    """Save figures as PNG and SVG.

    Args:
        drawings: File name → drawing.
        folder: Where the files go.
        origin: Data, model and seed; the last sentence of every caption.
        prefix: Of the file names.
        group: Heading of the figures in the report of a sweep.
    """
    entries = []
    for name, (title, figure, caption, wide) in drawings.items():
        png, svg = save_figure(figure, folder, prefix + name)
        entries.append(FigureEntry(prefix + name, title, f"{caption} {origin}", svg, png, group, wide=wide))
    return entries


class Curve(NamedTuple):
    """A curve of a panel. values: (states,), or (runs, states), drawn as their mean and one standard deviation."""

    x: Sequence[float] | NDArray[Any]
    values: NDArray[np.float64]
    color: str
    label: str = ""
    line: Any = "-"
    gid: str = ""


class Panel(NamedTuple):
    """Curves on common axes.

    label, limits: of the y axis; curves beyond the limits take precedence. log: logarithmic y axis where all values are
    positive. levels: value → style of a horizontal line. legend: of these curves, above the panel. title: above the
    panel on the left. ends: decimals of the first and last values printed above the panel; None for no such text.
    """

    label: str
    curves: Sequence[Curve]
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
        panels: From left to right, then from top to bottom.
        size: Of the figure in inches.
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
            _step_axis(axes, int(panel.curves[0].x[-1]))
    for place, (axes, panel) in enumerate(zip(grid, panels, strict=False)):  # scales need all curves of a row
        row = place // columns * columns
        beside = panels[row : row + columns] if share else [panel]
        drawn = [each.values.ravel() for other in beside for each in other.curves]
        _scale(axes, panel, np.concatenate([*drawn, np.zeros(0)]))
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes in grid[: len(panels)][-columns:]:
        axes.set_xlabel(xlabel)
        axes.tick_params(labelbottom=True)
        if not log_steps:
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if legend is not None:
        keys = {key: handle for axes in grid for handle, key in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(list(keys.values()), list(keys), loc="outside upper left", **legend)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    for k, (x, values, color, label, line, gid) in enumerate(panel.curves):
        mean = values if values.ndim == 1 else values.mean(axis=0)
        axes.plot(x[: len(mean)], mean, color=color, label=label, linestyle=line, gid=gid)
        if values.ndim == 2:
            band = (mean - deviation(values), mean + deviation(values))
            axes.fill_between(x[: len(mean)], *band, color=color, alpha=0.25, linewidth=0)
        if panel.ends is not None:
            ends = "→".join(fixed(value, panel.ends) if np.isfinite(value) else "?" for value in mean[[0, -1]])
            place: Any = {"x": k / max(len(panel.curves) - 1, 1), "ha": "right" if k else "left"}
            axes.text(**place, y=1.04, s=ends, transform=axes.transAxes, color=color, fontsize=6)
    for level, style in panel.levels.items():
        axes.axhline(level, **style)
    axes.set_ylabel(panel.label)
    if panel.legend:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=6.5, handlelength=2.2)
    if panel.title:
        axes.set_title(panel.title, fontsize=8, fontweight="bold", loc="left", pad=13)


def _step_axis(axes: Axes, last: int) -> None:
    """Steps from 0 on: linear up to 1, logarithmic beyond, so that the first steps are seen."""
    axes.set_xscale("symlog", linthresh=1, linscale=0.5)
    ticks = [0, *(10**k for k in range(len(str(last))) if 10**k <= last)]
    axes.set_xticks(ticks, ["" if tick == 1 else f"{tick}" for tick in ticks])
    axes.set_xlim(0, last)
    axes.xaxis.minorticks_off()


def _scale(axes: Axes, panel: Panel, values: NDArray[np.float64]) -> None:
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
    """Make an axis logarithmic with plain numbers as tick labels, where all values are positive."""
    known = values[np.isfinite(values)]
    if not len(known) or known.min() <= 0:
        return
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if known.max() < 100 * known.min() else (1,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def deviation(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation (n − 1) over the first axis, the runs; 0 for a single run."""
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])
