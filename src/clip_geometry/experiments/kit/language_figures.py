"""Pictures of several languages: all rows on the plane that UMAP finds, and how near translations lie."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from clip_geometry.report.figures import MAX_VECTOR_POINTS
from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.numbers import brief, plus_minus
from clip_geometry.report.style import HEIGHT, NEUTRAL, WIDTH, save_figure, styled

# Petroff 2021, arXiv:2107.02270: ten colours chosen to be told apart with colour vision deficiencies; black before
COLOURS = (
    "#24292F", "#3F90DA", "#FFA90E", "#BD1F01", "#832DB6", "#92DADD", "#A96B59", "#E76300", "#94A4A2", "#B9AC70",
    "#717581",
)  # fmt: skip
MARKERS = ("o", "^", "s", "D")  # a second sign beside the colour; together they tell 44 languages apart
NEIGHBOURS, LEAST_DISTANCE = 15, 0.1  # of UMAP, its defaults
SPOKEN = {"en": "English", "de": "German", "fr": "French", "ru": "Russian"}
CLUSTERS = 0.1  # a silhouette from which on languages are called clusters
FEW_ROWS = 20  # below which UMAP's spectral start is not possible or not worth it
MAX_ROWS = 12_000  # more take UMAP minutes

Rows = NDArray[np.floating]
Sets = Sequence[tuple[str, Rows]]  # (language, rows); a language may occur again


def draw_languages(
    sets: Sets,
    ratios: Mapping[str, tuple[float, float | None]],
    *,
    source: str,
    folder: str | Path,
    origin: str,
    seed: int = 0,
    prefix: str = "",
    group: str = "",
    pictures: Sequence[str] = ("map", "ratios"),
) -> list[FigureEntry]:
    """Draws these pictures of rows as they are after the pipeline, and saves them as PNG and SVG.

    sets: (language, (n, d) rows) each, of one d, at least four rows together. ratios: language → language_distance's
    ratio to `source` and its standard error. origin: model, data and pipeline in words. prefix: of the file names.
    """
    where = f"{origin}; seed {seed}."
    kept = _thinned(sets, seed)
    counts = {language: sum(len(rows) for other, rows in kept if other == language) for language, _ in kept}
    some = "" if kept is sets else f", {MAX_ROWS} of {sum(len(rows) for _, rows in sets)} rows, drawn at random"
    caption = (
        f"The rows of {len(counts)} languages together on the plane that UMAP finds ({NEIGHBOURS} neighbours, least "
        f"distance {LEAST_DISTANCE}, Euclidean). It keeps neighbours together; sizes of clusters and distances between "
        f"them mean little. n = {_listing(counts)}{some}; {where}"
    )
    drawn: dict[str, tuple[str, str, Callable[[], Figure], str]] = {
        "map": (
            "languages_umap",
            "Languages on a plane",
            lambda: languages_map(umap_plane(kept, seed=seed)),
            caption,
        ),
        "ratios": (
            "language_ratio",
            f"How near translations lie to {source}",
            lambda: ratio_dots(ratios, source),
            f"{_told(ratios, source)} {where}",
        ),
    }
    entries = []
    for name, title, draw, words in (drawn[picture] for picture in pictures):
        png, svg = save_figure(draw(), folder, prefix + name)
        entries.append(FigureEntry(prefix + name, title, words, svg, png, group))
    return entries


def _thinned(sets: Sets, seed: int) -> Sets:
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


def _listing(counts: Mapping[str, int]) -> str:
    """`200 en, de, fr and 100 ru captions`."""
    by_count: dict[int, list[str]] = {}
    for language, count in counts.items():
        by_count.setdefault(count, []).append(language)
    each = "each of " if len(by_count) == 1 else ""
    return " and ".join(f"{count} {each}{', '.join(languages)}" for count, languages in by_count.items())


def _told(ratios: Mapping[str, tuple[float, float | None]], source: str) -> str:
    """What the second figure says."""
    ranked = _ranked(ratios)
    nearest, farthest = (f"{language} ({plus_minus(*ratios[language])})" for language in (ranked[0], ranked[-1]))
    lead = f"Nearest to {source} is {nearest}, farthest {farthest}. " if len(ratios) > 1 else ""
    return (
        f"{lead}Mean distance of a caption to its {source} original over the mean distance to all other {source} "
        "captions: 0 where they coincide, 1 (dashed) where a translation is no nearer than any other caption. Bars: "
        "one standard error by the jackknife, where it is known."
    )


def _ranked(ratios: Mapping[str, tuple[float, float | None]]) -> list[str]:
    return sorted(ratios, key=lambda language: ratios[language][0])


def tell(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How far translations lie from each other, and whether a row tells its language: of one run."""
    ratios = {row["at"]["language"]: row for row in rows if row["measure"] == "language_distance.ratio"}
    silhouette = [row for row in rows if row["measure"] == "language_silhouette"]
    told = []
    if ratios:
        source = next(iter(ratios.values()))["at"]["source"]
        first, *others = [f"{spoken(name)} caption lies at {brief(row['value'])}" for name, row in ratios.items()]
        others = [other.replace(" caption lies", " one") for other in others]
        rest = "".join(f", a {other}" for other in others)
        told.append(
            f"From its {spoken(source)} original a {first}{rest} of the distance that {spoken(source)} captions of "
            "other pictures have: at 0 it lies in the same place, at 1 no nearer than any other."
        )
    if silhouette:
        least = silhouette[-1]
        verdict = (
            "languages lie apart" if least["value"] > CLUSTERS else "where a caption lies does not tell its language"
        )
        told.append(f"With the language as label the silhouette is {brief(least['value'])}: {verdict}.")
    return told


def spoken(language: str) -> str:
    """English; of a language that is not among SPOKEN its code."""
    return SPOKEN.get(language, language)


def umap_plane(sets: Sets, *, seed: int = 0) -> list[tuple[str, NDArray[np.float64]]]:
    """The same sets in two dimensions: one UMAP (McInnes et al. 2018) of all their rows, Euclidean, seeded."""
    rows = np.concatenate([part for _, part in sets])
    with warnings.catch_warnings(), _torch_threads_kept():
        warnings.simplefilter("ignore")  # of its dependencies, and that a seed means one thread
        from umap import UMAP

        plane = UMAP(
            n_neighbors=min(NEIGHBOURS, len(rows) - 1),
            min_dist=LEAST_DISTANCE,
            init="spectral" if len(rows) >= FEW_ROWS else "random",
            random_state=seed % 2**32,
            n_jobs=1,
        ).fit_transform(rows)
    parts = np.split(np.asarray(plane, np.float64), np.cumsum([len(part) for _, part in sets])[:-1])
    return [(language, part) for (language, _), part in zip(sets, parts, strict=True)]


@contextmanager
def _torch_threads_kept() -> Iterator[None]:
    """numba sets the number of threads of the OpenMP that torch shares with it, and does not set it back."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@styled
def languages_map(points: Sequence[tuple[str, NDArray]]) -> Figure:
    """Points (n, 2) of each language in its colour, in mixed order so that none lies on top. Axes have no unit."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    languages = list(dict.fromkeys(language for language, _ in points))
    at = np.concatenate([part for _, part in points])
    number = np.repeat([languages.index(language) for language, _ in points], [len(part) for _, part in points])
    order = np.random.default_rng(0).permutation(len(at))
    for k, marker in enumerate(MARKERS[: len(languages)]):
        chosen = order[number[order] % len(MARKERS) == k]
        axes.scatter(
            *at[chosen].T,
            s=5 if len(at) <= MAX_VECTOR_POINTS else 3,
            c=[_colour(n) for n in number[chosen]],
            marker=marker,
            linewidths=0,
            alpha=0.75,
            gid=f"points:{marker}",
            rasterized=len(at) > MAX_VECTOR_POINTS,
        )
    axes.set(xticks=[], yticks=[], xlabel="UMAP 1", ylabel="UMAP 2")
    keys = [
        Line2D([], [], marker=_marker(n), color=_colour(n), markersize=4.5, ls="none", label=language)
        for n, language in enumerate(languages)
    ]
    figure.legend(handles=keys, loc="outside right upper", handlelength=1)
    return figure


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _marker(number: int) -> str:
    return MARKERS[number % len(MARKERS)]


@styled
def ratio_dots(ratios: Mapping[str, tuple[float, float | None]], source: str) -> Figure:
    """A dot for each language at its ratio to `source`, with its standard error, nearest on top; dashed: 1.

    Colours and signs are those of `languages_map` where `source` comes first in it.
    """
    figure = Figure(figsize=(WIDTH, 0.65 + 0.2 * len(ratios)), layout="constrained")
    axes = figure.add_subplot()
    numbers = {language: n for n, language in enumerate((source, *ratios))}
    ranked = _ranked(ratios)
    axes.axvline(1, color=NEUTRAL, linewidth=1, linestyle=(0, (3, 2)), gid="chance")
    for place, language in enumerate(ranked):
        value, error = ratios[language]
        axes.errorbar(
            value,
            place,
            xerr=error,
            fmt=_marker(numbers[language]),
            markersize=4,
            color=_colour(numbers[language]),
            elinewidth=1,
            gid=f"ratio:{language}",
        )
        axes.annotate(
            plus_minus(value, error),
            (1, place),
            (4, 0),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    axes.set(yticks=range(len(ranked)), yticklabels=ranked, ylim=(len(ranked) - 0.4, -0.6))
    axes.set_xlim(0, max(1.05, 1.03 * max(value + (error or 0) for value, error in ratios.values())))
    axes.set_xlabel(f"distance to its {source} caption / to other {source} captions")
    return figure
