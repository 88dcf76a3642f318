"""Figures as entries of the report, and the standard figures of one run with their captions."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from clip_geometry.display.numbers import fixed, percent
from clip_geometry.display.origin import Row, pipeline_words, with_options
from clip_geometry.display.style import WIDTH, styled
from clip_geometry.files import write_atomically
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import as_rows
from clip_geometry_experiments.report import figures
from clip_geometry_experiments.report.figures import Pairs, Rows

STANDARD = ("singular_directions", "cosine_distributions")
MOST_PANELS = 4  # panels that the alternative text describes one by one


@dataclass(frozen=True)
class FigureEntry:
    """A saved figure, or one that could not be drawn; the latter has no paths, and its caption says why.

    Args:
        name: The name of its files, without the extension.
        title: Heading of the figure.
        caption: What the figure shows, then n, model, pipeline and seed.
        svg_path: The vector file; None if the figure was not drawn.
        png_path: The bitmap; None if the figure was not drawn.
        group: A heading for the figures of one run of a sweep.
        wide: Whether it is as wide as two other figures.
        alternative: The axes and series in words, as alternative text.
    """

    name: str
    title: str
    caption: str
    svg_path: Path | None
    png_path: Path | None
    group: str = ""
    wide: bool = False
    alternative: str = ""


class Drawing(NamedTuple):
    """A figure that is not saved yet.

    Attributes:
        title: Heading of the figure.
        figure: The figure; None if it could not be drawn.
        caption: What the figure shows, or why it could not be drawn.
        wide: Whether it is as wide as two other figures on the page.
    """

    title: str
    figure: Figure | None
    caption: str
    wide: bool = False


@styled
def save_figure(figure: Figure, folder: str | Path, name: str) -> tuple[Path, Path]:
    """Write folder/name.png and folder/name.svg, each atomically.

    The bytes depend only on the figure (no date, no random ids). The folder is created if it is missing. Both files
    have a white background, for papers; a dark page shows them on a light card.

    Args:
        figure: The figure.
        folder: Folder of the files.
        name: Name of the files, without the extension.

    Returns:
        The paths of the PNG and of the SVG.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    for path, metadata in ((png, {}), (svg, {"Date": None})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=path.suffix[1:], metadata=metadata)
        write_atomically(path, buffer.getvalue())
    return png, svg


def save_drawings(
    drawings: Mapping[str, Drawing], folder: str | Path, *, origin: str = "", prefix: str = "", group: str = ""
) -> list[FigureEntry]:
    """Save figures as PNG and SVG.

    Args:
        drawings: File name → drawing.
        folder: Folder of the files.
        origin: Data, model and seed, as the last sentence of every caption.
        prefix: Prefix of the file names.
        group: Heading of the figures in the report of a sweep.
    """
    entries = []
    for name, (title, figure, caption, wide) in drawings.items():
        if figure is None:
            entries.append(FigureEntry(prefix + name, title, caption, None, None, group))
            continue
        wide = wide or figure.get_figwidth() > 1.5 * WIDTH  # otherwise its text would shrink with it
        png, svg = save_figure(figure, folder, prefix + name)
        caption = f"{caption} {origin}" if origin else caption
        entries.append(FigureEntry(prefix + name, title, caption, svg, png, group, wide, in_words(figure)))
    return entries


def in_words(figure: Figure) -> str:
    """Return the axes and series of the first panels, for readers who cannot see the figure."""

    def joined(separator: str, *texts: str) -> str:
        return separator.join(filter(None, texts))

    panels = [axes for axes in figure.axes if axes.has_data() and axes.get_label() != "<colorbar>"]
    texts = []
    for axes in panels[:MOST_PANELS]:
        y, x = (" ".join(label.replace("$", "").split()) for label in (axes.get_ylabel(), axes.get_xlabel()))
        names = [*dict.fromkeys(" ".join(label.split()) for label in axes.get_legend_handles_labels()[1])]
        series = names[:8] + ([f"{len(names) - 8} more"] if len(names) > 8 else [])
        title = " ".join((axes.get_title("left") or axes.get_title()).split())
        texts.append(joined(": ", title, joined("; ", joined(" against ", y, x), ", ".join(series))))
    more = len(panels) - MOST_PANELS
    return joined(". ", *texts, f"{more} more panels" if more > 0 else "")


def draw_figures(
    image: Rows | None, text: Rows | None, pairs: Pairs | None, about: Row, names: Sequence[str] = STANDARD
) -> dict[str, Drawing]:
    """Draw the standard figures of rows after the pipeline.

    If a figure cannot be drawn from these rows (cosines of zero rows, a common plane of sets of different dimension),
    its caption says why.

    Args:
        image: (n, d), n ≥ 2, or None.
        text: (m, d), m ≥ 2, or None.
        pairs: Index arrays (i, j), or None if nothing is paired.
        about: Fields of result rows: model, dataset, their options, pipeline and seed. The seed is that of samples.
        names: Names of the figures to draw.

    Returns:
        Name → drawing; empty if there are neither images nor texts.
    """
    sets = {name: rows for name, rows in (("image", image), ("text", text)) if rows is not None}
    sets = {name: as_rows(rows, name=name).numpy() for name, rows in sets.items()}
    if not sets:
        return {}
    counts = " and ".join(f"{len(rows)} {name}s" for name, rows in sets.items())
    data = f"{with_options(about['dataset'], about.get('data_options'))}, n = {counts}"
    model = with_options(about["model"] or "", about.get("model_options"))
    seed = about.get("seed", 0)
    origin = f"{model}; {data}; pipeline {pipeline_words(about['pipeline'])}; seed {seed}."
    kinds: dict[str, tuple[str, Callable[[], tuple[Figure, str]]]] = {
        "singular_directions": ("The two main directions", partial(_directions, sets, pairs, seed)),
        "cosine_distributions": ("Cosines by kind of pair", partial(_cosines, sets, pairs, seed)),
    }
    drawn = {}
    for name in names:
        title, draw = kinds[name]
        try:
            figure, caption = draw()
            drawn[name] = Drawing(title, figure, f"{caption} {origin}", wide=name == "singular_directions")
        except InputError as error:
            drawn[name] = Drawing(title, None, f"Not drawn: {error}.")
    return drawn


def _directions(sets: Mapping[str, Rows], pairs: Pairs | None, seed: int) -> tuple[Figure, str]:
    """Draw the rows on their first two singular directions, and return the figure with its caption."""
    plane, shares = figures.singular_plane(*sets.values())
    separated = lines = ""
    if len(sets) == 2:
        image, text = (sets[name] @ plane for name in ("image", "text"))
        for k, name in enumerate(("first", "second")):  # name the last direction that separates them completely
            if image[:, k].min() > text[:, k].max() or image[:, k].max() < text[:, k].min():
                separated = f"Along the {name} direction all images lie on one side of all texts. "
        if pairs is not None:
            count = len(pairs[0])
            more = f" of {count}, chosen at random" if count > figures.MAX_PAIRS else ""
            lines = f" Lines connect the two members of a pair ({min(count, figures.MAX_PAIRS)} pairs{more})."
    every = " of all rows together" if len(sets) > 1 else ""
    caption = (
        f"{separated}The {' and '.join(sets)} rows on the first two singular directions of all rows together (not "
        f"centered), which hold {percent(shares[0])} and {percent(shares[1])} of their squared length. Crosses mark "
        f"the means.{lines} Beside the plane: all singular values{every}, relative to the largest."
    )
    return figures.singular_directions(sets, pairs, seed=seed), caption


def _cosines(sets: Mapping[str, Rows], pairs: Pairs | None, seed: int) -> tuple[Figure, str]:
    """Draw the distributions of cosines within and between the sets, and return the figure with its caption."""
    by_kind, sampled = figures.sampled_cosines(sets, pairs, np.random.default_rng(seed))
    means = ", ".join(f"{name} {fixed(float(cosines.mean()), 2)}" for name, cosines in by_kind.items())
    caption = f"Mean cosines: {means}."
    if sampled:
        few = f"{figures.MAX_COSINES:,}"
        caption += f" Of each kind with more than {few} pairs, about {few} were drawn at random."
    if len({rows.shape[1] for rows in sets.values()}) > 1:
        caption += " Images and texts have different dimensions, so there are no cosines between them."
    return figures.cosine_distributions(by_kind), caption
