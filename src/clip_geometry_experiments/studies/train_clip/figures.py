"""Figures of trainings (curves of one training, or several side by side) and sentences about them."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from clip_geometry.display.style import COLOR, INK, LINE, NEUTRAL, WIDTH, styled
from clip_geometry.display.words import Words
from clip_geometry_experiments.kit.figures import LINES, Panel, PanelCurve, panels_figure
from clip_geometry_experiments.kit.training import curves_of
from clip_geometry_experiments.report.figures import Drawing

Key = tuple[str, str, str]  # measure, modality, classes
Curves = Mapping[Any, NDArray[np.float64]]  # Key → values (states,)
Arms = Mapping[str, tuple[Curves, NDArray[np.integer]]]  # label of an arm → its curves and their steps

SEPARABILITY = "modality_separability.logistic_regression.cross_validated"
GAP: Key = ("modality_gap", "both", "all")
CONE: Key = ("average_cosine", "image", "all")
CLUSTERS: Key = ("silhouette", "image", "all")
SEEN: Key = ("zero_shot.top_1", "both", "seen")
HELD_OUT: Key = ("zero_shot.top_1", "both", "held out")
STAYS = 0.1  # share of the total change within which a curve counts as settled
CHANGES = 0.25  # minimum relative change of IsoScore that counts as a change
ACROSS = 3  # panels per row for a single arm
SECOND = "#AA4499"  # color of a second curve in a panel without modalities

words = Words(Path(__file__).with_name("words.j2"))


class CurveStyle(NamedTuple):
    """The key of a curve and how it is drawn."""

    key: Key
    name: str
    color: str = INK
    style: Any = "-"


class PanelLayout(NamedTuple):
    """A panel without its curves. `decimals` is for the first and last values above it; else as `figures.Panel`."""

    label: str
    lines: Sequence[CurveStyle]
    limits: tuple[float | None, float | None] = (None, None)
    decimals: int = 2


def _image_and_text(measure: str) -> list[CurveStyle]:
    """Return the styles of one curve per modality of a measure."""
    return [
        CurveStyle((measure, modality, "all"), f"{modality}s", COLOR[modality], LINE[modality])
        for modality in ("image", "text")
    ]


PANELS = (
    PanelLayout("modality gap", [CurveStyle(GAP, "")], (0, None)),
    PanelLayout(
        "modalities apart",
        [
            CurveStyle(("modality_silhouette", "both", "all"), "silhouette"),
            CurveStyle((SEPARABILITY, "both", "all"), "separability", SECOND, LINES[1]),
        ],
        (0, 1.03),
    ),
    PanelLayout("average cosine", _image_and_text("average_cosine"), (0, None)),
    PanelLayout("class silhouette", _image_and_text("silhouette")),
    # the full range, to show that in most trainings it is a flat line near 0
    PanelLayout("IsoScore", _image_and_text("isoscore"), (0, 1), decimals=3),
    PanelLayout(
        "zero-shot accuracy", [CurveStyle(SEEN, "seen"), CurveStyle(HELD_OUT, "held out", SECOND, LINES[1])], (0, 1.03)
    ),
)
CAPTION: dict[str, tuple[Key, int]] = {  # name → curve and decimals
    "gap": (GAP, 2),
    "average cosine of images": (CONE, 2),
    "class silhouette of images": (CLUSTERS, 2),
    "IsoScore of images": (("isoscore", "image", "all"), 3),
    "zero-shot accuracy on seen classes": (SEEN, 2),
    "on held-out classes": (HELD_OUT, 2),
}


# --- figures


def draw_train_clip(arms: Arms) -> dict[str, Drawing]:
    """Draw the figure of the recorded states.

    `arms` maps the label of a training to its curves and their steps, as `curves_of` returns them.
    """
    ends = {arm if len(arms) > 1 else "": _ends(curves) for arm, (curves, _) in arms.items()}
    caption = words("caption", ends, "/".join(map(str, sorted({len(steps) for _, steps in arms.values()}))))
    return {"train_clip": Drawing("Geometry over training", training_figure(arms), caption, wide=True)}


def _ends(curves: Curves) -> dict[str, tuple[float, float, int]]:
    """Return name → (first value, last value, decimals) of the curves that the caption mentions."""
    ends = {}
    for name, (key, decimals) in CAPTION.items():
        if key in curves and np.isfinite(curves[key][[0, -1]]).all():
            ends[name] = (*curves[key][[0, -1]], decimals)
    return ends


@styled
def training_figure(arms: Arms) -> Figure:
    """Draw a column per arm and a row per panel; for a single arm, the panels are side by side.

    The first and the last value are printed above each panel.
    """
    keys = {key for curves, _ in arms.values() for key in curves}
    layouts = [panel for panel in PANELS if any(line.key in keys for line in panel.lines)]
    alone = len(arms) == 1
    columns = ACROSS if alone else len(arms)
    filled = []
    for layout in layouts:
        for column, (arm, (curves, steps)) in enumerate(arms.items()):
            drawn = [
                PanelCurve(steps, curves[line.key], line.color, line.name, line.style, ":".join((arm, *line.key)))
                for line in layout.lines
                if line.key in curves
            ]
            crosses = any(
                np.nanmin(curve.values, initial=0) < 0 < np.nanmax(curve.values, initial=0) for curve in drawn
            )
            filled.append(
                Panel(
                    "" if alone or column else fill(layout.label, 11),
                    drawn,
                    layout.limits,
                    levels={0: {"color": NEUTRAL, "linewidth": 0.6, "zorder": 0.5}} if crosses else {},
                    title=layout.label if alone else "",
                    ends=layout.decimals,
                )
            )
    rows = -(-len(filled) // columns)
    size = max(2 * WIDTH, 0.5 + 1.5 * columns), 0.7 + (1.55 if alone else 1.05) * rows
    figure = panels_figure(filled, size=size, xlabel="step", columns=columns, share=not alone, log_steps=True)
    for layout, axes in zip(layouts, figure.axes[:: 1 if alone else columns], strict=False):
        if len(layout.lines) > 1 and layout.lines[0].key[1] == "both":
            axes.legend(loc="best", fontsize=7, handlelength=1.2)
    if not alone:
        for axes, arm in zip(figure.axes, arms, strict=False):
            unbroken = arm.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")  # no line begins with a sign
            axes.set_title(fill(unbroken, 18), fontsize=8, fontweight="bold", pad=14)
    modalities = [
        Line2D([], [], color=COLOR[modality], ls=LINE[modality], label=f"{modality}s") for modality in ("image", "text")
    ]
    figure.legend(handles=modalities, loc="outside upper left", ncols=2)
    return figure


# --- sentences


def arms_sentences(arms: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> list[str]:
    """Compare where trainings end: the least and the largest gap, accuracy and IsoScore, with their labels."""
    curves = [(label, curves_of(rows)[0]) for label, rows in arms]
    named = {
        "the modality gap": GAP,
        "accuracy on seen classes": SEEN,
        "accuracy on held-out classes": HELD_OUT,
        "IsoScore of images": ("isoscore[unbiased]", "image", "all"),
        "the class silhouette of images": CLUSTERS,
    }
    sentences = []
    for name, key in named.items():
        ends = [(float(of[key][-1]), float(of[key][0]), label) for label, of in curves if key in of]
        ends = [(last, first, label) for last, first, label in ends if np.isfinite([last, first]).all()]
        if len(ends) > 1:
            sentences.append(words("arms", name, min(ends), max(ends), [first for _, first, _ in ends], len(ends)))
    return sentences


def training_sentences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return sentences about the curves of one training: which change first, which last, and which stay.

    Curves that are missing, undefined in a state or constant are left out.
    """
    curves, steps = curves_of(rows)
    curves = {key: curve for key, curve in curves.items() if np.isfinite(curve).all() and curve[0] != curve[-1]}

    def half_way(key: Key) -> int:
        first, last = curves[key][[0, -1]]
        return int(np.argmax((curves[key] - first) / (last - first) >= 0.5))

    sentences = []
    if GAP in curves:
        gap = curves[GAP]
        near = np.abs(gap - gap[-1]) <= STAYS * abs(gap[-1] - gap[0])
        settled = len(gap) - int(np.argmin(near[::-1]))  # the state after the last one that is not near
        low, high = gap[settled:].min(), gap[settled:].max()
        stays = low > 0 and settled < len(gap) - 1 and gap[-1] < gap[0]
        sentences.append(words("gap", gap[0], gap[-1], steps[settled] if stays else None, low, high))
    if SEEN in curves and HELD_OUT in curves:
        state = half_way(SEEN)
        both = np.stack([curves[SEEN], curves[HELD_OUT]])
        sentences.append(words("zero_shot", steps[state], both[:, state], both[:, -1]))
    names = {GAP: "the modality gap", CONE: "the cone of images", SEEN: "accuracy on seen classes"}
    ranked = sorted(((name, steps[half_way(key)]) for key, name in names.items() if key in curves), key=itemgetter(1))
    if len(ranked) > 1:
        sentences.append(words("half_way", ranked, steps[-1]))
    score = curves.get(("isoscore[unbiased]", "image", "all"))
    if score is not None and CLUSTERS in curves and curves[CLUSTERS][-1] > curves[CLUSTERS][0]:
        moved = score[-1] / score[0] - 1
        verb = "rises" if moved > 0 else "falls"
        if abs(moved) < CHANGES:
            verb = "hardly changes"
        sentences.append(words("clusters", curves[CLUSTERS][[0, -1]], score[[0, -1]], verb))
    return sentences
