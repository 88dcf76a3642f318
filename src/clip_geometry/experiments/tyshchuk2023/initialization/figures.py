"""Figures of fresh models: curves over the layers, planes with and without biases, cosines of many models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from clip_geometry.report.figures import singular_plane
from clip_geometry.report.numbers import fixed
from clip_geometry.report.style import COLOUR, INK, MARKER, NEUTRAL, WIDTH, name_lines, new_axes, styled

MILLION = 1e6
# what a line of a panel shows → how it is drawn; the colour is that of the modality
LINES = {
    "stream": "-",
    "before the ReLU": (0, (4, 1.2, 1, 1.2)),
    "MLP branch": (0, (5, 1.5)),
    "attention branch": (0, (1, 1.2)),
}
WITHOUT: Any = {"color": "#C9CFD6", "linewidth": 4, "zorder": 1}  # wide and pale, for it lies under the stream
STEP, FROM_START = "predicted from the step before", "predicted from the start"


@dataclass(frozen=True)
class Curve:
    """Average cosines over the layers: at x, the mean over seeds and their standard deviation, 0 for a single seed;
    predictions are NaN where there are none."""

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    predicted: NDArray[np.float64]
    from_start: NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """One tower. curves: key of LINES → curve. without: the stream where all biases are zero."""

    title: str
    modality: str
    curves: Mapping[str, Curve]
    without: Curve | None = None


class Spread(NamedTuple):
    """Values of several seeds."""

    values: Sequence[float]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    def __str__(self) -> str:
        """`0.7056 ± 0.0021`, of one seed `0.7056`."""
        error = f" ± {fixed(self.deviation, 4)}" if len(self.values) > 1 else ""
        return fixed(self.mean, 4) + error


@styled
def layer_curves(panels: Sequence[Panel]) -> Figure:
    """A panel for each tower: lines measured, bands one standard deviation over seeds, markers predicted."""
    figure = Figure(figsize=(WIDTH, 0.75 + 1.5 * len(panels)), layout="constrained")
    marks: Any = {"markersize": 3.5, "markeredgewidth": 0.8, "markerfacecolor": "none", "ls": "none", "color": INK}
    for place, panel in enumerate(panels, start=1):
        axes, colour = figure.add_subplot(len(panels), 1, place), COLOUR[panel.modality]
        for name, curve in panel.curves.items():
            axes.plot(curve.x, curve.mean, color=colour, linestyle=LINES[name], gid=f"{name}:{panel.modality}")
            band = curve.mean - curve.spread, curve.mean + curve.spread
            axes.fill_between(curve.x, *band, color=colour, alpha=0.2, lw=0)
            shown = {"MLP branch": ("o", curve.predicted, STEP), "stream": ("x", curve.from_start, FROM_START)}
            if name in shown:
                marker, values, what = shown[name]
                gid = f"{what}:{panel.modality}"
                axes.plot(curve.x, values, marker=marker, gid=gid, zorder=4, **marks)
        if panel.without is not None:
            axes.plot(panel.without.x, panel.without.mean, gid=f"without:{panel.modality}", **WITHOUT)
        axes.set_title(panel.title, loc="left")
        axes.set(ylabel="average cosine", ylim=(-0.05, 1.05))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.axes[-1].set_xlabel("block")
    names = [name for name in LINES if any(name in panel.curves for panel in panels)]
    keys = [Line2D([], [], color=INK, linestyle=LINES[name], label=name) for name in names]
    if any(panel.without is not None for panel in panels):
        keys.append(Line2D([], [], label="stream, zero biases", **WITHOUT))
    if any(np.isfinite(curve.predicted).any() for panel in panels for curve in panel.curves.values()):
        keys.append(Line2D([], [], marker="o", label="MLP branch, predicted", **marks))
        keys.append(Line2D([], [], marker="x", label="stream, predicted", **marks))
    figure.legend(handles=keys, loc="outside upper left", ncols=2)
    return figure


@styled
def bias_planes(towers: Sequence[tuple[str, str, Mapping[str, NDArray]]]) -> Figure:
    """Unit rows on their own first two singular directions (not centered): one row of panels for each tower.

    towers: (title, modality, heading → rows (n, d)), with the headings of the first for all. A cross marks the mean, a
    plus the origin; both axes of all panels have one scale.
    """
    headings = list(towers[0][2])
    figure = Figure(figsize=(WIDTH, 0.45 + 1.35 * len(towers)), layout="constrained")
    axes = figure.subplots(len(towers), len(headings), sharex=True, sharey=True, squeeze=False)
    for (title, modality, sets), line in zip(towers, axes, strict=True):
        for heading, panel in zip(headings, line, strict=True):
            if heading not in sets:
                panel.set_visible(False)
                continue
            points = sets[heading] @ singular_plane(sets[heading])[0]
            style = {"s": 5, "marker": MARKER[modality], "linewidths": 0, "alpha": 0.6}
            panel.scatter(*points.T, c=COLOUR[modality], gid=f"points:{modality}", **style)
            panel.plot(0, 0, "+", color=INK, markersize=7, gid="origin")
            cross = {"markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.8}
            panel.plot(*points.mean(0)[:, None], "X", color=INK, gid="mean", **cross)
            panel.text(0.03, 0.96, title, transform=panel.transAxes, va="top", fontsize=7, color=INK)
            panel.set_aspect("equal")
    for heading, panel in zip(headings, axes[0], strict=True):
        panel.set_title(heading, loc="left")
    axes[0, 0].set(xlim=(-0.15, 1.1), ylim=(-0.55, 0.7))
    figure.supxlabel("first singular direction", fontsize=8)
    figure.supylabel("second singular direction", fontsize=8)
    return figure


@styled
def cosine_dots(lines: Sequence[tuple[str, str, Mapping[str, Spread]]]) -> Figure:
    """A line for each tower of each model: mean and standard deviation over seeds, with biases and without.

    lines: (name, modality, {"as initialized": …, "zero biases": …}), either may be missing.
    """
    figure, axes = new_axes(0.85 + 0.3 * len(lines))
    for place, (_, modality, values) in enumerate(lines):
        for heading, spread in values.items():
            zero = heading == "zero biases"
            style = {"fmt": MARKER[modality], "markersize": 4.5, "elinewidth": 1, "color": COLOUR[modality]}
            hollow = {"markerfacecolor": "white", "zorder": 3} if zero else {}
            at = place + (0.17 if zero else -0.17)
            axes.errorbar(spread.mean, at, xerr=spread.deviation, gid=f"{heading}:{place}", **style, **hollow)
            axes.annotate(
                str(spread), (1.02, at), xycoords=axes.get_yaxis_transform(), va="center", fontsize=6.5, color=INK
            )
    name_lines(axes, [name for name, *_ in lines], below=0.5, above=0.5)
    axes.set_xlim(min(0.0, *(s.mean - s.deviation for *_, v in lines for s in v.values())), 1.03)
    axes.set_xlabel("average cosine of the embeddings")
    full = {"marker": "o", "color": NEUTRAL, "ls": "none", "markersize": 4.5}
    keys = [Line2D([], [], label="as initialized", **full)]
    if any("zero biases" in values for *_, values in lines):
        keys.append(Line2D([], [], label="zero biases", markerfacecolor="white", **full))
    figure.legend(handles=keys, loc="outside upper left", ncols=2)
    return figure


@dataclass(frozen=True)
class Model:
    """One architecture of a sweep. points: modality → (parameters of the tower, average cosine)."""

    name: str
    points: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@styled
def size_scatter(models: Sequence[Model]) -> Figure:
    """Average cosine of the embeddings against the size of the tower, on a log axis; a point for each tower."""
    figure, axes = new_axes(2.7)
    for modality in ("image", "text"):
        points = [model.points[modality] for model in models if modality in model.points]
        if points:
            size, cosine = np.array(points).T
            axes.scatter(size / MILLION, cosine, label=modality, gid=f"sizes:{modality}", **_hollow(modality))
    axes.set(xscale="log", xlabel="million parameters of the tower", ylabel="average cosine", ylim=(-0.05, 1.05))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    figure.legend(loc="outside upper left", ncols=2)
    return figure


@styled
def model_dots(models: Sequence[Model]) -> Figure:
    """The same by name: a line for each architecture, in the order given."""
    figure, axes = new_axes(0.8 + 0.15 * len(models))
    for modality in ("image", "text"):
        places = [(model.points[modality][1], k) for k, model in enumerate(models) if modality in model.points]
        if places:
            axes.scatter(*np.array(places).T, label=modality, gid=f"models:{modality}", **_hollow(modality))
    name_lines(axes, [model.name for model in models], fontsize=6.5)
    axes.set(xlim=(-0.03, 1.05), xlabel="average cosine")
    figure.legend(loc="outside upper left", ncols=2)
    return figure


def _hollow(modality: str) -> dict[str, Any]:
    """Points may lie on one another."""
    return {
        "s": 18, "marker": MARKER[modality], "linewidths": 0.8, "facecolors": "none", "edgecolors": COLOUR[modality],
    }  # fmt: skip
