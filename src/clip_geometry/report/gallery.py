"""The four standard figures of one run: drawn, captioned with what they show, saved."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from clip_geometry.geometry import coordinate_std
from clip_geometry.geometry._core.rows import as_rows, mean_row
from clip_geometry.registry import InputError
from clip_geometry.report import figures
from clip_geometry.report.cosines import MAX_COSINES, sampled_cosines
from clip_geometry.report.numbers import fixed, percent
from clip_geometry.report.origin import pipeline_words, with_options
from clip_geometry.report.style import save_figure

RULING_SHARE = 0.25  # of the mean's squared length, from which on a caption points to one coordinate
STANDARD = ("singular_directions", "cosine_distributions", "singular_value_decay", "coordinate_spread")
ROUNDING = 1e-12  # of the root mean square row length; a shorter mean is what centring leaves

Rows = NDArray[np.floating]
Pairs = tuple[NDArray[np.integer], NDArray[np.integer]]


@dataclass(frozen=True)
class FigureEntry:
    """A saved figure, or one that could not be drawn: without paths, the reason as its caption.

    caption: what it shows, then n, model, pipeline and seed. group: a heading for a sweep. wide: it takes the width of
    two others.
    """

    name: str
    title: str
    caption: str
    svg_path: Path | None
    png_path: Path | None
    group: str = ""
    wide: bool = False


def draw_figures(
    image: Rows | None,
    text: Rows | None,
    pairs: Pairs | None,
    *,
    folder: str | Path,
    model: str,
    dataset: str,
    pipeline: Sequence[str],
    model_options: Mapping[str, Any] | None = None,
    data_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    gaussian: Rows | None = None,
    prefix: str = "",
    group: str = "",
    names: Sequence[str] = STANDARD,
) -> list[FigureEntry]:
    """Draws the standard figures of rows as they are after the pipeline, and saves them as PNG and SVG.

    image: (n, d), text: (m, d), n, m ≥ 2, either may be None. pairs: index arrays, or None where nothing pairs.
    gaussian: rows of an isotropic Gaussian after the same pipeline, to compare with. model, dataset, their options,
    pipeline, seed: for the captions. prefix: of the file names. names: those that are drawn. What these rows do not
    allow (cosines of zero rows, a common plane of sets of different dimension) is an entry without a file that says
    why.
    """
    sets = {name: rows for name, rows in (("image", image), ("text", text)) if rows is not None}
    sets = {name: as_rows(rows, name=name).numpy() for name, rows in sets.items()}
    counts = " and ".join(f"{len(rows)} {name}s" for name, rows in sets.items())
    data = f"{with_options(dataset, data_options)}, n = {counts}"
    origin = f"{with_options(model, model_options)}; {data}; pipeline {pipeline_words(pipeline)}; seed {seed}."
    kinds: dict[str, tuple[str, Callable[[], tuple[Figure, str]]]] = {
        "singular_directions": ("The two main directions", partial(_directions, sets, pairs, seed)),
        "cosine_distributions": ("Who is close to whom", partial(_cosines, sets, pairs, seed)),
        "singular_value_decay": ("How fast the singular values fall", partial(_decay, sets, gaussian)),
        "coordinate_spread": ("How unequal the coordinates are", partial(_spread, sets)),
    }
    entries = []
    for name in names:
        title, draw = kinds[name]
        try:
            figure, caption = draw()
        except InputError as error:
            entries.append(FigureEntry(prefix + name, title, f"Not drawn: {error}.", None, None, group))
            continue
        png, svg = save_figure(figure, folder, prefix + name)
        entries.append(FigureEntry(prefix + name, title, f"{caption} {origin}", svg, png, group))
    return entries


def _directions(sets: Mapping[str, Rows], pairs: Pairs | None, seed: int) -> tuple[Figure, str]:
    plane, shares = figures.singular_plane(*sets.values())
    who = "image and text rows" if len(sets) == 2 else f"{next(iter(sets))} rows"
    caption = (
        f"{_apart(sets, plane)}The {who} on the first two singular directions of all rows together (not centred), "
        f"which hold {percent(shares[0])} and {percent(shares[1])} of their squared length. Crosses mark the means."
    )
    if pairs is not None and len(sets) == 2:
        drawn = min(len(pairs[0]), figures.MAX_PAIRS)
        some = "" if drawn == len(pairs[0]) else f" of {len(pairs[0])}, chosen at random"
        caption += f" Lines join the two members of a pair ({drawn} pairs{some})."
    return figures.singular_directions(sets.get("image"), sets.get("text"), pairs, seed=seed), caption


def _apart(sets: Mapping[str, Rows], plane: NDArray[np.float64]) -> str:
    """The sentence that is true of complete separation along one direction, otherwise nothing."""
    if len(sets) < 2:
        return ""
    image, text = (sets[name] @ plane for name in ("image", "text"))
    for k, name in ((1, "second"), (0, "first")):
        if image[:, k].min() > text[:, k].max() or image[:, k].max() < text[:, k].min():
            return f"Along the {name} direction all images lie on one side of all texts. "
    return ""


def _decay(sets: Mapping[str, Rows], gaussian: Rows | None) -> tuple[Figure, str]:
    curves = {name: figures.relative_singular_values(rows, name=name) for name, rows in sets.items()}
    ratios = [f"{_lead(curve)} times the second for {name}s" for name, curve in curves.items() if len(curve) > 1]
    first = f"The largest singular value is {' and '.join(ratios)}. " if ratios else ""
    caption = f"{first}Singular values of the rows (not centred), relative to the largest."
    reference = None
    if gaussian is not None:
        reference = figures.relative_singular_values(gaussian, name="gaussian")
        n, d = gaussian.shape
        caption += f" Dotted: an isotropic Gaussian sample (n = {n}, d = {d}) through the same pipeline."
    return figures.singular_value_decay(curves.get("image"), curves.get("text"), gaussian=reference), caption


def _lead(curve: NDArray[np.float64]) -> str:
    """How many times the second singular value the first is."""
    return f"{1 / curve[1]:.1f}" if curve[1] > figures.FLOOR else f"over {_thousands(1 / figures.FLOOR)}"


def _cosines(sets: Mapping[str, Rows], pairs: Pairs | None, seed: int) -> tuple[Figure, str]:
    kept, sampled = sampled_cosines(sets, pairs, np.random.default_rng(seed))
    means = ", ".join(f"{name} {fixed(float(cosines.mean()), 2)}" for name, cosines in kept.items())
    caption = f"Mean cosines: {means}."
    if sampled:
        few = _thousands(MAX_COSINES)
        caption += f" Of each kind with more than {few} pairs, about {few} were drawn at random."
    if len({rows.shape[1] for rows in sets.values()}) > 1:
        caption += " Images and texts have different dimensions, so there are no cosines between them."
    names = ("matching pairs", "random image-text pairs", "two different images", "two different texts")
    return figures.cosine_distributions(*(kept.get(name) for name in names)), caption


def _thousands(count: float) -> str:
    return f"{count:,.0f}".replace(",", " ")


def _spread(sets: Mapping[str, Rows]) -> tuple[Figure, str]:
    std = {name: coordinate_std(rows).numpy() for name, rows in sets.items()}
    mean, parts = {}, []
    for name, rows in sets.items():
        values = mean_row(as_rows(rows)).numpy()
        square = float((values**2).sum())
        if square <= ROUNDING**2 * (square + float((std[name] ** 2).sum())):
            parts.append(f"the {name} mean is zero but for rounding")
            continue
        mean[name] = values
        top = int(np.abs(values).argmax())
        share = values[top] ** 2 / square
        alone = " alone" if share > RULING_SHARE else ""
        parts.append(f"coordinate {top}{alone} holds {percent(share)} of the {name} mean's squared length")
    first = " and ".join(parts)
    what = "Standard deviation and absolute mean" if mean else "Standard deviation"
    caption = f"{first[0].upper()}{first[1:]}. {what} of every coordinate, each sorted."
    figure = figures.coordinate_spread(
        std.get("image"), std.get("text"), image_mean=mean.get("image"), text_mean=mean.get("text")
    )
    return figure, caption
