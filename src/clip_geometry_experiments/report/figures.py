"""The standard figures, and figures as entries of the report. Rows are drawn as given, after any pipeline."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from clip_geometry.display.numbers import fixed, percent
from clip_geometry.display.origin import Row, pipeline_words, with_options
from clip_geometry.display.style import COLOR, HEIGHT, INK, MARKER, NEUTRAL, WIDTH, styled
from clip_geometry.files import write_atomically
from clip_geometry.geometry import singular_values
from clip_geometry.geometry.statistics.moments import Moments
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import as_rows, mean_row, unit_rows

MAX_COSINES = 300_000  # per kind of pairs; beyond this, pairs are sampled
MAX_PAIRS = 300  # lines drawn between pairs
MAX_VECTOR_POINTS = 600  # beyond this, points become a bitmap inside the SVG to keep it small
BINS = 60  # in densities
KINDS = {  # kind of pairs → color and label of their cosines
    "matching pairs": ("matching", "matching pairs"),
    "random image-text pairs": ("random", "random pairs"),
    "two different images": ("image", "two images"),
    "two different texts": ("text", "two texts"),
}

Rows = NDArray[np.floating]
Pairs = tuple[NDArray[np.integer], NDArray[np.integer]]
Cosines = NDArray[np.float64]


def new_axes(height: float = HEIGHT) -> tuple[Figure, Axes]:
    """Return an empty figure with one panel, as wide as one column and `height` inches high."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def legend_above(figure: Figure, axes: Axes, *, columns: int = 4) -> None:
    """Put the legend above the panel, where it cannot cover data.

    Args:
        figure: The figure.
        axes: The axes whose labels are in the legend.
        columns: Largest number of columns of the legend.
    """
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=min(columns, len(labels)))


def singular_plane(*sets: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the first two right singular vectors of the stacked, uncentered rows, with a convention for their signs.

    The stacked rows have a positive sum along the first direction. The mean of the first set lies above that of the
    second set along the second direction. If such a value is 0, as after centering, the rule of the other direction
    applies.

    Args:
        sets: (n, d) rows each, all with the same d ≥ 2 and with n ≥ 2.

    Returns:
        The directions (d, 2), and their shares (2,) of Σ‖w‖².

    Raises:
        InputError: If d < 2, the sets differ in d, or a set has fewer than two rows.
    """
    widths = {rows.shape[1] for rows in sets}
    if len(widths) > 1 or min(widths) < 2:
        raise InputError(
            f"rows have {' and '.join(map(str, sorted(widths)))} columns; expected a common number of at least two for "
            "singular directions"
        )
    means = [mean_row(as_rows(rows)).numpy() for rows in sets]
    # rowsᵀ rows: its leading eigenvectors are accurate to all digits, unlike its small eigenvalues
    products = [
        Moments.of(rows).M2.numpy() + len(rows) * np.outer(mean, mean) for rows, mean in zip(sets, means, strict=True)
    ]
    values, vectors = np.linalg.eigh(np.sum(products, axis=0))
    plane = vectors[:, [-1, -2]]
    values = np.clip(values, 0, None)
    shares = values[[-1, -2]] / max(values.sum(), np.finfo(float).tiny)
    sizes = [len(rows) for rows in sets]
    together = np.average(means, axis=0, weights=sizes) @ plane
    apart = (means[0] - means[1]) @ plane if len(means) > 1 else together
    signs = np.sign(plane[np.abs(plane).argmax(axis=0), [0, 1]])  # sign of the largest entry, if neither rule applies
    least = 1e-9 * np.sqrt(values.sum() / sum(sizes))  # relative to the root mean square of the rows
    for rule in ((apart[0], together[1]), (together[0], apart[1])):  # the last rule takes precedence
        signs = np.where(np.abs(rule) > least, np.sign(rule), signs)
    return plane * signs, shares


@styled
def singular_directions(sets: Mapping[str, Rows], pairs: Pairs | None = None, *, seed: int = 0) -> Figure:
    """Draw rows on the first two right singular vectors of the stacked, uncentered rows, beside the spectrum.

    Crosses mark the means, and a plus marks the origin. The spectrum shows the singular values of the stacked rows,
    divided by the largest, on a linear axis.

    Args:
        sets: "image" and/or "text" → (n, d).
        pairs: Index arrays (i, j). Thin lines connect the pairs, at most MAX_PAIRS of them.
        seed: Seed of the choice of pairs.

    Raises:
        InputError: If all rows are zero.
    """
    plane, _ = singular_plane(*sets.values())
    values = singular_values(np.concatenate(list(sets.values())))
    if values[0] == 0:
        raise InputError(f"all rows of {' and '.join(sets)} are zero, so they have no singular directions")
    points_of = {name: rows @ plane for name, rows in sets.items()}
    figure = Figure(figsize=(2 * WIDTH, HEIGHT), layout="constrained")
    axes, spectrum = figure.subplots(1, 2, width_ratios=(1.4, 1))
    if pairs is not None and len(points_of) == 2:
        i, j = pairs
        if len(i) > MAX_PAIRS:
            chosen = np.sort(np.random.default_rng(seed).choice(len(i), MAX_PAIRS, replace=False))
            i, j = i[chosen], j[chosen]
        segments = np.stack([points_of["image"][i], points_of["text"][j]], axis=1)
        lines = LineCollection(list(segments), colors=NEUTRAL, linewidths=0.3, alpha=0.28, zorder=1)
        lines.set(gid="pairs", label="pair", rasterized=True)
        axes.add_collection(lines)
    size = 9 if max(map(len, points_of.values())) <= MAX_VECTOR_POINTS else 3
    for name, points in points_of.items():
        style = {"c": COLOR[name], "marker": MARKER[name], "rasterized": len(points) > MAX_VECTOR_POINTS}
        axes.scatter(*points.T, s=size, linewidths=0, alpha=0.55, label=name, gid=f"points:{name}", **style)
    for name, points in points_of.items():
        mean = points.mean(axis=0)[:, None]
        style = {"color": COLOR[name], "markersize": 9, "markeredgecolor": "white", "markeredgewidth": 1.1}
        axes.plot(*mean, marker="X", linestyle="none", label="_", gid=f"mean:{name}", zorder=4, **style)
    axes.plot(0, 0, "+", color=INK, markersize=7, markeredgewidth=1, label="origin", gid="origin")
    axes.set(xlabel="first singular direction", ylabel="second singular direction")
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.08)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.plot([], [], marker="X", color=NEUTRAL, markersize=6, linestyle="none", label="mean")  # one key for both
    color = COLOR[next(iter(sets))] if len(sets) == 1 else INK
    style = {"color": color, "linestyle": "-", "marker": "." if len(values) <= 20 else None, "gid": "spectrum"}
    spectrum.plot(np.arange(1, len(values) + 1), values / values[0], **style)
    spectrum.set(xlabel="index of the singular value", ylabel="singular value / largest", ylim=(-0.1, 1.1))
    legend_above(figure, axes, columns=5)
    for handle in figure.legends[0].legend_handles:  # small and pale in the panel, but not in the legend
        if isinstance(handle, PathCollection):
            handle.set(alpha=1, sizes=[18])
        elif isinstance(handle, Line2D):
            handle.set(alpha=1, linewidth=1)
    return figure


@styled
def cosine_distributions(cosines: Mapping[str, Cosines]) -> Figure:
    """Draw densities of cosines: of matching and random image-text pairs, and of pairs within each modality.

    Dashed lines mark the means.

    Args:
        cosines: Key of KINDS → (n,) cosines, at least one.
    """
    figure, axes = new_axes()
    low, high = (float(end([end(values) for values in cosines.values()])) for end in (np.min, np.max))
    room = 0.02 * (high - low) or 0.01  # if all cosines are equal, there is still a bin to draw
    edges = np.linspace(low - room, high + room, BINS + 1)
    for kind, (key, label) in KINDS.items():
        if kind not in cosines:
            continue
        values = cosines[kind]
        density, _ = np.histogram(values, edges, density=True)
        mean = float(values.mean(dtype=np.float64))
        color = COLOR[key]
        axes.stairs(density, edges, fill=True, alpha=0.3, color=color)
        label = f"{label}, mean {fixed(mean, 2)}"
        axes.stairs(density, edges, linewidth=1.1, color=color, label=label, gid=f"density:{key}")
        axes.axvline(mean, color=color, linewidth=1, linestyle=(0, (3, 2)), gid=f"mean:{key}")
    axes.set(xlabel="cosine similarity", ylabel="density")
    axes.set_ylim(bottom=0)
    legend_above(figure, axes, columns=2)
    return figure


# --- cosines by kind of pairs


def sampled_cosines(
    sets: Mapping[str, Rows], pairs: Pairs | None, rng: np.random.Generator
) -> tuple[dict[str, Cosines], bool]:
    """Return cosines by kind of pairs.

    Args:
        sets: "image" and/or "text" → (n, d), n ≥ 2. Sets of different dimension have no cosines between them.
        pairs: Index arrays (i, j), or None if nothing is paired.
        rng: Random generator of the samples.

    Returns:
        Kind of pairs → cosines, and whether any kind was sampled.

    Raises:
        InputError: If a row is zero, because it has no direction.
    """
    unit = {name: unit_rows(as_rows(rows), name=name).numpy() for name, rows in sets.items()}
    kinds: dict[str, Cosines] = {}
    sizes = []
    if len(unit) == 2 and unit["image"].shape[1] == unit["text"].shape[1]:
        image, text = unit["image"], unit["text"]
        cells = len(image) * len(text)
        sizes = [cells, 0 if pairs is None else len(pairs[0])]
        drawn = np.arange(cells) if cells <= MAX_COSINES else rng.integers(cells, size=MAX_COSINES)
        if pairs is not None:
            left, right = pairs
            drawn = drawn[~np.isin(drawn, left * len(text) + right)]  # keep rows that are not known to be pairs
            if len(left) > MAX_COSINES:
                chosen = rng.choice(len(left), MAX_COSINES, replace=False)
                left, right = left[chosen], right[chosen]
            kinds["matching pairs"] = _cosine(image, text, left, right)
        kinds["random image-text pairs"] = _cosine(image, text, *np.divmod(drawn, len(text)))
    for name, rows in unit.items():
        kinds[f"two different {name}s"] = _within(rows, rng)
        sizes.append(len(rows) * (len(rows) - 1) // 2)
    return {kind: cosines for kind, cosines in kinds.items() if len(cosines)}, max(sizes) > MAX_COSINES


def _within(unit: Rows, rng: np.random.Generator) -> Cosines:
    """Return cosines of random pairs of different rows, or of all pairs if there are at most MAX_COSINES."""
    n = len(unit)
    if n * (n - 1) // 2 <= MAX_COSINES:
        return (unit @ unit.T)[np.triu_indices(n, 1)]
    i = rng.integers(n, size=MAX_COSINES)
    j = (i + rng.integers(1, n, size=MAX_COSINES)) % n
    return _cosine(unit, unit, i, j)


def _cosine(x: Rows, y: Rows, i: NDArray, j: NDArray, block: int = 16384) -> Cosines:
    """Return the cosines of rows i of x with rows j of y in blocks; all rows are unit vectors."""
    parts = [slice(start, start + block) for start in range(0, len(i), block)]
    return np.concatenate([np.einsum("nd,nd->n", x[i[part]], y[j[part]]) for part in parts] or [np.empty(0)])


# --- entries of the report

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
    plane, shares = singular_plane(*sets.values())
    separated = lines = ""
    if len(sets) == 2:
        image, text = (sets[name] @ plane for name in ("image", "text"))
        for k, name in enumerate(("first", "second")):  # name the last direction that separates them completely
            if image[:, k].min() > text[:, k].max() or image[:, k].max() < text[:, k].min():
                separated = f"Along the {name} direction all images lie on one side of all texts. "
        if pairs is not None:
            count = len(pairs[0])
            more = f" of {count}, chosen at random" if count > MAX_PAIRS else ""
            lines = f" Lines connect the two members of a pair ({min(count, MAX_PAIRS)} pairs{more})."
    every = " of all rows together" if len(sets) > 1 else ""
    caption = (
        f"{separated}The {' and '.join(sets)} rows on the first two singular directions of all rows together (not "
        f"centered), which hold {percent(shares[0])} and {percent(shares[1])} of their squared length. Crosses mark "
        f"the means.{lines} Beside the plane: all singular values{every}, relative to the largest."
    )
    return singular_directions(sets, pairs, seed=seed), caption


def _cosines(sets: Mapping[str, Rows], pairs: Pairs | None, seed: int) -> tuple[Figure, str]:
    """Draw the distributions of cosines within and between the sets, and return the figure with its caption."""
    by_kind, sampled = sampled_cosines(sets, pairs, np.random.default_rng(seed))
    means = ", ".join(f"{name} {fixed(float(cosines.mean()), 2)}" for name, cosines in by_kind.items())
    caption = f"Mean cosines: {means}."
    if sampled:
        few = f"{MAX_COSINES:,}"
        caption += f" Of each kind with more than {few} pairs, about {few} were drawn at random."
    if len({rows.shape[1] for rows in sets.values()}) > 1:
        caption += " Images and texts have different dimensions, so there are no cosines between them."
    return cosine_distributions(by_kind), caption
