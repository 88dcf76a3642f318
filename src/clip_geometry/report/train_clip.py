"""Pictures of a training: the geometry in every recorded state, the arms side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from clip_geometry.report.classify import log_axis
from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.numbers import fixed
from clip_geometry.report.style import COLOUR, LINE, WIDTH, save_figure, styled

Curves = Mapping[Any, NDArray[np.float64]]  # (measure, modality, classes) → (states,)
Arms = Mapping[str, tuple[Curves, NDArray[np.integer]]]  # arm in words → its curves and their steps

SEPARABILITY = "modality_separability.logistic_regression.cross_validated"
BOTH = "#24292F"  # of numbers that are of both modalities together
SECOND = "#AA4499"  # a second such number in a panel


class Line(NamedTuple):
    """A curve of a panel. key: measure, modality, classes."""

    key: tuple[str, str, str]
    name: str
    colour: str
    style: Any


class Panel(NamedTuple):
    """A row of the figure: one measure, or two that belong together, in all arms."""

    label: str
    lines: tuple[Line, ...]
    limits: tuple[float | None, float | None] = (None, None)
    log: bool = False


def _each(measure: str, *, style: Any = None, name: str = "") -> tuple[Line, ...]:
    """Of images and of texts."""
    return tuple(
        Line((measure, modality, "all"), f"{modality}s{name}", COLOUR[modality], style or LINE[modality])
        for modality in ("image", "text")
    )


def _both(measure: str, name: str, colour: str = BOTH, style: Any = "-", classes: str = "all") -> Line:
    return Line((measure, "both", classes), name, colour, style)


DASHED, DOTTED = (0, (5, 1.5)), (0, (1, 1.2))
PANELS = (
    Panel(
        "modality gap",
        (_both("modality_gap", "gap"), _both("relative_modality_gap", "relative", SECOND, DASHED)),
        (0, None),
    ),
    Panel(
        "modalities apart",
        (_both("modality_silhouette", "silhouette"), _both(SEPARABILITY, "separability", SECOND, DASHED)),
        (None, 1.03),
    ),
    Panel("class silhouette", _each("silhouette")),
    Panel("average cosine", _each("average_cosine")),
    Panel("isoscore", _each("isoscore"), log=True),
    Panel("I1", _each("isotropy_i1"), (None, 1.03)),
    Panel("I2", _each("isotropy_i2"), (0, None)),
    Panel("uniformity", _each("uniformity")),
    Panel("alignment", (_both("alignment", "alignment"),), (0, None)),
    Panel(
        "zero-shot",
        (
            _both("zero_shot.top_1", "seen classes", classes="seen"),
            _both("zero_shot.top_1", "held-out classes", SECOND, DASHED, "held out"),
        ),
        (0, 1.03),
    ),
    Panel("loss", (_both("train_clip.loss", "held-out pairs"),), (0, None)),
    Panel("temperature", (_both("train_clip.temperature", "temperature"),), (0, None)),
)


def draw_train_clip(
    arms: Arms, *, folder: str | Path, origin: str, prefix: str = "", group: str = ""
) -> list[FigureEntry]:
    """Draws the figure of the recorded states, and saves it as PNG and SVG. origin: data, model and seed in words."""
    arms = {arm: curves for arm, curves in arms.items() if curves[0]}
    if not arms:
        return []
    name = f"{prefix}train_clip"
    png, svg = save_figure(training_figure(arms), folder, name)
    return [FigureEntry(name, "Geometry over training", f"{_told(arms)} {origin}", svg, png, group)]


@styled
def training_figure(arms: Arms, panels: Sequence[Panel] = PANELS) -> Figure:
    """A column for each arm and a row for each panel; of one arm alone the panels in two columns. Steps from 0 on: even
    up to 1, logarithmic beyond, so that the first steps are seen."""
    shown = [
        panel for panel in panels if any(line.key in curves for curves, _ in arms.values() for line in panel.lines)
    ]
    alone = len(arms) == 1
    columns = 2 if alone else len(arms)
    rows = -(-len(shown) // 2) if alone else len(shown)
    figure = Figure(figsize=(max(1.9 * WIDTH, 0.62 * WIDTH * columns), 0.6 + 1.05 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=False if alone else "row", squeeze=False)
    for k, panel in enumerate(shown):
        for column, (arm, (curves, steps)) in enumerate(arms.items()):
            axes = grid[divmod(k, 2)] if alone else grid[k, column]
            _draw(axes, panel, curves, steps, arm)
            if column == 0:
                axes.set_ylabel(panel.label)
            if k == 0 and not alone:
                axes.set_title(arm, fontsize=7)
            if column == 0 and len(panel.lines) > 1 and panel.lines[0].key[1] == "both":
                axes.legend(loc="best", fontsize=6)
        _scale(grid[divmod(k, 2)] if alone else grid[k, 0], panel)  # when all arms are drawn, which share it
    for axes in grid.ravel()[len(shown) :] if alone else ():
        axes.set_axis_off()
    for axes in (grid.ravel()[: len(shown)] if alone else grid.ravel())[-columns:]:
        axes.set_xlabel("step")
        axes.tick_params(labelbottom=True)
    keys = [Line2D([], [], color=COLOUR[m], ls=LINE[m], label=f"{m}s") for m in ("image", "text")]
    figure.legend(handles=keys, loc="outside upper left", ncols=2)
    return figure


def _draw(axes: Axes, panel: Panel, curves: Curves, steps: NDArray[np.integer], arm: str) -> None:
    for line in panel.lines:
        if line.key in curves:
            values = curves[line.key]
            axes.plot(
                steps, values, color=line.colour, linestyle=line.style, label=line.name, gid=":".join((arm, *line.key))
            )
    last = int(steps[-1])
    axes.set_xscale("symlog", linthresh=1, linscale=0.5)
    ticks = [0, *(10**k for k in range(len(str(last))) if 10**k <= last)]
    axes.set_xticks(ticks, [f"{tick}" for tick in ticks])
    axes.set_xlim(0, last)
    axes.xaxis.minorticks_off()


def _scale(axes: Axes, panel: Panel) -> None:
    drawn = [line.get_ydata() for each in axes.get_shared_y_axes().get_siblings(axes) for line in each.lines]
    if panel.log:
        log_axis(axes.yaxis, np.concatenate([*drawn, np.zeros(0)]))
    else:
        axes.set_ylim(*panel.limits)


# --- captions


def _told(arms: Arms) -> str:
    told = [_told_arm(arm if len(arms) > 1 else "", curves) for arm, (curves, _) in arms.items()]
    states = {len(steps) for _, steps in arms.values()}
    return (
        f"{' '.join(filter(None, told))} {'/'.join(map(str, sorted(states)))} states of fixed pictures and captions "
        "that are not trained on, 0 being the one before the first step; the axis of steps is logarithmic from 1 on."
    )


def _told_arm(arm: str, curves: Curves) -> str:
    wanted: list[tuple[str, tuple[str, str, str]]] = [
        ("gap", ("modality_gap", "both", "all")),
        ("average cosine of images", ("average_cosine", "image", "all")),
        ("IsoScore of images", ("isoscore", "image", "all")),
        ("class silhouette of images", ("silhouette", "image", "all")),
        ("zero-shot accuracy on seen classes", ("zero_shot.top_1", "both", "seen")),
        ("on held-out classes", ("zero_shot.top_1", "both", "held out")),
    ]
    parts = [
        f"{name} {fixed(curves[key][0], 2)} to {fixed(curves[key][-1], 2)}"
        for name, key in wanted
        if key in curves and np.isfinite(curves[key][[0, -1]]).all()
    ]
    text = ", ".join(parts)
    return f"{arm}: {text}." if arm else f"{text[:1].upper()}{text[1:]}." if text else ""
