"""Pictures of the layers of a model: cosines, dimensions and silhouettes as curves."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from clip_geometry.report.style import HEIGHT, NEUTRAL, WIDTH, styled

# Tol 2021, muted, as in experiments/kit/figures.py
INTER, INTRA, EUCLIDEAN, COSINE = "#332288", "#882255", "#332288", "#117733"
PUBLISHED_CONVENTION = (0, (1, 1.2))


class Point(NamedTuple):
    """A value of a layer, and its standard error, 0 where there is none."""

    value: float
    error: float = 0.0


Curve = Mapping[int, Point]  # by layer


@styled
def cosines_figure(curves: Mapping[str, Curve]) -> Figure:
    """Cosines between and within types over the layers, solid as they are, dashed adjusted.

    curves: "inter", "intra", "adjusted inter", "adjusted intra", those that are there.
    """
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    for name, curve in curves.items():
        kind = name.rpartition(" ")[2]
        adjusted = name.startswith("adjusted")
        between = "between types" if kind == "inter" else "within types"
        style: dict[str, Any] = {"linestyle": (0, (4, 1.5)), "markerfacecolor": "white"} if adjusted else {}
        _plot(
            axes,
            curve,
            color=INTER if kind == "inter" else INTRA,
            marker="o" if kind == "inter" else "^",
            label=f"{between}, adjusted" if adjusted else between,
            gid=f"cosine:{name}",
            **style,
        )
    low = min((point.value for curve in curves.values() for point in curve.values()), default=0.0)
    axes.set(xlabel="layer", ylabel="mean cosine", ylim=(min(-0.03, low - 0.03), 1.03))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


@styled
def dimension_figure(panels: Mapping[str, Mapping[tuple[str, bool], Curve]]) -> Figure:
    """Figure 9: local intrinsic dimension over the layers; bars: two standard errors.

    panels: title → (metric, whether in the published convention) → curve.
    """
    figure = Figure(figsize=(WIDTH, 0.75 + 1.75 * len(panels)), layout="constrained")
    every = figure.subplots(len(panels), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (title, curves) in zip(every, panels.items(), strict=True):
        for (metric, published), curve in curves.items():
            _plot(
                axes,
                curve,
                color=EUCLIDEAN if metric == "euclidean" else COSINE,
                marker="o" if metric == "euclidean" else "^",
                linestyle=PUBLISHED_CONVENTION if published else "-",
                markerfacecolor="white" if published else None,
                label=f"{'Euclidean' if metric == 'euclidean' else metric}{', as published' if published else ''}",
                gid=f"lid:{metric}:{published}",
            )
        axes.set_title(title, loc="left")
        axes.set_ylabel("dimension")
    every[-1].set_ylim(bottom=0)  # of all panels, once all curves are there
    every[-1].set_xlabel("layer")
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


def _plot(axes: Axes, curve: Curve, **style: Any) -> None:
    layers = sorted(curve)
    values, errors = ([getattr(curve[layer], key) for layer in layers] for key in ("value", "error"))
    bars = 2 * np.array(errors) if any(errors) else None
    axes.errorbar(layers, values, yerr=bars, markersize=3.5, markeredgewidth=0.9, elinewidth=0.9, **style)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


@styled
def silhouettes_figure(curves: Sequence[tuple[int | None, Mapping[int, float]]], least: float) -> Figure:
    """Silhouette of k-means clusters over k, a line for each layer; its best k is marked, filled from `least` on.

    curves: (layer, k → silhouette); one of layer None for rows without layers.
    """
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    colours = ListedColormap(colormaps["viridis"](np.linspace(0, 0.92, len(curves))))
    for number, (layer, curve) in enumerate(curves):
        colour = colours(number)
        axes.plot(list(curve), list(curve.values()), color=colour, linewidth=1.1, gid=f"silhouette:{layer}")
        best = max(curve, key=lambda k, curve=curve: curve[k])
        face = colour if curve[best] >= least else "white"
        axes.plot(
            best, curve[best], "o", color=colour, markerfacecolor=face, markersize=5, zorder=4, gid=f"best:{layer}"
        )
    axes.axhline(least, color=NEUTRAL, linewidth=1, linestyle=(0, (3, 2)), gid="least")
    axes.set(xlabel="clusters k", ylabel="silhouette")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(curves) > 1:
        scale = ScalarMappable(BoundaryNorm(np.arange(len(curves) + 1) - 0.5, len(curves)), colours)
        bar = figure.colorbar(scale, ax=axes, label="layer", ticks=range(len(curves)))
        bar.ax.set_yticklabels([str(layer) for layer, _ in curves])
        bar.ax.tick_params(which="both", length=0)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return figure
