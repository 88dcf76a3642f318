"""The figures of the contextual experiment: curves over the layers, and words on their principal components."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from clip_geometry.embeddings import Embeddings
from clip_geometry.experiments.cai2021.contextual.report_curves import (
    Curve,
    Point,
    cosines_figure,
    dimension_figure,
    silhouettes_figure,
)
from clip_geometry.experiments.cai2021.contextual.report_kinds import kinds
from clip_geometry.experiments.cai2021.contextual.report_planes import Plane, frequency_figure, kinds_figure
from clip_geometry.registry import InputError
from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.numbers import number
from clip_geometry.report.style import save_figure
from clip_geometry.transforms import PCA

FITTED, SHOWN = 20_000, 5000  # rows that principal components are of, and points that are drawn
COSINES = {
    "inter": "inter_type_cosine",
    "adjusted inter": "contextual.adjusted_inter",
    "intra": "intra_type_cosine",
    "adjusted intra": "contextual.adjusted_intra",
}
LIDS = {
    ("euclidean", False): "lid",
    ("cosine", False): "lid[cosine]",
    ("euclidean", True): "lid[cai2021]",
    ("cosine", True): "lid[cai2021-cosine]",
}

Row = Mapping[str, Any]
Layers = Mapping[int | None, Callable[[], Embeddings]]
Drawing = tuple[str, Figure, str]  # title, figure, what it shows


@dataclass(frozen=True)
class Shown:
    """planes: of all layers, of the same words. count: rows that the components are of."""

    planes: list[Plane]
    kinds: list[str] | None
    frequency: NDArray[np.integer] | None
    count: int


def draw_contextual(
    rows: Sequence[Row],
    layers: Layers,
    *,
    least_silhouette: float,
    folder: str | Path,
    origin: str,
    seed: int = 0,
    prefix: str = "",
    group: str = "",
) -> list[FigureEntry]:
    """Draws what the rows allow, and the words of each layer, and saves the figures as PNG and SVG.

    layers: layer → what reads its rows. origin: model, data and seed in words. prefix: of the file names.
    """
    drawings, missing = _curves(rows, least_silhouette), []
    try:
        drawings |= _pictures(_shown(layers, seed))
    except InputError as error:  # too few rows or dimensions for three components
        missing = [FigureEntry(f"{prefix}contextual_words", "Words", f"Not drawn: {error}.", None, None, group)]
    entries = []
    for name, (title, figure, words) in drawings.items():
        png, svg = save_figure(figure, folder, prefix + name)
        entries.append(FigureEntry(prefix + name, title, f"{words} {origin}", svg, png, group))
    return entries + missing


# --- curves


def _curves(rows: Sequence[Row], least: float) -> dict[str, Drawing]:
    drawings: dict[str, Drawing] = {}
    cosines = {name: _curve(rows, measure) for name, measure in COSINES.items()}
    cosines = {name: curve for name, curve in cosines.items() if len(curve) > 1}
    if cosines:
        drawings["contextual_cosines"] = ("Cosines of words", cosines_figure(cosines), _told_cosines(cosines))
    panels = _dimension_panels(rows)
    if panels:
        told = _told_dimensions(rows)
        drawings["contextual_dimension"] = ("Local intrinsic dimension", dimension_figure(panels), told)
    tried = [
        (each["at"].get("layer"), {int(k): value for k, value in each["tried"].items()})
        for each in rows
        if each["measure"] == "contextual.silhouette"
    ]
    if tried:
        told = _told_silhouettes(rows, least)
        drawings["contextual_silhouettes"] = ("How many clusters", silhouettes_figure(tried, least), told)
    return drawings


def _curve(rows: Iterable[Row], measure: str, *, probes: bool = False) -> Curve:
    """By layer; probes: those of some rows among all instead of those among the sample."""
    return {
        each["at"]["layer"]: Point(each["value"], each.get("standard_error") or 0.0)
        for each in rows
        if each["measure"] == measure
        and each["value"] is not None
        and isinstance(each["at"].get("layer"), int)
        and ("probes" in each["at"]) == probes
    }


def _dimension_panels(rows: Sequence[Row]) -> dict[str, dict[tuple[str, bool], Curve]]:
    """Neighbours among all rows first, then those among the sample."""
    panels = {}
    for probes in (True, False):
        curves = {key: _curve(rows, measure, probes=probes) for key, measure in LIDS.items()}
        curves = {key: curve for key, curve in curves.items() if len(curve) > 1}
        if curves:
            sizes = {
                each["n"] for each in rows if each["measure"] in LIDS.values() and ("probes" in each["at"]) == probes
            }
            most = "up to " if len(sizes) > 1 else ""  # copies are left out, of which layer 0 has many
            panels[f"neighbours among {most}{max(sizes)} rows"] = curves
    return panels


def _told_cosines(curves: Mapping[str, Curve]) -> str:
    told = []
    for kind, words in (("inter", "types"), ("intra", "rows of one type")):
        if kind in curves:
            values = [point.value for point in curves[kind].values()]
            told.append(f"from {number(min(values))} to {number(max(values))} between two {words}")
    return (
        f"Mean cosine over the layers, {', '.join(told)}; dashed: inside the clusters, after each cluster's mean was "
        "subtracted (where there is one cluster, of centred rows). All rows, exactly. 0 is expected without a common "
        "direction."
    )


def _told_dimensions(rows: Sequence[Row]) -> str:
    null = [each["null_value"] for each in rows if each["measure"] == "lid" and each.get("null_value") is not None]
    most = f" Rows of an isotropic Gaussian have {number(min(null))} or more." if null else ""
    return (
        "Local intrinsic dimension of neighbourhoods of 100 rows: the standard estimate, and dotted the published "
        "convention, the arithmetic mean with squared distances (or 1 − cos), about half of it. The fewer rows "
        f"neighbours are looked for among, the farther away they lie. Bars: two standard errors.{most}"
    )


def _told_silhouettes(rows: Sequence[Row], least: float) -> str:
    found = [int(each["value"]) for each in rows if each["measure"] == "contextual.clusters" and each["value"]]
    counts = ", ".join(str(k) for k in found)
    sample = max(each["n"] for each in rows if each["measure"] == "contextual.silhouette")
    return (
        f"Euclidean silhouette of the clusters of k-means on {sample} rows; circles: the best k of each layer, filled "
        f"where it reaches {least:g} (dashed). Below, the layer counts as one cluster. Clusters by layer: {counts}."
    )


# --- pictures


def _shown(layers: Layers, seed: int) -> Shown:
    """The same words of every layer, in an order without meaning, so that none lies on top."""
    planes, chosen, first, count = [], None, None, 0
    for layer, read in layers.items():
        embeddings = read()
        if chosen is None:
            chosen = np.random.default_rng(seed).permutation(len(embeddings))[:FITTED]
            first, count = embeddings.take(chosen[:SHOWN]), len(chosen)
        rows = np.asarray(embeddings.vectors[chosen], dtype=np.float64)
        pca = PCA(3).fit(rows)
        total = (rows - rows.mean(0)).var(0, ddof=1).sum()
        first_share, second, third = (float(value / total) for value in pca.explained_variance_)
        title = "" if layer is None else f"layer {layer}"
        planes.append(Plane(title, pca.transform(rows[:SHOWN]), (first_share, second, third)))
    assert first is not None  # there is at least one layer, or one set without layers
    return Shown(planes, _kinds(first), _frequency(first), count)


def _kinds(rows: Embeddings) -> list[str] | None:
    if "token" not in rows.metadata:
        return None
    tags = rows.metadata.get("tag")
    words = [str(token) for token in rows.metadata["token"]]
    return kinds(words, None if tags is None else [str(tag) for tag in tags])


def _frequency(rows: Embeddings) -> NDArray[np.integer] | None:
    counts = rows.metadata.get("frequency")
    return None if counts is None else np.maximum(np.asarray(counts, dtype=np.int64), 1)


def _pictures(shown: Shown) -> dict[str, Drawing]:
    drawings: dict[str, Drawing] = {}
    for dimensions, name in ((2, "plane"), (3, "space")):
        what = f"{'two' if dimensions == 2 else 'three'} principal components"
        told = _told_picture(shown, what)
        if shown.frequency is not None:
            figure = frequency_figure(shown.planes, shown.frequency, dimensions=dimensions)
            title = f"Words on {what}, by frequency"
            drawings[f"contextual_{name}_frequency"] = (title, figure, told)
        if shown.kinds is not None:
            figure = kinds_figure(shown.planes, shown.kinds, dimensions=dimensions)
            drawings[f"contextual_{name}_kinds"] = (f"Words on {what}, by kind", figure, told)
    return drawings


def _told_picture(shown: Shown, what: str) -> str:
    drawn = len(shown.planes[0].points)
    of = "a layer's own" if shown.planes[0].title else "their own"
    some = f"{drawn} of {shown.count} words drawn at random" if drawn < shown.count else f"{drawn} words"
    return (
        f"{some[:1].upper()}{some[1:]} on {of} first {what} (centred), with their share of the variance; axes of "
        "panels have scales and signs of their own."
    )
