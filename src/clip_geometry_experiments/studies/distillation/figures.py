"""Figure and sentences of the distillation: each language over the steps, compared with the teacher."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from clip_geometry.display.numbers import plus_minus
from clip_geometry.display.origin import Row
from clip_geometry.display.style import COLORS, NEUTRAL, WIDTH
from clip_geometry.display.words import Words
from clip_geometry_experiments.kit.figures import LINES, Panel, PanelCurve, panels_figure
from clip_geometry_experiments.kit.training import states_of
from clip_geometry_experiments.report.figures import Drawing

ZERO_SHOT = "zero_shot.top_1"
PANELS = {  # (measure, classes) → label
    (ZERO_SHOT, "seen"): "zero-shot, seen",
    (ZERO_SHOT, "held out"): "zero-shot, held out",
    ("distillation.cosine", None): "cosine to the teacher",
    ("distillation.unexplained", None): "1 − R²",
}

words = Words(Path(__file__).with_name("words.j2"))


def draw_distillation(rows: Sequence[Row]) -> dict[str, Drawing]:
    """Draw the figure of the recorded states."""
    curves = [row for row in rows if "trajectory" in row and "language" in row["at"]]
    teacher = _teacher(rows)
    kinds = [
        (_hyphen(kind), [(row["at"]["language"], row["value"]) for row in _student(rows, kind)], accuracy)
        for kind, accuracy in teacher.items()
    ]
    caption = words("caption", kinds, sorted({row["n"] for row in curves}), len(curves[0]["steps"]))
    return {"distillation": Drawing("What the student has learned", distillation_figure(curves, teacher), caption)}


def sentences(rows: Sequence[Row]) -> list[str]:
    """Compare accuracies by language with the teacher's, and say how close translations lie."""
    texts = []
    for kind, accuracy in _teacher(rows).items():
        student = _student(rows, kind)
        chance = next(row["null_value"] for row in student)
        texts.append(words("accuracy", _hyphen(kind), _by_language(student), accuracy, chance))
    ratios = [row for row in rows if row["measure"] == "language_distance.ratio"]
    return [*texts, words("distance", ratios[0]["at"]["source"], _by_language(ratios))]


def distillation_figure(curves: Sequence[Row], teacher: Mapping[str, float]) -> Figure:
    """Draw one panel per number and one line per language; gray lines are the teacher (dashed) and chance (dotted)."""
    languages = list(dict.fromkeys(row["at"]["language"] for row in curves))
    panels = []
    for (measure, classes), label in PANELS.items():
        shown = [row for row in curves if (row["measure"], row["at"].get("classes")) == (measure, classes)]
        levels: dict[float, Any] = {row["null_value"]: ":" for row in shown if row.get("null_value") is not None}
        if classes in teacher:
            levels[teacher[classes]] = (0, (2, 2))
        drawn = []
        for row in shown:
            language = row["at"]["language"]
            k = languages.index(language)
            style: Any = {"color": COLORS[k % len(COLORS)], "line": LINES[k % len(LINES)], "label": language}
            drawn.append(PanelCurve(row["steps"], states_of(row), **style, gid=f"{measure}:{classes}:{language}"))
        if drawn:
            gray = {level: {"color": NEUTRAL, "linewidth": 0.8, "linestyle": line} for level, line in levels.items()}
            panels.append(Panel(label, drawn, (0, 1.03), levels=gray))
    columns = min(2, len(panels))
    size = (0.95 * WIDTH * columns, 0.4 + 1.6 * -(-len(panels) // columns))
    legend = {"ncols": len(languages), "handlelength": 2.4}
    return panels_figure(panels, size=size, xlabel="step", columns=columns, log_steps=True, legend=legend)


def _student(rows: Sequence[Row], kind: str) -> list[Row]:
    """Return the accuracies of the saved student, by language."""
    wanted = {"classes": kind, "pictures": "tested", "tower": "student"}.items()
    return [row for row in rows if row["measure"] == ZERO_SHOT and wanted <= row["at"].items()]


def _teacher(rows: Sequence[Row]) -> dict[str, float]:
    """Return the teacher's own accuracy on seen and on held-out classes."""
    own = (row for row in rows if row["measure"] == ZERO_SHOT and row["at"]["tower"] == "teacher")
    return {row["at"]["classes"]: row["value"] for row in own}


def _by_language(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(row["at"]["language"], plus_minus(row["value"], row["standard_error"])) for row in rows]


def _hyphen(kind: str) -> str:
    return kind.replace(" ", "-")
