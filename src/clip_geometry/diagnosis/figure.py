"""What repairs of a mixed index find, against what they cost."""

from matplotlib.figure import Figure

from clip_geometry.diagnosis.comparison import AIM, RepairComparison
from clip_geometry.report.style import COLORS, INK, NEUTRAL, WIDTH, styled


@styled
def draw(compared: RepairComparison) -> Figure:
    """Draws each repair at its recall across modalities (across) and its reciprocal rank in the mixed index (up)."""
    figure = Figure(figsize=(1.6 * WIDTH, 1.1 * WIDTH), layout="constrained")
    axes = figure.subplots()
    points = {name: (each.numbers["cross_first"], each.numbers[AIM]) for name, each in compared.candidates.items()}
    front = sorted((points[name][0].value, points[name][1].value) for name in compared.front)
    axes.plot(*zip(*front, strict=True), "-", color=NEUTRAL, linewidth=1, zorder=1, label="Pareto front")
    kinds = {"costs nothing beyond noise": (COLORS[0], "o"), "costs recall, neighbors or precision": (COLORS[1], "s")}
    for (label, (color, marker)), free in zip(kinds.items(), (True, False), strict=True):
        some = [name for name, each in compared.candidates.items() if (not each.costs) == free]
        if some:
            x, y = ([points[name][k].value for name in some] for k in (0, 1))
            errors = ([points[name][k].error for name in some] for k in (0, 1))
            dx, dy = errors
            axes.errorbar(x, y, dy, dx, marker, color=color, markersize=4, linewidth=0.8, label=label, zorder=2)
    taken = points[compared.recommended]
    axes.plot(taken[0].value, taken[1].value, "o", markersize=10, fillstyle="none", color=INK, label="recommended")
    _name(axes, {name: (point[0].value, point[1].value) for name, point in points.items()})
    axes.set_xlabel("recall at 1 across modalities")
    axes.set_ylabel("reciprocal rank in the mixed index")
    figure.legend(loc="outside upper left", ncols=2, fontsize=7)
    return figure


def _name(axes, points: dict[str, tuple[float, float]]) -> None:
    """Writes the names beside their points, those of one place under each other."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    taken: list[tuple[float, float]] = []
    for name, (x, y) in sorted(points.items(), key=lambda item: -item[1][1]):
        place = (x - left) / (right - left), (y - low) / (high - low)
        while any(abs(place[0] - a) < 0.3 and abs(place[1] - b) < 0.035 for a, b in taken):
            place = place[0], place[1] - 0.01
        taken.append(place)
        text = axes.annotate(
            name, (x, y), (8 if place[0] < 0.75 else -8, 0), textcoords="offset points", fontsize=6.5, va="center",
            ha="left" if place[0] < 0.75 else "right", color=INK,
        )  # fmt: skip
        text.xyann = (text.xyann[0], (place[1] - (y - low) / (high - low)) * axes.bbox.height * 72 / axes.figure.dpi)
