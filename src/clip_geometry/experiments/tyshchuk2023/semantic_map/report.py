"""The map of the images, and the maps of images and texts in one frame: drawn, captioned with what they show, saved."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray

from clip_geometry.experiments.tyshchuk2023.semantic_map.marks import (
    NAMED,
    Picture,
    Window,
    caption_map,
    label_map,
    picture_map,
    point_map,
    window_of,
)
from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.numbers import number
from clip_geometry.report.style import NEUTRAL, save_figure

Points = NDArray[np.floating]


@dataclass(frozen=True)
class Items:
    """The rows of one modality on their plane, and what can be drawn of them.

    points: (n, 2). perplexity: of the t-SNE that found them. labels: (n,) or None. picture: row → RGB image, OSError
    where it cannot be read, or None. texts: (n,) or None.
    """

    points: Points
    perplexity: float
    labels: NDArray | None = None
    picture: Picture | None = None
    texts: Sequence[str] | NDArray | None = None


@dataclass(frozen=True)
class OneFrame:
    """Both planes in one frame, image (n, 2) turned onto text (m, 2) through pairs (i, j), and their disparity."""

    image: Points
    text: Points
    pairs: tuple[NDArray, NDArray]
    disparity: float


def draw_semantic_map(
    items: Mapping[str, Items],
    together: OneFrame | None,
    *,
    folder: str | Path,
    origin: str,
    all_images: bool = False,
    prefix: str = "",
    group: str = "",
) -> list[FigureEntry]:
    """Draws the map of the images, and both maps in one frame (or that of the texts alone), saved as PNG and SVG.

    items: modality → its rows. together: the images turned onto the texts, None where nothing pairs.
    origin: model, data, pipeline and seed in words. all_images: every picture, covered or not. prefix: of file names.
    """
    drawn: dict[str, tuple[str, Callable[[], tuple[Figure, str]]]] = {}
    if "image" in items:
        drawn["semantic_images"] = ("Images at their places", partial(_alone, items["image"], "image", all_images))
    if together is None and "text" in items:
        drawn["semantic_texts"] = ("Captions at their places", partial(_alone, items["text"], "text", all_images))
    if together is not None:
        for modality, title in (
            ("image", "The images, turned onto the texts"),
            ("text", "The texts in the same frame"),
        ):
            draw = partial(_in_one_frame, items[modality], modality, together, all_images)
            drawn[f"semantic_{modality}s_aligned"] = (title, draw)
    entries = []
    for name, (title, draw) in drawn.items():
        figure, words = draw()
        png, svg = save_figure(figure, folder, prefix + name)
        entries.append(FigureEntry(prefix + name, title, f"{words} {origin}", svg, png, group))
    return entries


def _alone(items: Items, modality: str, all_images: bool) -> tuple[Figure, str]:
    figure, what = _map(items, modality, items.points, None, None, all_images)
    return figure, (
        f"t-SNE of the {len(items.points)} {modality} rows (perplexity {items.perplexity:g}, Euclidean). {what} It "
        "keeps neighbours together; directions, sizes of clusters and distances between them mean little."
    )


def _in_one_frame(items: Items, modality: str, together: OneFrame, all_images: bool) -> tuple[Figure, str]:
    shades = shades_of(together)[modality]
    window = window_of(np.concatenate([together.image, together.text]), centre=np.zeros(2))
    points = together.image if modality == "image" else together.text
    figure, what = _map(items, modality, points, window, shades, all_images)
    if modality == "image":
        return figure, (
            f"Disparity of these two maps {number(together.disparity)}: 0 where they coincide, near 1 where they "
            f"have nothing in common. The map of the {len(points)} images (perplexity {items.perplexity:g}), centred, "
            f"scaled and turned onto the map of the texts by Procrustes through {len(together.pairs[0])} pairs; "
            f"colours run from left to right. {what}"
        )
    return figure, (
        f"The map of the {len(points)} texts (perplexity {items.perplexity:g}) in the frame of the images above, every "
        f"text in the colour of its image there: where both maps agree, colours run from left to right here too. {what}"
    )


def shades_of(together: OneFrame) -> dict[str, list[str]]:
    """A colour for each row: of an image by its rank from left to right, of a text the mean of its images'."""
    left_to_right = together.image[:, 0].argsort(kind="stable").argsort(kind="stable")
    share = left_to_right / max(len(left_to_right) - 1, 1)
    i, j = together.pairs
    size = len(together.text)
    counts = np.bincount(j, minlength=size)
    means = np.bincount(j, share[i], minlength=size) / np.maximum(counts, 1)
    colours = colormaps["viridis"]
    texts = [to_hex(colours(mean)) if count else NEUTRAL for mean, count in zip(means, counts, strict=True)]
    return {"image": [to_hex(colours(each)) for each in share], "text": texts}


def _map(
    items: Items,
    modality: str,
    points: Points,
    window: Window | None,
    shades: Sequence[str] | None,
    all_images: bool,
) -> tuple[Figure, str]:
    """The map with pictures or captions, else points by label; and the sentence that says how many of them."""
    if modality == "image" and items.picture is not None:
        figure, count = picture_map(points, items.picture, window=window, shades=shades, everything=all_images)
        if count:
            some = "all" if count == len(points) else f"{count} of {len(points)}"
            rest = "" if count == len(points) else ", the others as points"
            return figure, f"Drawn at their places: {some} pictures{rest}."
    if modality == "text" and items.texts is not None:
        figure, count = caption_map(points, items.texts, window=window, shades=shades)
        return figure, f"Written at their places: {count} of {len(points)} captions, the others as points."
    if shades is not None or items.labels is None:
        missing = "pictures" if modality == "image" else "captions"
        return point_map(points, modality, window=window, shades=shades), f"As points: no {missing} are at hand."
    few = len(np.unique(items.labels)) <= NAMED
    return label_map(points, items.labels), f"As points, {'by class' if few else f'the {NAMED} largest classes named'}."
