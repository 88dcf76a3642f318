"""Figures 2 to 4 of Mickus et al. 2024 for several tasks at once: one line for each, in its own colour."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from clip_geometry.experiments.mickus2024.classify.report import (
    Relation,
    curve,
    log_axis,
    relation_figure,
    series_colours,
)
from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.style import WIDTH, save_figure, styled

Tasks = Mapping[str, tuple[NDArray[np.integer], Relation]]  # name → updates of its states, and the states


def draw_tasks(tasks: Tasks, *, folder: str | Path, origin: str) -> list[FigureEntry]:
    """Draws both figures of all tasks, and saves them as PNG and SVG. origin: what tasks have in common, in words."""
    seeds = max(len(relation.silhouette) for _, relation in tasks.values())
    told = f"Means over up to {seeds} seeds, with one standard deviation."
    drawn = {
        "tasks_curves": (
            "Clusters and isotropy of all runs",
            tasks_curves(tasks),
            "Silhouette of the classifier's inputs and IsoScore of the distinct items over the updates.",
        ),
        "tasks_relation": (
            "Silhouette against IsoScore of all runs",
            relation_figure({name: relation for name, (_, relation) in tasks.items()}),
            "Every state of every training; circles: before the first update.",
        ),
    }
    entries = []
    for name, (title, figure, words) in drawn.items():
        png, svg = save_figure(figure, folder, name)
        entries.append(FigureEntry(name, title, f"{words} {told} {origin}", svg, png, "all runs together"))
    return entries


@styled
def tasks_curves(tasks: Tasks) -> Figure:
    """Silhouettes above, IsoScores on a log axis below, a line for each task; mean and deviation over seeds."""
    lines = -(-len(tasks) // 3)
    figure = Figure(figsize=(WIDTH, 3.6 + 0.15 * lines), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for (name, (updates, relation)), colour in zip(tasks.items(), series_colours(len(tasks)), strict=True):
        style = {"color": colour, "label": name}
        curve(above, updates, relation.silhouette, gid=f"silhouette:{name}", **style)
        curve(below, updates, relation.isoscore, gid=f"isoscore:{name}", **style)
    log_axis(below.yaxis, np.concatenate([relation.isoscore.ravel() for _, relation in tasks.values()]))
    above.set_ylabel("silhouette")
    below.set(ylabel="IsoScore", xlabel="update")
    below.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    figure.legend(*above.get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure
