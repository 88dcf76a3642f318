"""How every figure looks: one colour per modality, type that is readable at column width, files that repeat.

Figures are plain `matplotlib.figure.Figure` objects (no pyplot, no global state) in DejaVu Sans, which
matplotlib ships.
"""

import io
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from matplotlib import rc_context, rcParamsDefault
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clip_geometry.files import write_atomically

# Okabe & Ito 2008: told apart with every common colour vision deficiency; template.css uses the same values
IMAGE, TEXT, MATCHING, NEUTRAL = "#0072B2", "#D55E00", "#009E73", "#6E7781"
COLOUR = {"image": IMAGE, "text": TEXT, "matching": MATCHING, "random": NEUTRAL}
# a second sign beside the colour, for prints in black and white
MARKER = {"image": "o", "text": "^"}
LINE = {"image": "-", "text": (0, (5, 1.5))}

WIDTH, HEIGHT = 3.5, 2.9  # inches: one column of a two-column page
DPI = 220

_OURS = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
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
    "svg.hashsalt": "clip-geometry",  # ids would be random otherwise
    "path.simplify": True,
}
# Over matplotlib's defaults rather than the reader's matplotlibrc, so that files repeat; the backend stays theirs
_STYLE: dict[Any, Any] = {key: value for key, value in rcParamsDefault.items() if not key.startswith("backend")} | _OURS

P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Runs a drawing function in this style and leaves matplotlib's settings as they were."""

    @wraps(draw)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        with rc_context(_STYLE):
            return draw(*args, **kwargs)

    return inner


def new_axes() -> tuple[Figure, Axes]:
    """An empty figure of one panel."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    return figure, figure.add_subplot()


def legend_above(figure: Figure, axes: Axes, *, columns: int = 4) -> None:
    """The legend outside the panel, above it, where it cannot cover data."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=min(columns, len(labels)))


@styled
def save_figure(figure: Figure, folder: str | Path, name: str) -> tuple[Path, Path]:
    """Writes folder/name.png and folder/name.svg, each at once or not at all → their paths.

    The bytes depend on the figure only (no date, no random ids). The folder is made if it is missing.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    write_atomically(png, _encoded(figure, "png"))
    write_atomically(svg, _encoded(figure, "svg"))
    return png, svg


def _encoded(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {}
    figure.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()
