"""Figures and sentences of several languages: all rows on the plane found by UMAP, and how near translations lie."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from clip_geometry.experiments.kit.languages import spoken
from clip_geometry.report.figures import MAX_VECTOR_POINTS
from clip_geometry.report.gallery import Drawing, FigureEntry, save_drawings
from clip_geometry.report.numbers import brief, plus_minus
from clip_geometry.report.style import (
    COLOURS,
    DASHED,
    MARKERS,
    NEUTRAL,
    error_dots,
    name_lines,
    new_axes,
    styled,
)
from clip_geometry.report.words import Words
from clip_geometry.results import Row

NEIGHBOURS, LEAST_DISTANCE = 15, 0.1  # of UMAP, its defaults
CLUSTERS = 0.1  # a silhouette above which languages are called clusters
FEW_ROWS = 20  # below which UMAP's spectral start is not possible or not worth it
MAX_ROWS = 12_000  # more take UMAP minutes

WORDS = Words(Path(__file__).with_name("words.j2"))

Rows = NDArray[np.floating]
Sets = Sequence[tuple[str, Rows]]  # (language, rows); a language may occur again


def draw_languages(
    sets: Sets,
    ratios: Mapping[str, Row],
    *,
    source: str,
    folder: str | Path,
    origin: str,
    seed: int = 0,
    prefix: str = "",
    group: str = "",
    names: Sequence[str] = ("map", "ratios"),
) -> list[FigureEntry]:
    """Draw and save figures of rows after the pipeline.

    Args:
        sets: (language, (n, d) rows) each, of one d, at least four rows together.
        ratios: Language → result row of language_distance's ratio to `source`.
        source: The language that the others are compared with.
        folder: Where the files go.
        origin: Model, data and pipeline, for the captions.
        seed: Of UMAP and of the rows that are drawn.
        prefix: Of the file names.
        group: Heading in the report.
        names: Of the figures: "map", "ratios".
    """
    drawn: dict[str, Drawing] = {}
    for name in names:
        if name == "map":
            kept = _sampled(sets, seed)
            by_count: dict[int, list[str]] = {}
            for language in dict.fromkeys(language for language, _ in kept):
                count = sum(len(rows) for other, rows in kept if other == language)
                by_count.setdefault(count, []).append(language)
            sizes = [sum(len(rows) for _, rows in each) for each in (kept, sets)]
            figure = languages_map(umap_plane(kept, seed=seed))
            caption = WORDS("plane", by_count, NEIGHBOURS, LEAST_DISTANCE, *sizes)
            drawn["languages_umap"] = Drawing("Languages on a plane", figure, caption)
        else:
            ranked = _ranked(ratios)
            ends = [f"{name} ({_with_error(ratios[name])})" for name in (ranked[0], ranked[-1])]
            figure, title = ratio_dots(ratios, source), f"How near translations lie to {source}"
            drawn["language_ratio"] = Drawing(title, figure, WORDS("ratio", source, *ends))
    return save_drawings(drawn, folder, origin=f"{origin}; seed {seed}.", prefix=prefix, group=group)


def _sampled(sets: Sets, seed: int) -> Sets:
    """The sets, or the same share of each, drawn at random, where there are more than MAX_ROWS rows."""
    total = sum(len(rows) for _, rows in sets)
    if total <= MAX_ROWS:
        return sets
    chosen = np.sort(np.random.default_rng(seed).choice(total, MAX_ROWS, replace=False))
    bounds = np.cumsum([0, *(len(rows) for _, rows in sets)])
    return [
        (language, rows[chosen[(start <= chosen) & (chosen < start + len(rows))] - start])
        for (language, rows), start in zip(sets, bounds[:-1], strict=True)
    ]


def _ranked(ratios: Mapping[str, Row]) -> list[str]:
    return sorted(ratios, key=lambda language: ratios[language]["value"])


def _with_error(row: Row) -> str:
    return plus_minus(row["value"], row["standard_error"])


def tell(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How far translations lie from each other, and whether languages form clusters: the sentences of one run."""
    ratios = {row["at"]["language"]: row for row in rows if row["measure"] == "language_distance.ratio"}
    silhouettes = [row["value"] for row in rows if row["measure"] == "language_silhouette"]
    said = []
    if ratios:
        source = spoken(next(iter(ratios.values()))["at"]["source"])
        said.append(WORDS("distances", source, [f"{brief(r['value'])} ({spoken(name)})" for name, r in ratios.items()]))
    if silhouettes:
        said.append(WORDS("silhouette", silhouettes[-1], silhouettes[-1] > CLUSTERS))
    return said


def umap_plane(sets: Sets, *, seed: int = 0) -> list[tuple[str, NDArray[np.float64]]]:
    """The same sets in two dimensions: one UMAP (McInnes et al. 2018) of all their rows, Euclidean, seeded."""
    rows = np.concatenate([part for _, part in sets])
    threads = torch.get_num_threads()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its dependencies, and that a seed means one thread
            from umap import UMAP

            plane = UMAP(
                n_neighbors=min(NEIGHBOURS, len(rows) - 1),
                min_dist=LEAST_DISTANCE,
                init="spectral" if len(rows) >= FEW_ROWS else "random",
                random_state=seed % 2**32,
                n_jobs=1,
            ).fit_transform(rows)
    finally:  # numba sets the number of threads of the OpenMP that torch shares with it, and does not set it back
        torch.set_num_threads(threads)
    parts = np.split(np.asarray(plane, np.float64), np.cumsum([len(part) for _, part in sets])[:-1])
    return [(language, part) for (language, _), part in zip(sets, parts, strict=True)]


@styled
def languages_map(points: Sequence[tuple[str, NDArray]]) -> Figure:
    """Points (n, 2) of each language in its color, in mixed order so that none lies on top. Axes have no unit."""
    figure, axes = new_axes()
    languages = list(dict.fromkeys(language for language, _ in points))
    at = np.concatenate([part for _, part in points])
    number = np.repeat([languages.index(language) for language, _ in points], [len(part) for _, part in points])
    order = np.random.default_rng(0).permutation(len(at))
    for k, marker in enumerate(MARKERS[: len(languages)]):
        chosen = order[number[order] % len(MARKERS) == k]
        axes.scatter(
            *at[chosen].T,
            s=5 if len(at) <= MAX_VECTOR_POINTS else 3,
            c=[COLOURS[n % len(COLOURS)] for n in number[chosen]],
            marker=marker,
            linewidths=0,
            alpha=0.75,
            gid=f"points:{marker}",
            rasterized=len(at) > MAX_VECTOR_POINTS,
        )
    axes.set(xticks=[], yticks=[], xlabel="UMAP 1", ylabel="UMAP 2")
    keys = [
        Line2D([], [], marker=MARKERS[n % len(MARKERS)], color=COLOURS[n % len(COLOURS)], markersize=4.5, ls="none",
               label=language)
        for n, language in enumerate(languages)
    ]  # fmt: skip
    figure.legend(handles=keys, loc="outside right upper", handlelength=1)
    return figure


@styled
def ratio_dots(ratios: Mapping[str, Row], source: str) -> Figure:
    """A dot for each language at its ratio to `source`, with its standard error, nearest on top; dashed: 1.

    Colors and markers are those of `languages_map` where `source` comes first in it.
    """
    figure, axes = new_axes(0.65 + 0.2 * len(ratios))
    ranked = _ranked(ratios)
    axes.axvline(1, color=NEUTRAL, linewidth=1, linestyle=DASHED, gid="chance")
    numbers = {language: number for number, language in enumerate(ratios, start=1)}  # 0 is the source
    for place, language in enumerate(ranked):
        row, number = ratios[language], numbers[language]
        style: Any = {"marker": MARKERS[number % len(MARKERS)], "color": COLOURS[number % len(COLOURS)]}
        error_dots(axes, [row], [place], gid=f"ratio:{language}", **style)
        axes.annotate(
            _with_error(row),
            (1, place),
            (4, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    name_lines(axes, ranked)
    farthest = max(row["value"] + (row["standard_error"] or 0) for row in ratios.values())
    axes.set_xlim(0, max(1.05, 1.03 * farthest))
    axes.set_xlabel(f"distance to its {source} caption / to other {source} captions")
    return figure
