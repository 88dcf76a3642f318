"""Figures and sentences about several languages: UMAP planes of pairs, and how close translations lie."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from clip_geometry.display.numbers import brief, plus_minus
from clip_geometry.display.style import COLORS, DASHED, HEIGHT, NEUTRAL, WIDTH, error_dots, name_lines, styled
from clip_geometry.display.words import Words
from clip_geometry.results import Row
from clip_geometry_experiments.kit.figures import MARKERS
from clip_geometry_experiments.kit.languages import spoken
from clip_geometry_experiments.kit.significance import differ
from clip_geometry_experiments.report.figures import MAX_VECTOR_POINTS, Drawing, Rows, new_axes

NEIGHBORS, LEAST_DISTANCE = 15, 0.1  # the defaults of UMAP
CLUSTERS = 0.1  # a silhouette above this counts as clusters
COLUMNS = 3  # columns of panels, as in the paper

WORDS = Words(Path(__file__).with_name("words.j2"))

Sets = Sequence[tuple[str, Rows]]  # (language, rows)


def draw_map(pairs: Mapping[str, tuple[Rows, Rows]], source: str, seed: int = 0) -> Drawing:
    """Draw each pair of languages on its own plane.

    Args:
        pairs: Mapping from language to aligned rows (n, d) of `source` and of that language, n ≥ 2.
        source: The language that the others are compared with.
        seed: Seed of UMAP.
    """
    planes = [umap_plane([(source, x), (language, y)], seed=seed) for language, (x, y) in pairs.items()]
    caption = WORDS("plane", source, NEIGHBORS, LEAST_DISTANCE)
    return Drawing("Pairs of languages, each on a plane", languages_map(planes), caption, wide=len(pairs) > 1)


def draw_ratios(ratios: Mapping[str, Row], source: str) -> Drawing:
    """Draw how close each language lies to `source`.

    `ratios` maps a language to its result row of `language_distance.ratio`.
    """
    title = f"How near translations lie to {source}"
    return Drawing(title, ratio_dots(ratios, source), WORDS("ratio", source))


def _ranked(ratios: Mapping[str, Row]) -> list[tuple[str, Row]]:
    return sorted(ratios.items(), key=lambda ratio: ratio[1]["value"])


def tell(rows: Sequence[Mapping[str, Any]], label: str = "") -> list[str]:
    """Return the sentences of one run, preceded by its label if there are several runs.

    They say how far translations lie from each other, whether languages form clusters, and how accurate the prompts of
    each language are.
    """
    ratios = {row["at"]["language"]: row for row in rows if row["measure"] == "language_distance.ratio"}
    source = spoken(next(iter(ratios.values()))["at"]["source"])
    distances = [f"{_value_words(row)} ({spoken(name)})" for name, row in ratios.items()]
    one = {"value": 1.0, "standard_error": 0.0}
    apart = [spoken(name) for name, row in ratios.items() if row["value"] > 1 or not differ(row, one)]
    last = [row for row in rows if row["measure"] == "language_silhouette"][-1]
    sentences = [
        WORDS("distances", source, distances, apart, label),
        WORDS("silhouette", _value_words(last), last["value"] > CLUSTERS, label),
    ]
    accuracies = [row for row in rows if row["measure"] == "zero_shot.top_1"]
    for kind in dict.fromkeys(row["at"]["classes"] for row in accuracies):
        of_kind = [row for row in accuracies if row["at"]["classes"] == kind]
        shares = [f"{_value_words(row)} ({spoken(row['at']['language'])})" for row in of_kind]
        sentences.append(WORDS("accuracy", shares, of_kind[0], kind))
    return sentences


def _value_words(row: Mapping[str, Any]) -> str:
    error = row.get("standard_error")
    return plus_minus(row["value"], error) if error else brief(row["value"])


def umap_plane(sets: Sets, *, seed: int = 0) -> list[tuple[str, NDArray[np.float64]]]:
    """Map the sets to two dimensions with one Euclidean, seeded UMAP (McInnes et al. 2018) of all their rows."""
    rows = np.concatenate([part for _, part in sets])
    threads = torch.get_num_threads()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its dependencies warn, and a seed limits it to one thread
            from umap import UMAP

            plane = UMAP(
                n_neighbors=min(NEIGHBORS, len(rows) - 1), min_dist=LEAST_DISTANCE, random_state=seed % 2**32, n_jobs=1
            ).fit_transform(rows)
    finally:  # numba changes the thread count of the OpenMP runtime that it shares with torch, and leaves it changed
        torch.set_num_threads(threads)
    parts = np.split(np.asarray(plane, np.float64), np.cumsum([len(part) for _, part in sets])[:-1])
    return [(language, part) for (language, _), part in zip(sets, parts, strict=True)]


@styled
def languages_map(planes: Sequence[Sequence[tuple[str, NDArray]]]) -> Figure:
    """Draw one panel per plane with the points (n, 2) of its languages, in random order so that none lies on top.

    A language has the same color and marker in all panels. The axes have no unit.
    """
    languages = list(dict.fromkeys(language for plane in planes for language, _ in plane))
    columns = min(COLUMNS, len(planes))
    lines = -(-len(planes) // columns)
    figure = Figure(figsize=(WIDTH * min(columns, 2), 0.2 + HEIGHT * (lines if columns < 3 else 0.75 * lines)))
    figure.set_layout_engine("constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, plane in zip(grid, planes, strict=False):
        points = np.concatenate([part for _, part in plane])
        language_of_point = np.repeat(
            [languages.index(language) for language, _ in plane], [len(part) for _, part in plane]
        )
        order = np.random.default_rng(0).permutation(len(points))
        for k in sorted({n % len(MARKERS) for n in language_of_point}):
            chosen = order[language_of_point[order] % len(MARKERS) == k]
            marker = MARKERS[k]
            axes.scatter(
                *points[chosen].T,
                s=5 if len(points) <= MAX_VECTOR_POINTS else 3,
                c=[COLORS[n % len(COLORS)] for n in language_of_point[chosen]],
                marker=marker,
                linewidths=0,
                alpha=0.75,
                gid=f"points:{marker}",
                rasterized=len(points) > MAX_VECTOR_POINTS,
            )
        axes.set_title("–".join(spoken(language) for language, _ in reversed(plane)), loc="left")
        axes.set(xticks=[], yticks=[], xlabel="UMAP 1", ylabel="UMAP 2")
    for axes in grid[len(planes) :]:
        axes.set_axis_off()
    legend = [
        Line2D([], [], marker=MARKERS[n % len(MARKERS)], color=COLORS[n % len(COLORS)], markersize=4.5, ls="none",
               label=language)
        for n, language in enumerate(languages)
    ]  # fmt: skip
    figure.legend(handles=legend, loc="outside right upper", handlelength=1)
    return figure


@styled
def ratio_dots(ratios: Mapping[str, Row], source: str) -> Figure:
    """Draw each language's ratio to `source` with its standard error, nearest on top; a dashed line marks 1.

    Colors and markers match `languages_map` if `source` comes first there.
    """
    figure, axes = new_axes(0.65 + 0.2 * len(ratios))
    axes.axvline(1, color=NEUTRAL, linewidth=1, linestyle=DASHED, gid="chance")
    numbers = {language: number for number, language in enumerate(ratios, start=1)}  # 0 is the source
    for place, (language, row) in enumerate(_ranked(ratios)):
        number = numbers[language]
        style: Any = {"marker": MARKERS[number % len(MARKERS)], "color": COLORS[number % len(COLORS)]}
        error_dots(axes, [row], [place], gid=f"ratio:{language}", **style)
        axes.annotate(
            _value_words(row),
            (1, place),
            (4, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    name_lines(axes, [language for language, _ in _ranked(ratios)])
    farthest = max(row["value"] + (row["standard_error"] or 0) for row in ratios.values())
    axes.set_xlim(0, max(1.05, 1.03 * farthest))
    axes.set_xlabel(f"distance to its {source} caption / to other {source} captions")
    return figure
