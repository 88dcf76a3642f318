"""Words on the first two or three principal components, a panel for each layer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator
from numpy.typing import NDArray

from clip_geometry.experiments.cai2021.contextual.report_kinds import KINDS
from clip_geometry.report.figures import MAX_VECTOR_POINTS
from clip_geometry.report.numbers import percent
from clip_geometry.report.style import WIDTH, styled

COLUMNS = 3  # of panels
HEADER, TITLE, MARGIN = 0.56, 0.16, 0.03  # inches: above the panels, above and around each
SCALE = "viridis_r"  # rare words are pale


@dataclass(frozen=True)
class Plane:
    """points: (m, 3) scores on the first principal components; shares: of the variance, of each. order: as drawn."""

    title: str
    points: NDArray[np.float64]
    shares: tuple[float, float, float]


@styled
def kinds_figure(planes: Sequence[Plane], kinds: Sequence[str], *, dimensions: int = 2) -> Figure:
    """kinds: of each point, from KINDS; the same words in all planes."""
    present = [kind for kind in KINDS if kind in set(kinds)]
    figure, _ = _panels(planes, dimensions, c=[KINDS[kind] for kind in kinds])
    keys = [Line2D([], [], marker="o", color=KINDS[kind], ls="none", markersize=4, label=kind) for kind in present]
    figure.legend(handles=keys, loc="upper left", ncols=3, handlelength=1)
    return figure


@styled
def frequency_figure(planes: Sequence[Plane], frequency: NDArray[np.integer], *, dimensions: int = 2) -> Figure:
    """frequency: of the word of each point in the corpus, at least 1; the same words in all planes."""
    norm = LogNorm(1, max(10, int(frequency.max())))
    figure, drawn = _panels(planes, dimensions, c=frequency, cmap=SCALE, norm=norm)
    height = figure.get_size_inches()[1]
    place = figure.add_axes((0.15, 1 - 0.3 / height, 0.7, 0.08 / height))
    bar = figure.colorbar(drawn, cax=place, orientation="horizontal", ticks=LogLocator(numticks=6), format="{x:.0f}")
    bar.minorticks_off()
    bar.set_label("how often the word occurs in the corpus", fontsize=7.5)
    place.xaxis.set_ticks_position("bottom")
    place.xaxis.set_label_position("top")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.solids.set_alpha(1)  # pyright: ignore[reportOptionalMemberAccess]
    return figure


def _panels(planes: Sequence[Plane], dimensions: int, **colours: Any) -> tuple[Figure, Any]:
    """Laid out by hand: the room that matplotlib leaves around axes of three dimensions is as large as they are."""
    columns = min(COLUMNS, len(planes))
    lines = math.ceil(len(planes) / columns)
    side = WIDTH / max(columns, 1.3)
    height = HEADER + lines * (side + TITLE)
    figure = Figure(figsize=(WIDTH, height))
    drawn = None
    for place, plane in enumerate(planes):
        line, column = divmod(place, columns)
        left, bottom = column * side, height - HEADER - (line + 1) * (side + TITLE)
        rectangle = np.array([left + MARGIN, bottom + MARGIN, side - 2 * MARGIN, side - 2 * MARGIN])
        size = np.array([WIDTH, height, WIDTH, height])
        axes = figure.add_axes(tuple(rectangle / size), projection="3d" if dimensions == 3 else None)
        drawn = _panel(axes, plane, dimensions, colours)
        share = percent(sum(plane.shares[:dimensions]))
        title = f"{plane.title}, {share}" if plane.title else f"{share} of the variance"
        x, y = (left + side / 2) / WIDTH, (bottom + side + 0.02) / height
        figure.text(x, y, title, ha="center", va="bottom", fontsize=7, gid=f"title:{plane.title}")
    return figure, drawn


def _panel(axes: Any, plane: Plane, dimensions: int, colours: dict[str, Any]) -> Any:
    many = len(plane.points) > MAX_VECTOR_POINTS
    area = 5000 * axes.get_position().width / len(plane.points)  # fewer and larger panels have larger points
    size = {"s": float(np.clip(area, 0.9, 6)), "linewidths": 0, "alpha": 0.6, "rasterized": many}
    if dimensions == 2:
        axes.set(xticks=[], yticks=[])
        axes.margins(0.04)
        axes.spines[["top", "right"]].set_visible(True)
        return axes.scatter(*plane.points[:, :2].T, gid=f"points:{plane.title}", **size, **colours)
    axes.set(xticklabels=[], yticklabels=[], zticklabels=[])
    axes.view_init(elev=22, azim=-60)
    axes.set_box_aspect((1, 1, 1), zoom=1.15)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis._axinfo["tick"] |= {"inward_factor": 0, "outward_factor": 0}  # no marks without numbers
        axis.pane.set(facecolor="#F6F8FA", edgecolor="#D0D7DE")
    # depth shading would change colours that mean something
    return axes.scatter(*plane.points.T, depthshade=False, gid=f"points:{plane.title}", **size, **colours)
