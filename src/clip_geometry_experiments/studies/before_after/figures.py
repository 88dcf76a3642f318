"""The figure of before_after: one line per map or repair, one panel per number."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from clip_geometry.display.numbers import as_number
from clip_geometry.display.style import (
    COLOR,
    DOTTED,
    INK,
    MARKER,
    NEUTRAL,
    SECOND,
    WIDTH,
    error_dots,
    name_lines,
    styled,
)
from clip_geometry_experiments.report.gallery import Drawing, FigureEntry, save_drawings
from clip_geometry_experiments.studies.before_after.sentences import (
    COSINE,
    FIRST,
    GAP,
    ISOSCORE,
    OWN,
    RECALL,
    WORDS,
    ZERO_SHOT,
    Key,
    Row,
    Table,
)

SHADE = "#F3F5F7"
KEYS = {"images": "images, or of an image query", "texts": "texts, or of a text query"}


class Dots(NamedTuple):
    """A series of a panel."""

    key: Key
    name: str
    color: str
    marker: str


class Panel(NamedTuple):
    """A number: its name, in two lines, and its dots."""

    title: str
    dots: tuple[Dots, ...]
    whole: bool = True  # an axis from 0 to 1


def _each(measures: Mapping[str, str]) -> tuple[Dots, ...]:
    """Of images and of texts. measures: modality → measure; where both are of both modalities, the query differs."""
    same = len(set(measures.values())) == 1
    return tuple(
        Dots((measure, modality if same else "both", ""), f"{modality}s", COLOR[modality], MARKER[modality])
        for modality, measure in measures.items()
    )


PANELS = (
    Panel("modality\ngap", (Dots((GAP, "both", ""), "both", INK, "s"),), whole=False),
    Panel("average\ncosine", _each({"image": COSINE, "text": COSINE})),
    Panel("IsoScore\n(unbiased)", _each({"image": ISOSCORE, "text": ISOSCORE})),
    Panel("mixed index: own\nmodality, top 10", _each(OWN)),
    Panel("mixed index:\npartner first", _each(FIRST)),
    Panel("cross-modal:\npartner first", _each(RECALL)),
    Panel(
        "zero-shot\naccuracy",
        (
            Dots((ZERO_SHOT, "both", "seen"), "seen classes", INK, "o"),
            Dots((ZERO_SHOT, "both", "held out"), "held-out classes", SECOND, "D"),
        ),
    ),
)


def draw_before_after(
    rows: Sequence[Row], *, first: str, folder: str | Path, origin: str, prefix: str = "", group: str = ""
) -> list[FigureEntry]:
    """The figure of these rows, saved; none where no row has a number that it shows. first: the line without a map."""
    table = Table(rows)
    panels = [panel for panel in PANELS if any(table.of(table.names, *dots.key) for dots in panel.dots)]
    if not panels:
        return []
    figure, caption = before_after_figure(table, first, panels), WORDS("caption", first=first)
    drawn = {"before_after": Drawing("What maps and repairs change and what they do not", figure, caption, wide=True)}
    return save_drawings(drawn, folder, origin=origin, prefix=prefix, group=group)


@styled
def before_after_figure(table: Table, first: str, panels: Sequence[Panel] = PANELS) -> Figure:
    """One line per row of the table, one panel per number; dotted: the value of the row called `first`."""
    names = table.names
    figure = Figure(figsize=(2.15 * WIDTH, 1.0 + 0.27 * len(names)), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(grid, panels, strict=True):
        _draw(axes, panel, table, first)
    name_lines(grid[0], names, below=0.45, above=0.55)
    for axes in grid:
        axes.tick_params(axis="y", length=0)
        for spine in ("left", "bottom"):
            axes.spines[spine].set_visible(False)
    dots = {dot.name: dot for panel in panels for dot in panel.dots if dot.name != "both"}
    keys = [
        Line2D([], [], marker=dot.marker, color=dot.color, markersize=4.5, ls="none", label=KEYS.get(name, name))
        for name, dot in dots.items()
    ]
    figure.legend(handles=keys, loc="outside lower right", ncols=4)
    return figure


def _draw(axes: Axes, panel: Panel, table: Table, first: str) -> None:
    for place in range(0, len(table.names), 2):
        axes.axhspan(place - 0.5, place + 0.5, color=SHADE, linewidth=0, zorder=0)
    for number, dots in enumerate(panel.dots):
        known = table.of(table.names, *dots.key)
        shift = 0.22 * (number - (len(panel.dots) - 1) / 2)
        error_dots(
            axes,
            known.values(),
            [table.names.index(name) + shift for name in known],
            marker=dots.marker,
            markersize=4.2,
            color=dots.color,
            gid=":".join((panel.title.replace("\n", " "), dots.name)),
            zorder=3,
        )
        if first in known:
            axes.axvline(known[first]["value"], color=dots.color, linewidth=0.9, linestyle=DOTTED, zorder=1)
            null = as_number(known[first].get("null_value"))
            if null is not None and number == 0:
                axes.axvline(null, color=NEUTRAL, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
    axes.set_title(panel.title, fontsize=7.5)
    axes.grid(axis="y", visible=False)
    if panel.whole:
        axes.set_xlim(min(-0.06, axes.get_xlim()[0]), 1.06)
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    else:
        axes.set_xlim(left=min(0, axes.get_xlim()[0]))
        axes.xaxis.set_major_locator(MaxNLocator(3))
