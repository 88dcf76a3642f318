"""The map of the images, and the maps of images and texts in one frame, with their captions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from clip_geometry.display.numbers import plus_minus
from clip_geometry.display.style import NEUTRAL, WIDTH
from clip_geometry.display.words import Words
from clip_geometry_experiments.report.findings import differ
from clip_geometry_experiments.report.gallery import Drawing
from clip_geometry_experiments.tyshchuk2023.semantic_map.marks import (
    Picture,
    Window,
    caption_map,
    picture_grid,
    picture_map,
    point_map,
    window_of,
)

Points = NDArray[np.floating]
WORDS = Words(Path(__file__).with_name("words.j2"))


@dataclass(frozen=True)
class PlaneItems:
    """The rows of one modality on their plane, and what can be drawn at their points.

    Args:
        points: (n, 2).
        perplexity: Of the t-SNE that found them.
        picture: Row → RGB image, of a text that of its pair, raising OSError where there is none; or None.
        texts: (n,) or None.
    """

    points: Points
    perplexity: float
    picture: Picture | None = None
    texts: Sequence[str] | NDArray | None = None


@dataclass(frozen=True)
class OneFrame:
    """Both planes in one frame: image (n, 2) rotated onto text (m, 2) through pairs (i, j), and their disparity."""

    image: Points
    text: Points
    pairs: tuple[NDArray, NDArray]
    disparity: float


def draw_semantic_map(
    items: Mapping[str, PlaneItems],
    together: OneFrame | None,
    *,
    all_images: bool = False,
) -> dict[str, Drawing]:
    """Draw the map of the images, and both maps in one frame, or that of the texts alone.

    The images fill a grid. In the common frame they are drawn at their own points, then at those of their texts.

    Args:
        items: Modality → its rows.
        together: The images rotated onto the texts, None where nothing pairs.
        all_images: Draw every image, even one on another.
    """
    planned = {"semantic_images": ("image", "Images on their t-SNE map", "alone")}
    if together is None:
        planned["semantic_texts"] = ("text", "Captions on their t-SNE map", "alone")
    else:
        planned["semantic_images_aligned"] = ("image", "The images, rotated onto the texts", "image")
        planned["semantic_texts_aligned"] = ("text", "The texts in the same frame", "text")
    drawn: dict[str, Drawing] = {}
    for name, (modality, title, macro) in planned.items():
        if modality not in items:
            continue
        each, window, shades, own = items[modality], None, None, ()
        points, picture = each.points, items["image"].picture if "image" in items else None
        if together is not None and macro != "alone":
            points, shades = getattr(together, modality), shades_of(together)[modality]
            window = window_of(np.concatenate([together.image, together.text]), centre=np.zeros(2))
            own = (together.disparity, len(together.pairs[0]))
            if macro == "text" and picture is not None:
                each = replace(each, picture=_of_texts(picture, together.pairs))
        figure, marks = _map(each, modality, points, window, shades, all_images)
        caption = WORDS(macro, len(points), modality, f"{each.perplexity:g}", marks, *own)
        drawn[name] = Drawing(title, figure, caption, wide=figure.get_figwidth() > WIDTH)
    return drawn


def tell(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whether both maps agree more than with shuffled pairs, how faithful they are, and what neighbors they share."""
    found = {(row["measure"].removeprefix("semantic_map."), row["at"]["modality"]): row for row in rows}
    found = {key: row for key, row in found.items() if row["value"] is not None}
    said = []
    if ("disparity", "both") in found:
        own, shuffled = found["disparity", "both"], found.get(("disparity_shuffled", "both"))
        apart = None if shuffled is None else differ(own, shuffled)
        chance = None if shuffled is None or apart is None else not apart or own["value"] > shuffled["value"]
        said.append(WORDS("agreement", _told(own), None if shuffled is None else _told(shuffled), chance))
    faithful = {place: _told(row) for (name, place), row in found.items() if name == "trustworthiness"}
    if faithful:
        said.append(WORDS("faithful", faithful))
    on_maps = next(
        (row for row in rows if row["measure"] == "semantic_map.mutual_knn" and row["value"] is not None), None
    )
    before = next((row for row in rows if row["measure"] == "mutual_knn" and row["value"] is not None), None)
    if on_maps is not None:
        null = None if before is None else before.get("null_value")
        said.append(WORDS("shared", _told(on_maps), None if before is None else _told(before), null))
    return said


def _told(row: Mapping[str, Any]) -> str:
    return plus_minus(row["value"], row.get("standard_error"))


def _of_texts(picture: Picture, pairs: tuple[NDArray, NDArray]) -> Picture:
    """The image of a text's first pair at the row of the text."""
    image_of = dict(zip(reversed(pairs[1].tolist()), reversed(pairs[0].tolist()), strict=True))

    def own(row: int) -> Image.Image:
        if row not in image_of:
            raise OSError(f"the text of row {row} has no image")
        return picture(image_of[row])

    return own


def shades_of(together: OneFrame) -> dict[str, list[str]]:
    """A color for each row: of an image by its rank from left to right, of a text the mean of its images'."""
    left_to_right = together.image[:, 0].argsort(kind="stable").argsort(kind="stable")
    share = left_to_right / max(len(left_to_right) - 1, 1)
    i, j = together.pairs
    size = len(together.text)
    counts = np.bincount(j, minlength=size)
    means = np.bincount(j, share[i], minlength=size) / np.maximum(counts, 1)
    colors = colormaps["viridis"]
    texts = [to_hex(colors(mean)) if count else NEUTRAL for mean, count in zip(means, counts, strict=True)]
    return {"image": [to_hex(colors(each)) for each in share], "text": texts}


def _map(
    items: PlaneItems,
    modality: str,
    points: Points,
    window: Window | None,
    shades: Sequence[str] | None,
    all_images: bool,
) -> tuple[Figure, str]:
    """The map with images or captions, else points; and the sentence that says how many of them."""
    n = len(points)
    if items.picture is not None:
        if window is None and not all_images:
            figure, count = picture_grid(points, items.picture)
            kind = "grid"
        else:
            style: Any = {"modality": modality, "window": window, "shades": shades, "everything": all_images}
            figure, count = picture_map(points, items.picture, **style)
            kind = "images" if modality == "image" else "texts"
        if figure is not None and count:
            return figure, WORDS("marks", kind, count, n)
    if modality == "text" and items.texts is not None:
        figure, count = caption_map(points, items.texts, window=window, shades=shades)
        return figure, WORDS("marks", "captions", count, n)
    figure = point_map(points, modality, window=window, shades=shades)
    return figure, WORDS("marks", "points", missing="images" if modality == "image" else "captions")
