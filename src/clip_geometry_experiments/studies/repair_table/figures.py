"""The figure and the sentences of the repair table."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from clip_geometry.display.style import IMAGE, INK, NEUTRAL, TEXT, styled
from clip_geometry.display.words import Words
from clip_geometry_experiments.report.figures import Drawing
from clip_geometry_experiments.studies.repair_table.table import Ranking, RepairTable, summary

WORDS = Words(Path(__file__).with_name("words.j2"))
LINE, BAR = 0.122, 0.09  # inches per repair, and per bar of ties
WIDTH = 8.2
LEAST, LEVELS = 0.028, 4  # minimum distance of two numbers on one level, as a share of the ranks; levels
ABSENT = "#E6E9ED"  # color of cells without a value


def short(name: str) -> str:
    """Shorten a pipeline, such as `whiten(64)[each] + procrustes`, by dropping the direction and named parameters."""
    steps = [step for step in re.split(r",(?![^(]*\))", name.replace("[text-to-image]", "")) if step != "normalize"]
    return " + ".join(re.sub(r"\(\w+=[^)]*\)", "", step.strip()) for step in steps)


@styled
def draw(table: RepairTable) -> Figure:
    """Draw the improvements and losses of each repair, and its mean rank with ties by each group of measures."""
    names = _order(table)
    rankings = table.rankings
    bars = [BAR * len(ranking.ties()) + 0.55 for ranking in rankings.values()]
    heights = [LINE * len(names) + 1.3, *bars]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.35), layout="constrained")
    axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _balance_panel(figure, axes[0], table, names)
    for panel, (group, ranking) in zip(axes[1:], rankings.items(), strict=True):
        _rank_panel(panel, group, ranking, names)
    return figure


def _order(table: RepairTable) -> list[str]:
    """Sort the repairs by retrieval, best first; with too few sets, keep their order."""
    by_retrieval = table.rankings.get("retrieval")
    ranked = by_retrieval.names if by_retrieval else ()
    return [*ranked, *(name for name in table.repairs if name not in ranked)]


def _balance_panel(figure: Figure, axes: Axes, table: RepairTable, names: list[str]) -> None:
    """Draw repairs × measures, colored by the number of sets with better results minus those with worse results."""
    sets, measures = len(table.ranked), table.measures
    balance = np.full((len(names), len(measures)), np.nan)
    mixed = []  # (column, row) of cells that are better on some sets and worse on others
    for row, name in enumerate(names):
        for column, measure in enumerate(measures):
            cells = table.over_sets(name, measure)
            if len(cells):
                better, worse = (table.count(name, measure, verdict) for verdict in ("better", "worse"))
                balance[row, column] = sets * (better - worse) / len(cells)
                if better and worse:
                    mixed.append((column, row))
    colors = LinearSegmentedColormap.from_list("better", [TEXT, "#FFFFFF", IMAGE], N=2 * sets + 1)  # a color per count
    colors.set_bad(ABSENT)
    image = axes.imshow(balance, cmap=colors, vmin=-sets - 0.5, vmax=sets + 0.5, aspect="auto", interpolation="nearest")
    if mixed:
        axes.plot(*zip(*mixed, strict=True), ".", color=INK, markersize=2)
    axes.set_xticks(
        range(len(measures)), [table_measure.title for table_measure in measures.values()], rotation=50, ha="left"
    )
    axes.set_yticks(range(len(names)), [f"{short(name)}  {k}" for k, name in enumerate(names, start=1)])
    axes.tick_params(axis="x", top=True, labeltop=True, bottom=False, labelbottom=False, pad=0)
    axes.tick_params(axis="both", length=0, labelsize=7)
    axes.grid(visible=False)
    right, below = len(measures) - 0.5, len(names) - 0.5
    groups = [table_measure.group for table_measure in measures.values()]
    _lines(axes, [((k - 0.5, k - 0.5), (-0.5, below)) for k in range(1, len(measures))], color="white", linewidth=0.8)
    _lines(axes, [((-0.5, right), (k - 0.5, k - 0.5)) for k in range(1, len(names))], color="white", linewidth=0.8)
    edges = [k - 0.5 for k in range(1, len(groups)) if groups[k] != groups[k - 1]]
    _lines(axes, [((edge, edge), (-0.5, below)) for edge in edges], color=INK, linewidth=0.9)
    axes.set(xlim=(-0.5, right), ylim=(below, -0.5))
    axes.set_xlabel("sets with better results than without a repair, less those with worse\n"
                    "gray: no value; dot: better on some sets, worse on others")  # fmt: skip
    bar = figure.colorbar(image, ax=axes, fraction=0.02, pad=0.01, aspect=10 + len(names), ticks=(-sets, 0, sets))
    bar.ax.set_xlabel("sets")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def _rank_panel(axes: Axes, group: str, ranking: Ranking, names: list[str]) -> None:
    """Draw the critical-difference diagram: mean ranks, numbered as the lines above, with bars that join ties."""
    last_place = [-np.inf] * LEVELS  # of the numbers on each level
    room = LEAST * len(ranking.names)
    stems = []
    for name, rank in zip(ranking.names, ranking.mean, strict=True):
        level = next((k for k, place in enumerate(last_place) if rank - place >= room), int(np.argmin(last_place)))
        last_place[level] = rank
        stems.append(((rank, rank), (0, 0.5 + level)))
        axes.annotate(f"{names.index(name) + 1}", (rank, 0.5 + level), (0, 1), textcoords="offset points",
                      ha="center", fontsize=7, color=TEXT if name == "none" else INK)  # fmt: skip
    _lines(axes, stems, color=NEUTRAL, linewidth=0.5)
    axes.plot(ranking.mean, np.zeros(len(ranking.mean)), "o", color=INK, markersize=3)
    if "none" in ranking.names:
        axes.plot(ranking.rank("none"), 0, "o", color=TEXT, markersize=4)
    ties = ranking.ties()
    bars = [
        ((ranking.mean[first] - 0.1, ranking.mean[end] + 0.1), (-0.8 * k,) * 2)
        for k, (first, end) in enumerate(ties, 1)
    ]
    _lines(axes, bars, color=IMAGE, linewidth=1.8)
    axes.set(xlim=(0.5, len(ranking.names) + 0.5), ylim=(-0.8 * len(ties) - 0.6, LEVELS + 0.8), yticks=[])
    axes.set_ylabel(group, rotation=0, ha="right", va="center")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"mean rank, {ranking.sets} sets; critical difference {ranking.difference:.1f}", labelpad=1)


def _lines(axes: Axes, lines: Sequence[tuple[Sequence[float], Sequence[float]]], **style: Any) -> None:
    """Draw lines ((from x, to x), (from y, to y)) as one path, which keeps the file small."""
    if lines:
        x, y = (np.array([[*line[side], np.nan] for line in lines]).ravel() for side in (0, 1))
        axes.plot(x, y, **style)


def draw_table(table: RepairTable) -> dict[str, Drawing]:
    """Return the figure with its caption."""
    return {"repairs": Drawing("What repairs make better and worse", draw(table), WORDS("caption", table), wide=True)}


def tell(table: RepairTable) -> list[str]:
    """Report the registered test, the counts whose rules were fixed before the table, and what was examined later."""
    numbers = summary(table)
    macros = ("registered", "free", "missed", "related", "ranks")
    return list(filter(None, (WORDS(macro, numbers, short) for macro in macros)))
