"""Figure of what repairs of a mixed index find against what they cost."""

import textwrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clip_geometry.display.style import COLORS, DOTTED, INK, NEUTRAL, WIDTH, styled
from clip_geometry.search.comparison import Candidate, RepairComparison
from clip_geometry.search.held_out import NUMBERS

NEAR = np.array([0.05, 0.03])  # fractions of the axes within which points share one label
LINEAR = 0.01  # the axis of the change of recall is linear up to here and logarithmic beyond
KINDS = {
    "free": ("costs nothing beyond noise", COLORS[0], "o"),
    "cost": ("has a cost", COLORS[1], "s"),
    "baseline": ("baseline, no repair", COLORS[3], "D"),
}


@styled
def draw(compared: RepairComparison) -> Figure:
    """Draw each repair at its change of recall across modalities (x) and the goal's number (y).

    The change has a paired error: repairs that lie left of 0 by more than this error lower recall.
    """
    figure = Figure(figsize=(2 * WIDTH, 1.15 * WIDTH), layout="constrained")
    axes, side = figure.subplots(1, 2, width_ratios=(2, 1))
    ranked = compared.ranked()
    points = {each.name: (each.changes["cross_r_at_1"], each.numbers[compared.aim]) for each in ranked}
    front = sorted((points[name][0].value, points[name][1].value) for name in compared.front)
    axes.set_xscale("symlog", linthresh=LINEAR, subs=[2, 5])
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:+g}".replace("-", "−") if abs(x) > 1e-9 else "0")
    axes.axvline(0, color=NEUTRAL, linewidth=0.9, linestyle=DOTTED, zorder=0)
    if len(front) > 1:
        axes.plot(*zip(*front, strict=True), "-", color=NEUTRAL, linewidth=1, zorder=1, label="Pareto front")
    for kind, (label, color, marker) in KINDS.items():
        members = [points[candidate.name] for candidate in ranked if _kind(candidate) == kind]
        if members:
            x, y = ([point[k].value for point in members] for k in (0, 1))
            dx, dy = ([point[k].error for point in members] for k in (0, 1))
            axes.errorbar(x, y, dy, dx, marker, color=color, markersize=4, linewidth=0.8, label=label)
    x, y = (estimate.value for estimate in points[compared.recommended])
    axes.plot(x, y, "o", markersize=10, fillstyle="none", color=INK, label="recommended")
    axes.margins(0.12)
    if not any(change.value or change.error for change, _ in points.values()):
        axes.set_xlim(-LINEAR, LINEAR)  # no repair changes recall; matplotlib's own limits would be rounding errors
    _number(axes, np.array([[point[0].value, point[1].value] for point in points.values()]))
    axes.set_xlabel("change of recall at 1 across modalities")
    axes.set_ylabel(textwrap.fill(NUMBERS[compared.aim].partition(",")[0], 40))
    side.set_axis_off()
    for k, candidate in enumerate(ranked):
        weight = "bold" if candidate.name == compared.recommended else "normal"
        _, color, _ = KINDS[_kind(candidate)]
        y = 1 - k / max(16, len(ranked))
        side.text(0.06, y, f"{k + 1}", color=color, fontsize=7, va="top", ha="right", fontweight=weight)
        side.text(0.11, y, candidate.name, color=INK, fontsize=7, va="top", fontweight=weight)
    figure.legend(loc="outside upper left", ncols=3, fontsize=7)
    return figure


def _kind(candidate: Candidate) -> str:
    if candidate.baseline:
        return "baseline"
    return "cost" if candidate.costs else "free"


def _number(axes: Axes, points: np.ndarray) -> None:
    """Label the points with their numbers; points that are close together share one label."""
    places = axes.transAxes.inverted().transform(axes.transData.transform(points))
    labels: dict[tuple[int, ...], list[int]] = {}
    for k, place in enumerate(places):
        labels.setdefault(tuple((place / NEAR).round().astype(int)), []).append(k)
    for near in labels.values():
        text = ", ".join(f"{k + 1}" for k in near)
        place = (points[near, 0].max(), points[near, 1].mean())
        axes.annotate(text, place, (6, 3), textcoords="offset points", fontsize=7, color=INK)
