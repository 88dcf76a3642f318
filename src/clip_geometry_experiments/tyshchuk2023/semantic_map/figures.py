"""Figures of the image map and of both maps in one frame, and sentences about their agreement."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray
from PIL import Image, ImageOps

from clip_geometry.display.numbers import number, plus_minus
from clip_geometry.display.style import COLOR, MARKER, NEUTRAL, WIDTH, styled
from clip_geometry.modalities import plural
from clip_geometry.results import Row
from clip_geometry_experiments.kit.significance import differ
from clip_geometry_experiments.report.figures import MAX_VECTOR_POINTS, Drawing
from clip_geometry_experiments.tyshchuk2023.semantic_map.planes import Points, Superposition

ACROSS = 15  # images side by side
PIXELS = 100  # size of an image with its frame: twice the resolution of a printed column
BORDER = 7
EDGE = "#D0D7DE"

Picture = Callable[[int], Image.Image]  # row → RGB image; raises OSError if there is no image


class PlaneOfRows(NamedTuple):
    """The rows of one modality on their plane, (n, 2).

    `perplexity` belongs to the t-SNE that produced the points. `picture` returns the image of a row (for a text, the
    image of its pair), or is None.
    """

    points: Points
    perplexity: float
    picture: Picture | None = None


def draw_semantic_map(planes: Mapping[str, PlaneOfRows], together: Superposition) -> dict[str, Drawing]:
    """Draw the map of the images (Figure 1) and both maps in one frame (Figures A1 and A2).

    Args:
        planes: Mapping from modality to its rows on their plane.
        together: The images rotated onto the texts.
    """
    image, text = planes["image"], planes["text"]
    window = np.concatenate([together.moved, together.kept])
    shades = shades_of(together)
    alone, marks = draw_map(image.points, "image", image.picture)
    alone_caption = (
        f"t-SNE of the {len(image.points)} image rows (perplexity {image.perplexity:g}, Euclidean). {marks} t-SNE "
        "preserves neighborhoods; directions, sizes of clusters and the distances between them mean little."
    )
    images, marks = draw_map(together.moved, "image", image.picture, window, shades["image"])
    images_caption = (
        f"Disparity of the two maps {number(together.disparity)}: 0 where they coincide, near 1 where they have "
        f"nothing in common. The map of the {len(together.moved)} images (perplexity {image.perplexity:g}), centered, "
        f"scaled and rotated onto the map of the texts by Procrustes through {len(together.pairs[0])} pairs; colors "
        f"run from left to right. {marks}"
    )
    texts, marks = draw_map(together.kept, "text", text.picture, window, shades["text"])
    texts_caption = (
        f"The map of the {len(together.kept)} texts (perplexity {text.perplexity:g}) in the frame of the images above, "
        "each text in the color of its image there: where both maps agree, colors run from left to right here too. "
        f"{marks}"
    )
    return {
        "semantic_images": Drawing("Images on their t-SNE map", alone, alone_caption),
        "semantic_images_aligned": Drawing("The images, rotated onto the texts", images, images_caption),
        "semantic_texts_aligned": Drawing("The texts in the same frame", texts, texts_caption),
    }


@styled
def draw_map(
    points: Points,
    modality: str,
    picture: Picture | None,
    window: Points | None = None,
    shades: Sequence[str] | None = None,
) -> tuple[Figure, str]:
    """Draw the rows as dots, and as many of their images as fit without overlap, each at its point.

    Args:
        points: Points of the rows, (n, 2).
        modality: Modality of the rows, "image" or "text".
        picture: Function that returns the image of a row, or None to draw no images.
        window: Points (m, 2) that set the range of the map; by default `points`.
        shades: The color of each row; by default the color of the modality.

    Returns:
        The figure, and a sentence that says how many rows are drawn as images.
    """
    low, high = (end(points if window is None else window, axis=0) for end in (np.min, np.max))
    side = float(high[0] - low[0]) / (ACROSS - 1) or 1.0
    reach = np.maximum(high - low, (high - low).max() / 2) / 2 + side / 2
    center = (low + high) / 2
    figure = Figure(figsize=(WIDTH, WIDTH * reach[1] / reach[0]))
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axes.set(xlim=center[0] + reach[0] * np.array([-1, 1]), ylim=center[1] + reach[1] * np.array([-1, 1]))
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set(visible=True, color=EDGE)
    many = len(points) > MAX_VECTOR_POINTS
    style: Any = {"c": COLOR[modality] if shades is None else list(shades), "marker": MARKER[modality]}
    axes.scatter(*points.T, s=6, linewidths=0, alpha=0.7, rasterized=many, gid="points", **style)
    chosen: list[int] = []
    for row in range(len(points) if picture is not None else 0):
        distances = np.abs(points[chosen] - points[row]).max(axis=1)
        if (distances < side).any():
            continue
        framed = _framed(picture, row, shades)
        if framed is None:
            continue
        chosen.append(row)
        (left, bottom), (right, top) = points[row] - side / 2, points[row] + side / 2
        image = AxesImage(axes, extent=(left, right, bottom, top), origin="upper", zorder=3, gid=f"picture:{row}")
        image.set_data(framed)
        axes.add_image(image)
    if not chosen:
        return figure, "Drawn as points, since no images are available."
    as_images = "are drawn at their points" if modality == "image" else "are drawn as their images"
    return figure, f"{len(chosen)} of {len(points)} {plural(modality)} {as_images}, the others as dots."


def _framed(picture: Any, row: int, shades: Sequence[str] | None) -> NDArray | None:
    """Return the central square of an image, framed in the color of its row, or None if the image cannot be read."""
    inner = PIXELS - 2 * BORDER
    try:
        square = ImageOps.fit(picture(row).convert("RGB"), (inner, inner), Image.Resampling.LANCZOS)
    except OSError:
        return None
    return np.asarray(ImageOps.expand(square, BORDER, EDGE if shades is None else shades[row]))


def shades_of(together: Superposition) -> dict[str, list[str]]:
    """Return a color per row: an image's rank from left to right, or the mean rank of a text's images."""
    left_to_right = together.moved[:, 0].argsort(kind="stable").argsort(kind="stable")
    share = left_to_right / max(len(left_to_right) - 1, 1)
    i, j = together.pairs
    counts = np.bincount(j, minlength=len(together.kept))
    means = np.bincount(j, share[i], minlength=len(together.kept)) / np.maximum(counts, 1)
    colors = colormaps["viridis"]
    texts = [to_hex(colors(mean)) if count else NEUTRAL for mean, count in zip(means, counts, strict=True)]
    return {"image": [to_hex(colors(rank)) for rank in share], "text": texts}


def tell(rows: Sequence[Row]) -> list[str]:
    """Say whether the maps agree more than with shuffled pairs, and how faithful they are."""
    by_key = {(row["measure"], row["at"]["modality"]): row for row in rows}
    values = {key: plus_minus(row["value"], row.get("standard_error")) for key, row in by_key.items()}
    disparity = by_key["semantic_map.disparity", "both"]
    shuffled = by_key["semantic_map.disparity_shuffled", "both"]
    agree = differ(disparity, shuffled) and disparity["value"] < shuffled["value"]
    faithful = [f"{values['semantic_map.trustworthiness', modality]} of the neighborhoods of the {plural(modality)}"
                for modality in ("image", "text")]  # fmt: skip
    return [
        f"The map of the images and the map of the texts agree "
        f"{'beyond chance' if agree else 'no more than with shuffled pairs'}: their disparity is "
        f"{values['semantic_map.disparity', 'both']}, with shuffled pairs "
        f"{values['semantic_map.disparity_shuffled', 'both']} (0 is the same map, 1 nothing in common).",
        f"The maps keep {' and '.join(faithful)} (trustworthiness, 1 is all).",
    ]
