"""The picture of a teaching: each language over the steps, beside the teacher."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.numbers import fixed, plus_minus
from clip_geometry.report.style import COLOURS, NEUTRAL, WIDTH, save_figure, styled

ZERO_SHOT, COSINE, UNEXPLAINED = "zero_shot.top_1", "teach_text.cosine", "teach_text.unexplained"
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2)))  # a second sign beside the colour
PANELS = (
    ("zero-shot, seen", ZERO_SHOT, "seen"),
    ("zero-shot, held out", ZERO_SHOT, "held out"),
    ("cosine to the teacher", COSINE, None),
    ("1 − R²", UNEXPLAINED, None),
)

Row = Mapping[str, Any]


def draw_teach_text(
    rows: Sequence[Row], *, folder: str | Path, origin: str, prefix: str = "", group: str = ""
) -> list[FigureEntry]:
    """Draws the figure of the recorded states, and saves it as PNG and SVG. origin: data, teacher and seed in words."""
    curves = [row for row in rows if "trajectory" in row and "language" in row["at"]]
    if not curves:
        return []
    name = f"{prefix}teach_text"
    png, svg = save_figure(teaching_figure(curves, _teacher(rows)), folder, name)
    return [FigureEntry(name, "What the student has learnt", f"{_told(curves, rows)} {origin}", svg, png, group)]


def sentences(rows: Sequence[Row]) -> list[str]:
    """What the rows say: accuracies by language beside the teacher's, how near translations lie."""
    told = []
    for kind, own in _teacher(rows).items():
        found = _accuracies(rows, kind)
        chance = next(row["null_value"] for row in found)
        words = ", ".join(f"{row['at']['language']} {plus_minus(row['value'], row['standard_error'])}" for row in found)
        told.append(
            f"Zero-shot accuracy on pictures of {_hyphen(kind)} classes by the prompts of each language: {words}; the "
            f"teacher by its own has {fixed(own, 4)}, chance is {fixed(chance, 4)}."
        )
    ratios = [row for row in rows if row["measure"] == "language_distance.ratio"]
    if ratios:
        words = ", ".join(
            f"{row['at']['language']} {plus_minus(row['value'], row['standard_error'])}" for row in ratios
        )
        source = ratios[0]["at"]["source"]
        told.append(
            f"A caption lies from its {source} translation at this share of the distance to an unrelated one: {words}."
        )
    return told


def _hyphen(kind: str) -> str:
    return kind.replace(" ", "-")


def _accuracies(rows: Sequence[Row], kind: str) -> list[Row]:
    """Of the saved student, by language."""
    wanted = {"classes": kind, "pictures": "tested", "tower": "student"}.items()
    return [row for row in rows if row["measure"] == ZERO_SHOT and wanted <= row["at"].items()]


def _teacher(rows: Sequence[Row]) -> dict[str, float]:
    """seen, held out → the teacher's own accuracy."""
    own = (row for row in rows if row["measure"] == ZERO_SHOT and row["at"]["tower"] == "teacher")
    return {row["at"]["classes"]: row["value"] for row in own}


@styled
def teaching_figure(curves: Sequence[Row], teacher: Mapping[str, float]) -> Figure:
    """A panel for each number that is there, a line for each language; dashed and grey the teacher, dotted chance."""
    there = {(row["measure"], row["at"].get("classes")) for row in curves}
    shown = [panel for panel in PANELS if panel[1:] in there]
    languages = list(dict.fromkeys(row["at"]["language"] for row in curves))
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(0.95 * WIDTH * columns, 0.4 + 1.6 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for axes, (title, measure, classes) in zip(grid.ravel(), shown, strict=False):
        for row in curves:
            if (row["measure"], row["at"].get("classes")) == (measure, classes):
                k = languages.index(row["at"]["language"])
                values = [float("nan") if value is None else value for value in row["trajectory"]]
                axes.plot(
                    row["steps"], values, color=COLOURS[k % len(COLOURS)], linestyle=DASHES[k % len(DASHES)],
                    label=languages[k], gid=f"{measure}:{classes}:{languages[k]}",
                )  # fmt: skip
                chance = row.get("null_value")
                if chance is not None and k == 0:
                    axes.axhline(chance, color=NEUTRAL, linewidth=0.8, linestyle=":")
        if measure == ZERO_SHOT and classes is not None and classes in teacher:
            axes.axhline(teacher[classes], color=NEUTRAL, linewidth=0.8, linestyle=(0, (2, 2)))
        _scale(axes, title, max(row["steps"][-1] for row in curves))
    for axes in grid.ravel()[len(shown) :]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel("step")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=len(labels), handlelength=2.4)
    return figure


def _scale(axes: Axes, title: str, last: int) -> None:
    """Steps from 0 on: even up to 1, logarithmic beyond."""
    axes.set_ylabel(title)
    axes.set_xscale("symlog", linthresh=1, linscale=0.5)
    ticks = [0, *(10**k for k in range(len(str(last))) if 10**k <= last)]
    axes.set_xticks(ticks, [f"{tick}" for tick in ticks])
    axes.set_xlim(0, last)
    axes.xaxis.minorticks_off()
    axes.set_ylim(min(0, axes.get_ylim()[0]), 1.03 if axes.get_ylim()[1] < 1.03 else None)


def _told(curves: Sequence[Row], rows: Sequence[Row]) -> str:
    """What it came to, and what is drawn."""
    parts = []
    teacher = _teacher(rows)
    for kind, own in teacher.items():
        found = [f"{row['at']['language']} {fixed(row['value'], 3)}" for row in _accuracies(rows, kind)]
        parts.append(f"of {_hyphen(kind)} classes {', '.join(found)} (teacher {fixed(own, 3)})")
    ends = f"The saved student's zero-shot accuracy: {'; '.join(parts)}. " if parts else ""
    lines = (
        " Grey: the teacher on the pictures that the saved student is tested on (dashed), and chance (dotted)."
        if parts
        else ""
    )
    counts = sorted({row["n"] for row in curves})
    states = len(curves[0]["steps"])
    return (
        f"{ends}{states} states, 0 being the one before the first step, of captions and pictures that are not trained "
        f"on (n = {', '.join(map(str, counts))}); the axis of steps is logarithmic from 1 on.{lines}"
    )
