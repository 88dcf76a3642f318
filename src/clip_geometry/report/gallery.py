"""The four standard figures of one run: drawn, captioned with what they show, saved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from clip_geometry.report import figures
from clip_geometry.report.style import save_figure

MAX_COSINES = 300_000  # per kind of pairs; more are sampled
RULING_SHARE = 0.25  # of the mean's squared length, from which on a caption calls one coordinate large

Rows = NDArray[np.floating]
Pairs = tuple[NDArray[np.integer], NDArray[np.integer]]


@dataclass(frozen=True)
class FigureEntry:
    """A saved figure. caption: what it shows, then n, model, pipeline and seed. group: a heading for a sweep."""

    name: str
    title: str
    caption: str
    svg_path: Path
    png_path: Path
    group: str = ""


@dataclass(frozen=True)
class _Drawing:
    title: str
    figure: Figure
    caption: str


def draw_figures(
    image: Rows | None,
    text: Rows | None,
    pairs: Pairs | None,
    *,
    folder: str | Path,
    model: str,
    dataset: str,
    pipeline: Sequence[str],
    seed: int = 0,
    gaussian: Rows | None = None,
    prefix: str = "",
    group: str = "",
) -> list[FigureEntry]:
    """Draws the standard figures of rows as they are after the pipeline, and saves them as PNG and SVG.

    image: (n, d), text: (m, d), either may be None. pairs: index arrays, or None where nothing pairs. gaussian: see
    `figures.singular_value_decay`. model, dataset, pipeline, seed: for the captions. prefix: of the file names.
    """
    sets = {name: np.asarray(rows) for name, rows in (("image", image), ("text", text)) if rows is not None}
    counts = " and ".join(f"{len(rows)} {name}{'s' * (len(rows) != 1)}" for name, rows in sets.items())
    origin = f"{model}; {dataset}, n = {counts}; pipeline {', '.join(pipeline) or 'none (raw)'}; seed {seed}."
    drawings = {
        "singular_directions": _directions(sets, pairs, seed),
        "cosine_distributions": _cosines(sets, pairs, seed),
        "singular_value_decay": _decay(sets, gaussian),
        "coordinate_spread": _spread(sets),
    }
    entries = []
    for name, drawing in drawings.items():
        if drawing is not None:
            png, svg = save_figure(drawing.figure, folder, prefix + name)
            caption = f"{drawing.caption} {origin}"
            entries.append(FigureEntry(prefix + name, drawing.title, caption, svg, png, group))
    return entries


def _directions(sets: Mapping[str, Rows], pairs: Pairs | None, seed: int) -> _Drawing | None:
    if next(iter(sets.values())).shape[1] < 2:
        return None
    plane, shares = figures.singular_plane(*sets.values())
    who = "image and text rows" if len(sets) == 2 else f"{next(iter(sets))} rows"
    caption = (
        f"{_apart(sets, plane)}The {who} on the first two singular directions of all rows together (not centred), "
        f"which hold {shares[0]:.0%} and {shares[1]:.0%} of their squared length. Crosses mark the means."
    )
    if pairs is not None and len(sets) == 2:
        drawn = min(len(pairs[0]), figures.MAX_PAIRS)
        some = "" if drawn == len(pairs[0]) else f" of {len(pairs[0])}, chosen at random"
        caption += f" Lines join the two members of a pair ({drawn} pairs{some})."
    figure = figures.singular_directions(sets.get("image"), sets.get("text"), pairs, seed=seed)
    return _Drawing("The two main directions", figure, caption)


def _apart(sets: Mapping[str, Rows], plane: NDArray[np.float64]) -> str:
    """The sentence that is true of complete separation, otherwise nothing."""
    if len(sets) < 2:
        return ""
    image, text = (sets[name] @ plane[:, 1] for name in ("image", "text"))
    separate = image.min() > text.max()  # singular_plane puts the images above
    return "Along the second direction no image lies among the texts. " if separate else ""


def _decay(sets: Mapping[str, Rows], gaussian: Rows | None) -> _Drawing:
    ratios = [f"{_lead(rows)} times the second for {name}s" for name, rows in sets.items() if min(rows.shape) > 1]
    first = f"The largest singular value is {' and '.join(ratios)}. " if ratios else ""
    caption = f"{first}Singular values of the rows (not centred), relative to the largest."
    if gaussian is not None:
        caption += " Dotted: an isotropic Gaussian sample of the same size, through the same pipeline."
    figure = figures.singular_value_decay(sets.get("image"), sets.get("text"), gaussian=gaussian)
    return _Drawing("How fast the singular values fall", figure, caption)


def _lead(rows: Rows) -> str:
    """How many times the second singular value the first is."""
    second = figures.relative_singular_values(rows)[1]
    return f"{1 / second:.1f}" if second > figures.FLOOR else "over 100 000"


def _cosines(sets: Mapping[str, Rows], pairs: Pairs | None, seed: int) -> _Drawing | None:
    rng = np.random.default_rng(seed)
    unit = {name: _unit(rows) for name, rows in sets.items()}
    within = {name: _within(rows, rng) for name, rows in unit.items() if len(rows) > 1}
    matching = random = None
    if len(unit) == 2:
        matching, random = _across(unit["image"], unit["text"], pairs, rng)
    drawn = {"matching pairs": matching, "random image-text pairs": random}
    drawn |= {f"two different {name}s": cosines for name, cosines in within.items()}
    kept = {name: cosines for name, cosines in drawn.items() if cosines is not None and len(cosines)}
    if not kept:
        return None
    means = ", ".join(f"{name} {cosines.mean():z.2f}" for name, cosines in kept.items())
    caption = f"Mean cosines: {means}. Where a kind has more than {MAX_COSINES:,} pairs, so many are drawn at random."
    figure = figures.cosine_distributions(
        kept.get("matching pairs"),
        kept.get("random image-text pairs"),
        kept.get("two different images"),
        kept.get("two different texts"),
    )
    return _Drawing("Who is close to whom", figure, caption)


def _unit(rows: Rows) -> Rows:
    rows = rows.astype(np.float64)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)


def _within(unit: Rows, rng: np.random.Generator) -> NDArray[np.float64]:
    """Cosines of random pairs of different rows; all pairs where they are few."""
    n = len(unit)
    if n * (n - 1) // 2 <= MAX_COSINES:
        return (unit @ unit.T)[np.triu_indices(n, 1)]
    i = rng.integers(n, size=MAX_COSINES)
    j = (i + rng.integers(1, n, size=MAX_COSINES)) % n
    return _cosine(unit, unit, i, j)


def _across(
    image: Rows, text: Rows, pairs: Pairs | None, rng: np.random.Generator
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64]]:
    """Cosines of the pairs, and of random image and text rows that are not known to pair."""
    cells = len(image) * len(text)
    drawn = np.arange(cells) if cells <= MAX_COSINES else rng.integers(cells, size=MAX_COSINES)
    i, j = np.divmod(drawn, len(text))
    if pairs is None:
        return None, _cosine(image, text, i, j)
    known = np.asarray(pairs[0]) * len(text) + np.asarray(pairs[1])
    strangers = ~np.isin(drawn, known)
    chosen = np.arange(len(known))
    if len(known) > MAX_COSINES:
        chosen = rng.choice(len(known), MAX_COSINES, replace=False)
    matching = _cosine(image, text, np.asarray(pairs[0])[chosen], np.asarray(pairs[1])[chosen])
    return matching, _cosine(image, text, i[strangers], j[strangers])


def _cosine(x: Rows, y: Rows, i: NDArray, j: NDArray, block: int = 16384) -> NDArray[np.float64]:
    """Cosines of rows i of x with rows j of y, unit rows both, in blocks."""
    parts = [slice(start, start + block) for start in range(0, len(i), block)]
    return np.concatenate([np.einsum("nd,nd->n", x[i[p]], y[j[p]]) for p in parts] or [np.empty(0)])


def _spread(sets: Mapping[str, Rows]) -> _Drawing:
    std = {name: rows.std(axis=0, dtype=np.float64) for name, rows in sets.items()}
    mean = {name: rows.mean(axis=0, dtype=np.float64) for name, rows in sets.items()}
    shares, parts = [], []
    for name, values in mean.items():
        top = int(np.abs(values).argmax())
        share = values[top] ** 2 / max(float((values**2).sum()), np.finfo(float).tiny)
        shares.append(share)
        parts.append(f"coordinate {top} holds {share:.0%} of the {name} mean's squared length")
    sentence = " and ".join(parts)
    first = f"A single coordinate carries much of the mean: {sentence}" if max(shares) > RULING_SHARE else sentence
    caption = f"{first[0].upper()}{first[1:]}. Standard deviation and absolute mean of every coordinate, each sorted."
    figure = figures.coordinate_spread(
        std.get("image"), std.get("text"), image_mean=mean.get("image"), text_mean=mean.get("text")
    )
    return _Drawing("How unequal the coordinates are", figure, caption)
