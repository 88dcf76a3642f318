"""What repairs of a mixed index find, against what they cost."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clip_geometry.diagnosis.comparison import AIM, RepairComparison
from clip_geometry.report.style import COLORS, INK, NEUTRAL, WIDTH, styled

NEAR = 0.06  # of the axes, within which points share one label


@styled
def draw(compared: RepairComparison) -> Figure:
    """Draw each repair at its recall across modalities (across) and its reciprocal rank in the mixed index (up)."""
    figure = Figure(figsize=(2 * WIDTH, 1.05 * WIDTH), layout="constrained")
    axes, side = figure.subplots(1, 2, width_ratios=(2, 1))
    order = sorted(compared.candidates.values(), key=lambda each: -each.numbers[AIM].value)
    points = {each.name: (each.numbers["cross_r_at_1"], each.numbers[AIM]) for each in order}
    front = sorted((points[name][0].value, points[name][1].value) for name in compared.front)
    axes.plot(*zip(*front, strict=True), "-", color=NEUTRAL, linewidth=1, zorder=1, label="Pareto front")
    kinds = {True: ("costs nothing beyond noise", COLORS[0], "o"), False: ("has a cost", COLORS[1], "s")}
    for free, (label, color, marker) in kinds.items():
        if some := [points[each.name] for each in order if (not each.costs) == free]:
            x, y = ([point[k].value for point in some] for k in (0, 1))
            dx, dy = ([point[k].error for point in some] for k in (0, 1))
            axes.errorbar(
                x, y, dy, dx, marker, color=color, markersize=4, linewidth=0.8, label=f"{label}, ± standard error"
            )
    taken = points[compared.recommended]
    axes.plot(taken[0].value, taken[1].value, "o", markersize=10, fillstyle="none", color=INK, label="recommended")
    axes.margins(0.12)
    _number(axes, np.array([[point[0].value, point[1].value] for point in points.values()]))
    axes.set_xlabel("recall at 1 across modalities")
    axes.set_ylabel("reciprocal rank in the mixed index")
    side.set_axis_off()
    for k, each in enumerate(order):
        bold = "bold" if each.name == compared.recommended else "normal"
        color = kinds[not each.costs][1]
        side.text(0, 1 - k / max(16, len(order)), f"{k + 1}", color=color, fontsize=7, va="top", fontweight=bold)
        side.text(0.1, 1 - k / max(16, len(order)), each.name, color=INK, fontsize=7, va="top", fontweight=bold)
    figure.legend(loc="outside upper left", ncols=2, fontsize=7)
    return figure


def _number(axes: Axes, points: np.ndarray) -> None:
    """Write the numbers of the points, one label for those that are near each other."""
    low, high = (np.array([axes.get_xlim()[k], axes.get_ylim()[k]]) for k in (0, 1))
    places = (points - low) / (high - low)
    free = list(range(len(points)))
    while free:
        near = [k for k in free if np.abs(places[k] - places[free[0]]).max() < NEAR]
        free = [k for k in free if k not in near]
        right = places[near, 0].mean() < 0.6
        axes.annotate(
            ", ".join(str(k + 1) for k in near),
            (points[near, 0].max() if right else points[near, 0].min(), points[near, 1].mean()),
            (14 if right else -14, 6),
            textcoords="offset points",
            ha="left" if right else "right",
            va="bottom",
            fontsize=7,
            color=INK,
        )
