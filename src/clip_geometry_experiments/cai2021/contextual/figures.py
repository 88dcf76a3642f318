"""Figures and sentences about words in context: curves over the layers, and words on their main plane."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator
from numpy.typing import NDArray

from clip_geometry.display.numbers import number, percent, plus_minus
from clip_geometry.display.origin import Row
from clip_geometry.display.style import DASHED, DOTTED, HEIGHT, WIDTH, styled
from clip_geometry.display.words import Words
from clip_geometry.embeddings import Embeddings
from clip_geometry.registry import InputError
from clip_geometry.transforms import PCA
from clip_geometry_experiments.cai2021.contextual.measures import STANDARD_K
from clip_geometry_experiments.kit.figures import GREEN, INDIGO, WINE, Panel, PanelCurve, panels_figure
from clip_geometry_experiments.kit.significance import differ
from clip_geometry_experiments.report.figures import MAX_VECTOR_POINTS, Drawing

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


# --- curves over the layers

# measure → label, color, marker and line of its curve
COSINES = {
    "inter_type_cosine": ("between types", INDIGO, "o", "-"),
    "contextual.adjusted_inter": ("between types, adjusted", INDIGO, "o", DASHED),
    "intra_type_cosine": ("within types", WINE, "^", "-"),
    "contextual.adjusted_intra": ("within types, adjusted", WINE, "^", DASHED),
}
LIDS = {
    "lid": ("Euclidean", INDIGO, "o", "-"),
    "lid[cosine]": ("cosine", GREEN, "^", "-"),
    "lid[cai2021]": ("Euclidean, as published", INDIGO, "o", DOTTED),
    "lid[cai2021-cosine]": ("cosine, as published", GREEN, "^", DOTTED),
}
AS_PUBLISHED = {"lid": "lid[cai2021]", "lid[cosine]": "lid[cai2021-cosine]"}

words = Words(Path(__file__).with_name("words.j2"))


def draw_contextual(rows: Sequence[Row], layers: Layers, seed: int = 0) -> dict[str, Drawing]:
    """Draw all figures that the rows allow, and the words of each layer.

    Args:
        rows: Result rows of all layers.
        layers: Mapping from layer to a function that reads its embeddings.
        seed: Seed of the sample of words that are drawn.
    """
    drawn = {**_cosines(rows), **_dimensions(rows)}
    try:
        words_of_layers = read_planes(layers, seed)
    except InputError as error:
        drawn["contextual_words"] = Drawing("Words", None, f"Not drawn: {error}.")
    else:
        planes = words_of_layers.planes
        for dimensions, name, number in ((2, "plane", "two"), (3, "space", "three")):
            components = f"{number} principal components"
            caption = words("planes", len(planes[0].points), words_of_layers.count, bool(planes[0].title), components)
            if words_of_layers.frequency is not None:
                figure = frequency_figure(planes, words_of_layers.frequency, dimensions=dimensions)
                title = f"Words on {components}, by frequency"
                drawn[f"contextual_{name}_frequency"] = Drawing(title, figure, caption)
            if words_of_layers.kinds is not None:
                figure = kinds_figure(planes, words_of_layers.kinds, dimensions=dimensions)
                drawn[f"contextual_{name}_kinds"] = Drawing(f"Words on {components}, by kind", figure, caption)
    return drawn


def _curves(rows: Sequence[Row], styles: Mapping[str, Any], *, probes: bool = False) -> dict[str, PanelCurve]:
    """Map each measure to its curve over two or more layers, with bars of two standard errors.

    With `probes`, neighbors of some rows are searched among all rows.
    """
    curves = {}
    for measure, (label, color, marker, line) in styles.items():
        points = [row for row in _layers(rows, measure) if ("probes" in row["at"]) == probes and "layer" in row["at"]]
        points.sort(key=lambda row: row["at"]["layer"])
        if len(points) > 1:
            values, errors = (np.array([row.get(key) or 0.0 for row in points]) for key in ("value", "standard_error"))
            style = {"marker": marker, "markersize": 3.5, "markerfacecolor": color if line == "-" else "white"}
            layers = [row["at"]["layer"] for row in points]
            bars = 2 * errors if errors.any() else None
            curves[measure] = PanelCurve(layers, values, color, label, line, f"curve:{measure}", style, bars)
    return curves


def _cosines(rows: Sequence[Row]) -> dict[str, Drawing]:
    """Draw mean cosines between and within types over the layers: solid lines as measured, dashed lines adjusted."""
    curves = _curves(rows, COSINES)
    if not curves:
        return {}
    ranges = [
        (curves[measure].values.min(), curves[measure].values.max(), what)
        for measure, what in (("inter_type_cosine", "two types"), ("intra_type_cosine", "two rows of one type"))
        if measure in curves
    ]
    panel = Panel("mean cosine", list(curves.values()), (-0.03, 1.03))
    figure = panels_figure([panel], size=(WIDTH, HEIGHT), xlabel="layer", legend={"ncols": 2})
    return {"contextual_cosines": Drawing("Cosines of words", figure, words("cosines", ranges))}


def _dimensions(rows: Sequence[Row]) -> dict[str, Drawing]:
    """Draw Figure 9, the local intrinsic dimension over the layers, in one panel per set that is searched."""
    lids = [row for row in rows if row["measure"] in LIDS]
    panels, ratios = [], []
    for probes in (True, False):  # neighbors among all rows first, then those among the sample
        curves = _curves(lids, LIDS, probes=probes)
        if curves:
            sizes = {row["n"] for row in lids if ("probes" in row["at"]) == probes}
            most = "up to " if len(sizes) > 1 else ""  # copies are left out, and layer 0 has many
            title = f"neighbors among {most}{max(sizes)} rows"
            panels.append(Panel("dimension", list(curves.values()), (0, None), title=title))
        for plain, published in AS_PUBLISHED.items():
            if {plain, published} <= curves.keys() and curves[plain].x == curves[published].x:
                ratios += (curves[published].values / curves[plain].values).tolist()
    if not panels:
        return {}
    null = [row["null_value"] for row in lids if row["measure"] == "lid" and row.get("null_value") is not None]
    caption = words("dimension", min(null, default=None), lids[0]["at"].get("neighbours", STANDARD_K), ratios)
    size = (WIDTH, 0.75 + 1.75 * len(panels))
    figure = panels_figure(panels, size=size, xlabel="layer", legend={"ncols": 2})
    return {"contextual_dimension": Drawing("Local intrinsic dimension", figure, caption)}


# --- sentences


def sentences(runs: Sequence[tuple[str, Sequence[Row]]]) -> list[str]:
    """Report the least and the largest values over the layers.

    `runs` holds pairs of the name of a run, "" for a single one, and its result rows.
    """
    texts = []
    for name, rows in runs:
        names = ("inter_type_cosine", "intra_type_cosine", "contextual.adjusted_inter")
        between, within, adjusted = (_ends(rows, measure) for measure in names)
        if between:
            texts.append(words("cone", name, between, within))
        if adjusted:
            counts = [int(row["value"]) for row in _layers(rows, "contextual.clusters")]
            texts.append(words("clusters", name, adjusted, counts))
        # prefer neighbors among all rows if these were searched
        lids = [row for row in _layers(rows, "lid") if "probes" in row["at"]] or _layers(rows, "lid")
        dimension = _ends(lids, "lid")
        if dimension:
            nulls = [row["null_value"] for row in lids if row.get("null_value") is not None]
            texts.append(words("dimensions", name, dimension, number(min(nulls)) if nulls else None, lids[0]["d"]))
    # for several runs, group sentences about the same number
    return sorted(texts, key=lambda text: text.split(": ")[-1][:20]) if len(runs) > 1 else texts


def _layers(rows: Sequence[Row], measure: str) -> list[Row]:
    wanted = (row for row in rows if row["measure"] == measure and row["value"] is not None)
    return [row for row in wanted if row["at"].get("layer") != "mean"]


def _ends(rows: Sequence[Row], measure: str) -> dict[str, Any] | None:
    """Return the smallest and the largest value over the layers, for the caption; None if there are no layers."""
    of_layers = _layers(rows, measure)
    if not of_layers:
        return None
    ends = [choose(of_layers, key=lambda row: row["value"]) for choose in (min, max)]
    return {
        "texts": [plus_minus(row["value"], row.get("standard_error")) for row in ends],
        "layers": [row["at"].get("layer") for row in ends],
        "one": len(of_layers) == 1,
        "tie": differ(*ends) is False,
    }
