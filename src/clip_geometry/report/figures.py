"""Arrays in, figures out. Rows are drawn as given, after whatever pipeline; nothing is normalised here."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from clip_geometry.geometry import singular_values
from clip_geometry.geometry._core.moments import Moments
from clip_geometry.geometry._core.rows import as_rows, mean_row
from clip_geometry.registry import InputError
from clip_geometry.report.numbers import fixed
from clip_geometry.report.style import COLOUR, LINE, MARKER, NEUTRAL, legend_above, new_axes, styled

MAX_PAIRS = 300  # lines drawn between pairs
MAX_VECTOR_POINTS = 600  # more points become a bitmap inside the SVG, which stays small
FLOOR = 1e-6  # relative size below which an axis ends: embeddings are computed in float32 at best

Rows = NDArray[np.floating]


def _modalities(image: ArrayLike | None, text: ArrayLike | None) -> dict[str, NDArray]:
    given = {name: np.asarray(values) for name, values in (("image", image), ("text", text)) if values is not None}
    if not given:
        raise InputError("neither image nor text was given; a figure needs at least one of them")
    return given


def singular_plane(*sets: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """First two right singular vectors (d, 2) of the stacked, uncentred rows, and their shares (2,) of Σ‖w‖².

    Signs: the stacked rows have a positive sum along the first, the first set's mean lies above the second's along
    the second; where that is 0, as after centring, the one rule stands in for the other. Raises
    InputError where d < 2, the sets differ in d, or a set has fewer than two rows.
    """
    widths = {rows.shape[1] for rows in sets}
    if len(widths) > 1 or min(widths) < 2:
        raise InputError(
            f"rows have {' and '.join(map(str, sorted(widths)))} columns; singular directions need one common "
            "number of columns, at least two"
        )
    means = [mean_row(as_rows(rows)).numpy() for rows in sets]
    values, vectors = np.linalg.eigh(
        np.sum([_second_moment(rows, mean) for rows, mean in zip(sets, means, strict=True)], axis=0)
    )
    plane = vectors[:, [-1, -2]]
    values = np.clip(values, 0, None)
    sizes = [len(rows) for rows in sets]
    length = np.sqrt(values.sum() / sum(sizes))  # root mean square of the rows
    shares = values[[-1, -2]] / max(values.sum(), np.finfo(float).tiny)
    return plane * _signs(plane, means, sizes, least=1e-9 * length), shares


def _signs(
    plane: NDArray[np.float64], means: list[NDArray[np.float64]], sizes: list[int], *, least: float
) -> NDArray[np.float64]:
    """±1 for each direction: by the first rule that gives more than `least`; else the largest entry is positive."""
    together = np.average(means, axis=0, weights=sizes) @ plane
    apart = (means[0] - means[1]) @ plane if len(means) > 1 else together
    entry = plane[np.abs(plane).argmax(axis=0), [0, 1]]
    signs = np.sign(entry)
    for rule in ((apart[0], together[1]), (together[0], apart[1])):  # the last word is the stronger one
        signs = np.where(np.abs(rule) > least, np.sign(rule), signs)
    return signs


def _second_moment(rows: Rows, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """rowsᵀ rows; its leading eigenvectors are good to all digits, unlike its small eigenvalues."""
    return Moments.of(rows).M2.numpy() + len(rows) * np.outer(mean, mean)


@styled
def singular_directions(
    image: ArrayLike | None,
    text: ArrayLike | None = None,
    pairs: tuple[ArrayLike, ArrayLike] | None = None,
    *,
    seed: int = 0,
) -> Figure:
    """Rows projected on the first two right singular vectors of the stacked, uncentred rows.

    image: (n, d), text: (m, d), either may be None. pairs: index arrays (i, j), joined by thin lines, of which
    MAX_PAIRS are drawn at random (`seed`). Crosses mark the means, a plus the origin.
    """
    sets = _modalities(image, text)
    plane, _ = singular_plane(*sets.values())
    at = {name: rows @ plane for name, rows in sets.items()}
    figure, axes = new_axes()
    if pairs is not None and len(at) == 2:
        i, j = _thinned(pairs, seed)
        segments = np.stack([at["image"][i], at["text"][j]], axis=1)
        lines = LineCollection(list(segments), colors=NEUTRAL, linewidths=0.3, alpha=0.28, zorder=1)
        lines.set(gid="pairs", label="pair", rasterized=True)
        axes.add_collection(lines)
    size = 9 if max(map(len, at.values())) <= MAX_VECTOR_POINTS else 3
    for name, points in at.items():
        axes.scatter(
            *points.T,
            s=size,
            c=COLOUR[name],
            marker=MARKER[name],
            linewidths=0,
            alpha=0.55,
            label=name,
            gid=f"points:{name}",
            rasterized=len(points) > MAX_VECTOR_POINTS,
        )
    for name, points in at.items():
        _mark_mean(axes, name, points.mean(axis=0))
    axes.plot(0, 0, "+", color="#24292F", markersize=7, markeredgewidth=1, label="origin", gid="origin")
    axes.set(xlabel="first singular direction", ylabel="second singular direction")
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.08)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    _direction_legend(figure, axes)
    return figure


def _thinned(pairs: tuple[ArrayLike, ArrayLike], seed: int) -> tuple[NDArray, NDArray]:
    i, j = (np.asarray(index) for index in pairs)
    if len(i) <= MAX_PAIRS:
        return i, j
    chosen = np.sort(np.random.default_rng(seed).choice(len(i), MAX_PAIRS, replace=False))
    return i[chosen], j[chosen]


def _mark_mean(axes: Axes, name: str, mean: NDArray) -> None:
    axes.plot(
        *mean[:, None],
        marker="X",
        markersize=9,
        color=COLOUR[name],
        markeredgecolor="white",
        markeredgewidth=1.1,
        linestyle="none",
        label="_",
        gid=f"mean:{name}",
        zorder=4,
    )


def _direction_legend(figure: Figure, axes: Axes) -> None:
    """One key for both means; points are small and pale in the panel, their keys in the legend are not."""
    axes.plot([], [], marker="X", color=NEUTRAL, markersize=6, linestyle="none", label="mean")
    legend_above(figure, axes, columns=5)
    for handle in figure.legends[0].legend_handles:
        if isinstance(handle, PathCollection):
            handle.set(alpha=1, sizes=[18])
        elif isinstance(handle, Line2D):
            handle.set(alpha=1, linewidth=1)


def relative_singular_values(rows: Rows, *, name: str = "x") -> NDArray[np.float64]:
    """Singular values of the uncentred rows over the largest, descending, (min(n, d),). InputError for zero rows."""
    values = singular_values(rows).numpy()
    if values[0] == 0:
        raise InputError(f"all rows of {name} are zero; singular values cannot be compared with the largest")
    return values / values[0]


@styled
def singular_value_decay(
    image: ArrayLike | None, text: ArrayLike | None = None, *, gaussian: ArrayLike | None = None
) -> Figure:
    """Singular values over the largest, on a log axis, from `relative_singular_values`.

    image, text: (k,), either may be None. gaussian: those of an isotropic Gaussian of the same size after the same
    pipeline, drawn in grey to compare with.
    """
    figure, axes = new_axes()
    curves = _modalities(image, text)
    if gaussian is not None:
        reference = np.asarray(gaussian)
        index = np.arange(1, len(reference) + 1)
        label = "isotropic Gaussian"
        axes.plot(index, reference, color=NEUTRAL, linestyle=":", label=label, gid="decay:gaussian")
    for name, values in curves.items():
        index = np.arange(1, len(values) + 1)
        marker = "." if len(values) <= 20 else ""
        axes.plot(
            index, values, color=COLOUR[name], linestyle=LINE[name], marker=marker, label=name, gid=f"decay:{name}"
        )
    axes.set(xlabel="index of the singular value", ylabel="singular value / largest", yscale="log")
    shown = np.concatenate([values[values > FLOOR] for values in curves.values()])
    axes.set_ylim(max(shown.min() / 1.5, FLOOR), 1.4)
    legend_above(figure, axes)
    return figure


@styled
def cosine_distributions(
    matching: ArrayLike | None,
    random: ArrayLike | None = None,
    image_image: ArrayLike | None = None,
    text_text: ArrayLike | None = None,
) -> Figure:
    """Densities of cosines: matching and random image-text pairs, and pairs within each modality.

    Each input is a flat array of cosines or None; dashed lines mark the means.
    """
    given = {
        "matching": (matching, "matching pairs"),
        "random": (random, "random pairs"),
        "image": (image_image, "two images"),
        "text": (text_text, "two texts"),
    }
    cosines = {key: (np.asarray(c).ravel(), label) for key, (c, label) in given.items() if c is not None}
    if not cosines:
        raise InputError("no cosines were given; the figure needs at least one kind of pairs")
    figure, axes = new_axes()
    edges = _shared_bins([values for values, _ in cosines.values()])
    for key, (values, label) in cosines.items():
        density, _ = np.histogram(values, edges, density=True)
        mean = float(values.mean(dtype=np.float64))
        colour = COLOUR[key]
        axes.stairs(density, edges, fill=True, alpha=0.3, color=colour)
        label = f"{label}, mean {fixed(mean, 2)}"
        axes.stairs(density, edges, linewidth=1.1, color=colour, label=label, gid=f"density:{key}")
        axes.axvline(mean, color=colour, linewidth=1, linestyle=(0, (3, 2)), gid=f"mean:{key}")
    axes.set(xlabel="cosine similarity", ylabel="density")
    axes.set_ylim(bottom=0)
    legend_above(figure, axes, columns=2)
    return figure


def _shared_bins(values: list[NDArray], bins: int = 60) -> NDArray[np.float64]:
    low = float(min(part.min() for part in values))
    high = float(max(part.max() for part in values))
    room = 0.02 * (high - low) or 0.01  # all cosines equal: still a bin to draw
    return np.linspace(low - room, high + room, bins + 1)


@styled
def coordinate_spread(
    image_std: ArrayLike | None,
    text_std: ArrayLike | None = None,
    *,
    image_mean: ArrayLike | None = None,
    text_mean: ArrayLike | None = None,
) -> Figure:
    """Per-coordinate standard deviations, and absolute means where given, each sorted in descending order.

    Inputs are (d,) or None. Log axes keep the few rogue coordinates apart; the coordinate with the largest
    absolute mean is named by its index (from 0).
    """
    stds = _modalities(image_std, text_std)
    means = {
        name: np.abs(np.asarray(mean))
        for name, mean in (("image", image_mean), ("text", text_mean))
        if mean is not None and name in stds
    }
    figure, axes = new_axes()
    for name, std in stds.items():
        _sorted_line(axes, std, name, "standard deviation", LINE[name], f"std:{name}")
    for name, mean in means.items():
        _sorted_line(axes, mean, name, "|mean|", (0, (1, 1.2)), f"absmean:{name}")
    _name_largest(axes, means)
    axes.set(xscale="log", yscale="log", xlabel="rank of the coordinate")
    axes.set_ylabel("standard deviation, |mean|" if means else "standard deviation")
    largest = max(float(values.max()) for values in (*stds.values(), *means.values()))
    if largest > 0:  # a few coordinates whose mean is nearly 0 would stretch the axis
        typical = min(float(np.median(values)) for values in (*stds.values(), *means.values()))
        axes.set_ylim(max(typical / 30, largest * FLOOR), largest * 3)
    legend_above(figure, axes, columns=2)
    return figure


def _sorted_line(axes: Axes, values: NDArray, name: str, what: str, style, gid: str) -> None:
    ordered = np.sort(values)[::-1]
    rank = np.arange(1, len(ordered) + 1)
    colour = COLOUR[name]
    axes.plot(rank, ordered, color=colour, linestyle=style, label=f"{name}: {what}", gid=gid)


def _name_largest(axes: Axes, means: Mapping[str, NDArray]) -> None:
    """Names above the markers, the lower one's moved up where both markers are nearly level."""
    tops = sorted(((float(mean.max()), int(mean.argmax()), name) for name, mean in means.items()), reverse=True)
    level = len(tops) == 2 and tops[1][0] > 0.5 * tops[0][0]
    for place, (value, index, name) in enumerate(tops):
        axes.plot(1, value, marker=MARKER[name], markersize=4, color=COLOUR[name], gid=f"top:{name}")
        anchor = tops[0][0] if level else value
        offset = (6, 12 if level and place == 0 else 3)
        label = f"coordinate {index}"
        axes.annotate(
            label, (1, anchor), offset, textcoords="offset points", color=COLOUR[name], fontsize=7, gid=f"name:{name}"
        )
