"""Points on a plane with their images or captions, thinned so that none covers another."""

import math
import textwrap
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageOps

from clip_geometry.display.style import COLOR, INK, MARKER, WIDTH, styled
from clip_geometry_experiments.report.figures import MAX_VECTOR_POINTS

ACROSS = 15  # images across a map
MOST = 900  # images of a grid
PIXELS = 100  # of an image with its border: twice the resolution of a printed column
CELLS = (4, 12)  # captions across and down, at most
LETTERS, LINE_LETTERS = 48, 18  # of a caption, and of one of its lines
EDGE = "#D0D7DE"
FLATTEST = 0.5  # height over width of a map, at least
MARGIN = 0.03  # inches around a map

Points = NDArray[np.floating]
Window = tuple[Points, Points]  # centre (2,), half width and height (2,)
Picture = Callable[[int], Image.Image]  # row → RGB image; raises OSError where it cannot be read


def window_of(points: Points, *, centre: Points | None = None) -> Window:
    """The smallest box with all points, about `centre` if it is given, and not too flat."""
    middle = (points.min(0) + points.max(0)) / 2 if centre is None else centre
    reach = np.abs(points - middle).max(0)
    return middle, np.maximum(reach, FLATTEST * float(reach.max()) or 1.0)


def thinned(points: Points, half: Callable[[int], NDArray | None], cell: NDArray) -> list[int]:
    """Select rows whose boxes do not overlap, at most one per cell of a grid: the nearest to the center that fits.

    Args:
        points: (n, 2).
        half: Row → half width and height of its box, None if it must not be drawn; called only where needed.
        cell: Width and height of the cells, in the same unit; one cell begins at the origin.
    """
    number_of = np.floor(points / cell).astype(int)
    off_centre = np.abs(points / cell - number_of - 0.5).max(1)
    chosen: list[int] = []
    halves: list[NDArray] = []
    taken = set()
    for row in np.argsort(off_centre, kind="stable").tolist():
        if (key := tuple(number_of[row])) in taken or (own := half(row)) is None:
            continue
        if chosen and (np.abs(points[chosen] - points[row]) < np.array(halves) + own).all(1).any():
            continue
        taken.add(key)
        chosen.append(row)
        halves.append(own)
    return chosen


def filled(points: Points) -> tuple[tuple[int, int], NDArray[np.integer]]:
    """Select the row of every cell of a grid over the points: different rows, with the least sum of squared shifts.

    Args:
        points: (n, 2), n ≥ 1, scaled to the size of the grid.

    Returns:
        Columns and rows of the grid, about as many of both, with at most n and MOST cells; and the index into `points`
        of each cell, row by row from the bottom.
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    n = min(len(points), MOST)
    sizes = [(n // lines, lines) for lines in range(1, math.isqrt(n) + 1)]
    size = max((s for s in sizes if s[0] <= 1.5 * s[1] + 2), key=lambda s: (s[0] * s[1], s[1]))
    low, high = points.min(0), points.max(0)
    places = (points - low) / np.where(high > low, high - low, 1) * size
    across, up = np.meshgrid(*(np.arange(count) + 0.5 for count in size))
    _, chosen = linear_sum_assignment(cdist(np.column_stack([across.ravel(), up.ravel()]), places, "sqeuclidean"))
    return size, chosen


@styled
def picture_grid(points: ArrayLike, picture: Picture) -> tuple[Figure | None, int]:
    """Images in a grid without empty cells, each in a cell near its point.

    Args:
        points: (n, 2).
        picture: Row → image; an image that cannot be read takes no cell.

    Returns:
        The figure, None without any image, and the number of images.
    """
    points = np.asarray(points)
    rows, found = np.arange(len(points)), {}
    while len(rows):
        size, chosen = filled(points[rows])
        found |= {row: _framed(picture, row) for row in rows[chosen].tolist() if row not in found}
        missing = [row for row in rows[chosen].tolist() if found[row] is None]
        if not missing:
            break
        rows = np.setdiff1d(rows, missing)
    else:
        return None, 0
    half = np.array(size) / 2
    axes = _panel((half, half), room=0, width=2 * WIDTH)
    for cell, row in enumerate(rows[chosen].tolist()):
        _place(axes, row, found[row], np.array([cell % size[0], cell // size[0]]) + 0.5, np.full(2, 0.5))
    return _figure_of(axes), len(chosen)


@styled
def picture_map(
    points: ArrayLike,
    picture: Picture,
    *,
    modality: str = "image",
    window: Window | None = None,
    shades: Sequence[str] | None = None,
    everything: bool = False,
) -> tuple[Figure, int]:
    """Images centered at their points, above all points as dots.

    Args:
        points: (n, 2).
        picture: Row → image; an image that cannot be read remains a dot.
        modality: Of the points.
        window: What the map shows.
        shades: The color of each frame and dot.
        everything: Draw all images, one on another in the order of the rows.

    Returns:
        The figure and the number of images.
    """
    points = np.asarray(points)
    window = window or window_of(points)
    axes = _panel(window)
    _dots(axes, points, modality, shades)
    half = np.full(2, _room(window))
    inside = points - window[0] + window[1] + half
    count = 0
    for row in range(len(points)) if everything else thinned(inside, lambda row: half, 2 * half):
        framed = _framed(picture, row, None if shades is None else shades[row])
        if framed is not None:
            _place(axes, row, framed, points[row], half)
            count += 1
    return _figure_of(axes), count


def _framed(picture: Picture, row: int, shade: str | None = None) -> NDArray | None:
    """The central square of an image with a white border, in a light frame or one of the color; None if unreadable."""
    border, edge = (6, 3) if shade is None else (4, 7)
    inner = PIXELS - 2 * (border + edge)
    try:
        square = ImageOps.fit(picture(row).convert("RGB"), (inner, inner), Image.Resampling.LANCZOS)
    except OSError:
        return None
    return np.asarray(ImageOps.expand(ImageOps.expand(square, border, "white"), edge, shade or EDGE))


def _place(axes: Axes, row: int, framed: NDArray, centre: NDArray, half: NDArray) -> None:
    (left, bottom), (right, top) = centre - half, centre + half
    image = AxesImage(axes, extent=(left, right, bottom, top), origin="upper", zorder=3, gid=f"picture:{row}")
    image.set_data(framed)
    axes.add_image(image)


@styled
def caption_map(
    points: ArrayLike,
    texts: Sequence[str] | NDArray,
    *,
    window: Window | None = None,
    shades: Sequence[str] | None = None,
) -> tuple[Figure, int]:
    """Shortened captions centered at their points, and their number; otherwise as `picture_map`."""
    points = np.asarray(points)
    axes = _panel(window or window_of(points))
    _dots(axes, points, "text", shades)
    figure = _figure_of(axes)
    renderer = FigureCanvasAgg(figure).get_renderer()
    panel = axes.get_window_extent(renderer)
    size = np.array([panel.width, panel.height])
    places = axes.transData.transform(points) - (panel.x0, panel.y0)
    written: dict[int, Text] = {}

    def half(row: int) -> NDArray | None:
        """Half the size of the caption; None if it would cross the frame."""
        color = COLOR["text"] if shades is None else shades[row]
        label = written[row] = _written(axes, points[row], str(texts[row]), color)
        label.set_gid(f"caption:{row}")
        label.update_bbox_position_size(renderer)
        patch = label.get_bbox_patch()
        box = (label if patch is None else patch).get_window_extent(renderer)
        own = np.array([box.width, box.height]) / 2 + 1
        return own if (places[row] > own).all() and (places[row] < size - own).all() else None

    chosen = thinned(places, half, size / CELLS)
    for row in written.keys() - set(chosen):
        written[row].remove()
    return figure, len(chosen)


def _written(axes: Axes, at: Points, text: str, color: str) -> Text:
    """A caption in a white box with an edge of the color."""
    slip = {"boxstyle": "round,pad=0.18,rounding_size=0.25", "facecolor": "white", "edgecolor": color}
    return axes.text(
        float(at[0]),
        float(at[1]),
        "\n".join(textwrap.wrap(shortened(text), LINE_LETTERS)),
        fontsize=7,
        color=INK,
        ha="center",
        va="center",
        linespacing=1.05,
        parse_math=False,
        zorder=3,
        bbox={**slip, "linewidth": 0.7},
    )


def shortened(text: str) -> str:
    """At most LETTERS letters, cut between words if possible, with … for the rest."""
    text = " ".join(text.split())
    if len(text) <= LETTERS:
        return text
    head = text[:LETTERS].rpartition(" ")[0]
    return (head if len(head) > LETTERS / 2 else text[: LETTERS - 1]).rstrip(" ,.;") + "…"


@styled
def point_map(
    points: ArrayLike, modality: str, *, window: Window | None = None, shades: Sequence[str] | None = None
) -> Figure:
    """Points only, in the color of their modality or each in its own."""
    points = np.asarray(points)
    axes = _panel(window or window_of(points))
    _dots(axes, points, modality, shades, size=9)
    return _figure_of(axes)


def _panel(window: Window, *, room: float | None = None, width: float = WIDTH) -> Axes:
    """An empty panel without ticks. room: about the window; half an image."""
    (x, y), (across, up) = window[0], window[1] + (_room(window) if room is None else room)
    own = width - 2 * MARGIN
    height = own * up / across
    whole = height + 2 * MARGIN
    figure = Figure(figsize=(width, whole))
    axes = figure.add_axes((MARGIN / width, MARGIN / whole, own / width, height / whole))
    axes.set(xlim=(x - across, x + across), ylim=(y - up, y + up), xticks=[], yticks=[])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set(visible=True, color=EDGE)
    return axes


def _room(window: Window) -> float:
    """Half the side of an image, of which ACROSS fit side by side."""
    return float(window[1][0]) / (ACROSS - 1)


def _dots(axes: Axes, points: Points, modality: str, shades: Sequence[str] | None, *, size: float = 4) -> None:
    color, many = COLOR[modality] if shades is None else list(shades), len(points) > MAX_VECTOR_POINTS
    style = {"marker": MARKER[modality], "linewidths": 0, "alpha": 0.7, "rasterized": many}
    axes.scatter(*points.T, s=size, c=color, gid="points", **style)


def _figure_of(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
