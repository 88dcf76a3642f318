"""Figures of words on the first two or three principal components of their layer, with one panel per layer."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator
from numpy.typing import NDArray

from clip_geometry.display.numbers import percent
from clip_geometry.display.style import WIDTH, styled
from clip_geometry.embeddings import Embeddings
from clip_geometry.transforms import PCA
from clip_geometry_experiments.report.figures import MAX_VECTOR_POINTS

FITTED, SHOWN = 20_000, 5000  # rows that principal components are fitted on, and points that are drawn
COLUMNS = 3  # columns of panels
HEADER, TITLE, MARGIN = 0.56, 0.16, 0.03  # inches above the panels, above each panel and around each panel
SCALE = "viridis_r"  # rare words are pale
# Okabe & Ito 2008; symbols, the subject of these figures, have the color that stands out
KINDS = {
    "symbol": "#D55E00",
    "number": "#CC79A7",
    "noun": "#0072B2",
    "verb": "#009E73",
    "adjective, adverb": "#E69F00",
    "function word": "#6E7781",
    "word": "#56B4E9",
}
BRACKETS = ("-LRB-", "-RRB-", "-LCB-", "-RCB-", "-LSB-", "-RSB-")  # spelling in treebanks
# tag prefixes of the Penn Treebank and the Brown corpus
NUMBERS = ("CD", "OD")
CLASSES = {"noun": ("N",), "verb": ("V", "MD", "BE", "HV", "DO"), "adjective, adverb": ("J", "RB", "RN", "QL")}

Layers = Mapping[int | None, Callable[[], Embeddings]]  # layer → function that reads its rows


@dataclass(frozen=True)
class Plane:
    """One layer: scores on the first principal components, (m, 3), and the share of the variance of each component."""

    title: str
    points: NDArray[np.float64]
    shares: tuple[float, float, float]


@dataclass(frozen=True)
class Planes:
    """All layers, with the same words in the same order.

    `kinds` and `frequency` have one entry per point, or are None if words or frequencies are unknown. `count` is the
    number of rows that the components are fitted on.
    """

    planes: list[Plane]
    kinds: list[str] | None
    frequency: NDArray[np.integer] | None
    count: int


def read_planes(layers: Layers, seed: int) -> Planes:
    """Fit principal components to a sample of words in every layer.

    The words are in random order, so that no kind is drawn on top of the others.

    Raises:
        InputError: If there are too few rows or dimensions for three components.
    """
    planes = []
    chosen = first = None
    for layer, read in layers.items():
        embeddings = read()
        if chosen is None:
            chosen = np.random.default_rng(seed).permutation(len(embeddings))[:FITTED]
            first = embeddings.take(chosen[:SHOWN])
        rows = np.asarray(embeddings.vectors[chosen], dtype=np.float64)
        pca = PCA(3).fit(rows)
        total = (rows - rows.mean(0)).var(0, ddof=1).sum()
        one, two, three = (float(value / total) for value in pca.explained_variance_)
        title = "" if layer is None else f"layer {layer}"
        planes.append(Plane(title, pca.transform(rows[:SHOWN]), (one, two, three)))
    assert first is not None and chosen is not None  # there is at least one layer, or one set without layers
    words, tags, counts = (first.metadata.get(name) for name in ("token", "tag", "frequency"))
    kinds = None if words is None else kinds_of(words, tags)
    frequency = None if counts is None else np.maximum(np.asarray(counts, dtype=np.int64), 1)
    return Planes(planes, kinds, frequency, len(chosen))


def kinds_of(words: Sequence[Any] | NDArray[Any], tags: Sequence[Any] | NDArray[Any] | None = None) -> list[str]:
    """Return the kind of each word.

    A word without letters and digits is a "symbol"; others are a "number", a word class by their tag, or "word" without
    a tag.
    """
    kinds = []
    for word, tag in zip(map(str, words), map(str, tags if tags is not None else [""] * len(words)), strict=True):
        if word in BRACKETS or not any(character.isalnum() for character in word):
            kinds.append("symbol")
        elif tag.startswith(NUMBERS) or (not tag and word[0].isdigit()):
            kinds.append("number")
        elif not tag:
            kinds.append("word")
        else:
            classes = (name for name, prefixes in CLASSES.items() if tag.startswith(prefixes))
            kinds.append(next(classes, "function word"))
    return kinds


@styled
def kinds_figure(planes: Sequence[Plane], kinds: Sequence[str], *, dimensions: int = 2) -> Figure:
    """Draw points colored by the kind of their word; `kinds` has one entry of KINDS per point."""
    present = [kind for kind in KINDS if kind in set(kinds)]
    figure, _ = _panels(planes, dimensions, c=[KINDS[kind] for kind in kinds])
    keys = [Line2D([], [], marker="o", color=KINDS[kind], ls="none", markersize=4, label=kind) for kind in present]
    figure.legend(handles=keys, loc="upper left", ncols=3, handlelength=1)
    return figure


@styled
def frequency_figure(planes: Sequence[Plane], frequency: NDArray[np.integer], *, dimensions: int = 2) -> Figure:
    """Draw points colored by the frequency of their word in the corpus, at least 1."""
    norm = LogNorm(1, max(10, int(frequency.max())))
    figure, drawn = _panels(planes, dimensions, c=frequency, cmap=SCALE, norm=norm)
    height = figure.get_size_inches()[1]
    place = figure.add_axes((0.15, 1 - 0.3 / height, 0.7, 0.08 / height))
    bar = figure.colorbar(drawn, cax=place, orientation="horizontal", ticks=LogLocator(numticks=6), format="{x:.0f}")
    bar.minorticks_off()
    bar.set_label("occurrences of the word in the corpus", fontsize=7.5)
    place.xaxis.set_ticks_position("bottom")
    place.xaxis.set_label_position("top")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.solids.set_alpha(1)  # pyright: ignore[reportOptionalMemberAccess]
    return figure


def _panels(planes: Sequence[Plane], dimensions: int, **colors: Any) -> tuple[Figure, Any]:
    """Lay out the panels by hand, because matplotlib leaves as much room around 3D axes as they occupy."""
    columns = min(COLUMNS, len(planes))
    lines = math.ceil(len(planes) / columns)
    side = WIDTH / max(columns, 1.3)
    height = HEADER + lines * (side + TITLE)
    figure = Figure(figsize=(WIDTH, height))
    drawn = None
    for place, plane in enumerate(planes):
        line, column = divmod(place, columns)
        left, bottom = column * side, height - HEADER - (line + 1) * (side + TITLE)
        rectangle = np.array([left + MARGIN, bottom + MARGIN, side - 2 * MARGIN, side - 2 * MARGIN])
        size = np.array([WIDTH, height, WIDTH, height])
        axes = figure.add_axes(tuple(rectangle / size), projection="3d" if dimensions == 3 else None)
        drawn = _panel(axes, plane, dimensions, colors)
        share = percent(sum(plane.shares[:dimensions]))
        title = f"{plane.title}, {share}" if plane.title else f"{share} of the variance"
        x, y = (left + side / 2) / WIDTH, (bottom + side + 0.02) / height
        figure.text(x, y, title, ha="center", va="bottom", fontsize=7, gid=f"title:{plane.title}")
    return figure, drawn


def _panel(axes: Any, plane: Plane, dimensions: int, colors: dict[str, Any]) -> Any:
    """Draw the points of one plane in two or three dimensions."""
    many = len(plane.points) > MAX_VECTOR_POINTS
    area = 5000 * axes.get_position().width / len(plane.points)  # fewer and larger panels have larger points
    size = {"s": float(np.clip(area, 0.9, 6)), "linewidths": 0, "alpha": 0.6, "rasterized": many}
    if dimensions == 2:
        axes.set(xticks=[], yticks=[])
        axes.margins(0.04)
        axes.spines[["top", "right"]].set_visible(True)
        return axes.scatter(*plane.points[:, :2].T, gid=f"points:{plane.title}", **size, **colors)
    axes.set(xticklabels=[], yticklabels=[], zticklabels=[])
    axes.view_init(elev=22, azim=-60)
    axes.set_box_aspect((1, 1, 1), zoom=1.15)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis._axinfo["tick"] |= {"inward_factor": 0, "outward_factor": 0}  # no tick marks without numbers
        axis.pane.set(facecolor="#F6F8FA", edgecolor="#D0D7DE")
    # depth shading would change colors that carry meaning
    return axes.scatter(*plane.points.T, depthshade=False, gid=f"points:{plane.title}", **size, **colors)
