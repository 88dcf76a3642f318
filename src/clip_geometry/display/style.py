"""The style of all figures: one color per modality, type readable at column width, reproducible files.

Figures are plain `matplotlib.figure.Figure` objects (no pyplot, no global state) in DejaVu Sans, which matplotlib
ships.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from matplotlib import rc_context, rcParamsDefault
from matplotlib.axes import Axes

# Okabe & Ito 2008: distinguishable with all common color vision deficiencies; template.css uses the same values
IMAGE, TEXT, MATCHING, NEUTRAL = "#0072B2", "#D55E00", "#009E73", "#6E7781"
COLOR = {"image": IMAGE, "text": TEXT, "matching": MATCHING, "random": NEUTRAL}
INK, SECOND = "#24292F", "#AA4499"  # for series that belong to no modality
# a second sign in addition to the color, for prints in black and white
MARKER = {"image": "o", "text": "^"}
LINE = {"image": "-", "text": (0, (5, 1.5))}
DOTTED, DASHED = (0, (1, 1.5)), (0, (3, 2))  # for reference lines: the first row, the null value
# Petroff 2021, arXiv:2107.02270: ten colors distinguishable with color vision deficiencies, preceded by black
COLORS = (
    "#24292F", "#3F90DA", "#FFA90E", "#BD1F01", "#832DB6", "#92DADD", "#A96B59", "#E76300", "#94A4A2", "#B9AC70",
    "#717581",
)  # fmt: skip

WIDTH, HEIGHT = 3.5, 2.9  # inches: one column of a two-column page
DPI = 220

_OURS = {
    "font.family": "DejaVu Sans",
    "font.size": 8,  # no text is below 7: on a phone, a point is 1.3 px
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 1.5,
    "legend.columnspacing": 0.9,
    "legend.handletextpad": 0.5,
    "legend.borderaxespad": 0.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.edgecolor": "#57606A",
    "axes.labelcolor": "#24292F",
    "xtick.color": "#57606A",
    "ytick.color": "#57606A",
    "xtick.labelcolor": "#24292F",
    "ytick.labelcolor": "#24292F",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E9ED",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "savefig.dpi": DPI,
    "figure.dpi": DPI,
    "svg.fonttype": "path",  # looks the same where DejaVu is not installed
    "svg.hashsalt": "clip-geometry",  # otherwise ids would be random
    "path.simplify": True,
}
# On top of matplotlib's defaults instead of the user's matplotlibrc, so that files are reproducible; the user's backend
# is kept
_STYLE: dict[Any, Any] = {key: value for key, value in rcParamsDefault.items() if not key.startswith("backend")} | _OURS

P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Decorate a drawing function so that it runs in this style and leaves matplotlib's settings unchanged."""

    @wraps(draw)
    def with_style(*args: P.args, **kwargs: P.kwargs) -> R:
        with rc_context(_STYLE):
            return draw(*args, **kwargs)

    return with_style


def name_lines(axes: Axes, names: Sequence[str], *, below: float = 0.4, above: float = 0.6, **labels: Any) -> None:
    """Set one horizontal line per name, with the first on top; `labels` style the names."""
    axes.set(yticks=range(len(names)), ylim=(len(names) - below, -above))
    axes.set_yticklabels(names, **labels)


def error_dots(
    axes: Axes, rows: Iterable[Mapping[str, Any]], at: Sequence[float], *, upright: bool = False, **style: Any
) -> None:
    """Draw the values of result rows as dots, with standard errors where they exist.

    Args:
        axes: The panel.
        rows: Result rows, whose values lie along x.
        at: The position of each row along y.
        upright: Whether to exchange x and y.
        style: Options of `Axes.errorbar`.
    """
    rows = list(rows)
    values = [row["value"] for row in rows]
    errors = [row.get("standard_error") or 0 for row in rows]
    style = {"fmt": style.pop("marker", "o"), "markersize": 4, "elinewidth": 1} | style
    if upright:
        axes.errorbar(at, values, yerr=errors, **style)
    else:
        axes.errorbar(values, at, xerr=errors, **style)
