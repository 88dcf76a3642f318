"""Pictures of a training: the geometry in every recorded state, the arms side by side."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from clip_geometry.experiments.mickus2024.classify.report import log_axis
from clip_geometry.experiments.train_clip.panels import MAIN, MORE, Panel
from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.numbers import fixed
from clip_geometry.report.style import COLOUR, LINE, NEUTRAL, WIDTH, save_figure, styled

Curves = Mapping[Any, NDArray[np.float64]]  # (measure, modality, classes) → (states,)
Arms = Mapping[str, tuple[Curves, NDArray[np.integer]]]  # arm in words → its curves and their steps

BESIDE = 6  # arms in a figure at most
ACROSS = 3  # panels beside each other of one arm alone
KINDS = (("train_clip", "Geometry over training", MAIN), ("train_clip_more", "Geometry over training, further", MORE))


def draw_train_clip(
    arms: Arms, *, folder: str | Path, origin: str, prefix: str = "", group: str = ""
) -> list[FigureEntry]:
    """Draws the figures of the recorded states, and saves them as PNG and SVG. origin: data, model and seed in words.
    Of more arms than stand beside each other, several figures."""
    arms = {arm: curves for arm, curves in arms.items() if curves[0]}
    entries, left = [], iter(arms.items())
    for part, some in enumerate(iter(lambda: dict(islice(left, BESIDE)), {})):
        for name, title, panels in KINDS:
            if not _recorded(some, panels):
                continue
            stem = f"{prefix}{name}" + (f"_{part + 1}" if part else "")
            png, svg = save_figure(training_figure(some, panels), folder, stem)
            told = _told(some) if panels is MAIN else _AXIS
            entries.append(FigureEntry(stem, title, f"{told} {origin}", svg, png, group, wide=True))
    return entries


def _recorded(arms: Arms, panels: Sequence[Panel]) -> list[Panel]:
    return [panel for panel in panels if any(line.key in curves for curves, _ in arms.values() for line in panel.lines)]


@styled
def training_figure(arms: Arms, panels: Sequence[Panel] = MAIN) -> Figure:
    """A column for each arm and a row for each panel; of one arm alone the panels beside each other. Above each panel
    its first and last value. Steps from 0 on: even up to 1, logarithmic beyond, so that the first steps are seen."""
    shown = _recorded(arms, panels)
    alone = len(arms) == 1
    columns = ACROSS if alone else len(arms)
    rows = -(-len(shown) // ACROSS) if alone else len(shown)
    size = max(2 * WIDTH, 0.5 + 1.5 * columns), 0.7 + (1.55 if alone else 1.05) * rows
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=False if alone else "row", squeeze=False)
    for k, panel in enumerate(shown):
        row = [grid[divmod(k, columns)]] if alone else list(grid[k])
        for axes, (arm, (curves, steps)) in zip(row, arms.items(), strict=True):
            _draw(axes, panel, curves, steps, arm)
        _describe(row[0], panel, alone)
        _scale(row[0], panel)  # when all arms are drawn, which share it
    if not alone:
        for axes, arm in zip(grid[0], arms, strict=True):
            axes.set_title(_wrapped(arm), fontsize=8, fontweight="bold", pad=14)
    for axes in grid.ravel()[len(shown) :] if alone else ():
        axes.set_axis_off()
    for axes in (grid.ravel()[: len(shown)] if alone else grid.ravel())[-columns:]:
        axes.set_xlabel("step")
        axes.tick_params(labelbottom=True)
    keys = [Line2D([], [], color=COLOUR[m], ls=LINE[m], label=f"{m}s") for m in ("image", "text")]
    figure.legend(handles=keys, loc="outside upper left", ncols=2)
    return figure


def _draw(axes: Axes, panel: Panel, curves: Curves, steps: NDArray[np.integer], arm: str) -> None:
    there = [line for line in panel.lines if line.key in curves]
    for k, line in enumerate(there):
        values = curves[line.key]
        gid = ":".join((arm, *line.key))
        axes.plot(steps, values, color=line.colour, linestyle=line.style, label=line.name, gid=gid)
        side: Any = {"x": k / max(len(there) - 1, 1), "ha": "right" if k else "left"}
        told = "→".join(fixed(value, panel.decimals) if np.isfinite(value) else "?" for value in values[[0, -1]])
        axes.text(**side, y=1.04, s=told, transform=axes.transAxes, color=line.colour, fontsize=6)
    last = int(steps[-1])
    axes.set_xscale("symlog", linthresh=1, linscale=0.5)
    ticks = [0, *(10**k for k in range(len(str(last))) if 10**k <= last)]
    axes.set_xticks(ticks, [f"{tick}" if tick != 1 else "" for tick in ticks])
    axes.set_xlim(0, last)
    axes.xaxis.minorticks_off()
    if any(np.nanmin(curves[line.key], initial=0) < 0 < np.nanmax(curves[line.key], initial=0) for line in there):
        axes.axhline(0, color=NEUTRAL, linewidth=0.6, zorder=0.5)


def _wrapped(arm: str) -> str:
    """In lines, none of which begins with a sign."""
    return fill(arm.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"), 18)


def _describe(axes: Axes, panel: Panel, alone: bool) -> None:
    if alone:
        axes.set_title(panel.label, fontsize=8, fontweight="bold", loc="left", pad=13)
    else:
        axes.set_ylabel(fill(panel.label, 11), fontsize=8)
    if len(panel.lines) > 1 and panel.lines[0].key[1] == "both":
        axes.legend(loc="best", fontsize=6.5, handlelength=1.2)


def _scale(axes: Axes, panel: Panel) -> None:
    siblings = axes.get_shared_y_axes().get_siblings(axes)
    curves = [line for each in siblings for line in each.lines if line.get_gid()]
    drawn = np.concatenate([*(line.get_ydata() for line in curves), np.zeros(0)])
    if panel.log:
        log_axis(axes.yaxis, drawn)
        return
    low, high = panel.limits
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.set_ylim(low if low is None or np.nanmin(drawn, initial=low) >= low else None, high)


# --- captions

_AXIS = (
    "Above each panel the first and the last value; step 0 is the state before the first step, and the axis of steps "
    "is logarithmic from 1 on."
)


def _told(arms: Arms) -> str:
    told = [_told_arm(arm if len(arms) > 1 else "", curves) for arm, (curves, _) in arms.items()]
    states = "/".join(map(str, sorted({len(steps) for _, steps in arms.values()})))
    shown = f"{states} states of fixed pictures and captions that are not trained on."
    return " ".join(filter(None, (*told, shown, _AXIS)))


def _told_arm(arm: str, curves: Curves) -> str:
    wanted: list[tuple[str, tuple[str, str, str], int]] = [
        ("gap", ("modality_gap", "both", "all"), 2),
        ("average cosine of images", ("average_cosine", "image", "all"), 2),
        ("class silhouette of images", ("silhouette", "image", "all"), 2),
        ("IsoScore of images", ("isoscore", "image", "all"), 3),
        ("zero-shot accuracy on seen classes", ("zero_shot.top_1", "both", "seen"), 2),
        ("on held-out classes", ("zero_shot.top_1", "both", "held out"), 2),
    ]
    parts = [
        f"{name} {fixed(curves[key][0], decimals)} to {fixed(curves[key][-1], decimals)}"
        for name, key, decimals in wanted
        if key in curves and np.isfinite(curves[key][[0, -1]]).all()
    ]
    text = ", ".join(parts)
    return f"{arm}: {text}." if arm else f"{text[:1].upper()}{text[1:]}." if text else ""
