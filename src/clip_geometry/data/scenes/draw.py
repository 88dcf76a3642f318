"""Rendering of scenes in integer arithmetic only: the same bytes on every machine."""

from math import cos, radians, sin

import numpy as np
from PIL import Image

from clip_geometry.data.scenes.layout import PIXEL, SIDE, Scene, Thing, raw_words
from clip_geometry.data.scenes.outlines import RADIUS, outlines

# CIELAB distances between any two of these are 27 or more
COLOUR_RGB = {
    "red": (215, 30, 35),
    "orange": (250, 140, 15),
    "yellow": (250, 225, 40),
    "green": (30, 145, 60),
    "blue": (35, 75, 205),
    "purple": (130, 45, 165),
    "pink": (250, 130, 185),
    "brown": (140, 80, 35),
    "black": (20, 20, 22),
    "white": (250, 250, 250),
}
BACKGROUND_RGB = {
    "light grey": (172, 172, 172),
    "dark grey": (82, 82, 82),
    "beige": (226, 203, 152),
    "light blue": (140, 195, 240),
    "light green": (160, 218, 155),
}
_LINES = 4  # scan lines per pixel; along a line the coverage is exact to 1/256 pixel
FULL = _LINES * PIXEL


def coverage(thing: Thing) -> np.ndarray:
    """Return how much of each pixel the thing covers, (64, 64) int64 from 0 to FULL."""
    c, s = (round(RADIUS * turn(radians(thing.turn))) for turn in (cos, sin))
    rotation = np.array([[c, s], [-s, c]])
    starts, ends = (
        (points @ rotation * thing.radius) // RADIUS**2 + (thing.x, thing.y) for points in outlines()[thing.shape]
    )
    return _fill(starts, ends)


def _fill(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Fill a polygon given by its edges, antialiased.

    Where a scan line crosses an edge, coverage changes by the part of the pixel right of the crossing; a running sum
    along the row turns these changes into the coverage.
    """
    lines = PIXEL // (2 * _LINES) + np.arange(SIDE * _LINES) * (PIXEL // _LINES)
    edge, line = np.nonzero((starts[:, 1:] <= lines) != (ends[:, 1:] <= lines))
    (x, y), (dx, dy) = starts[edge].T, (ends - starts)[edge].T
    crossing = x + (lines[line] - y) * dx // dy
    pixel, part = np.divmod(crossing, PIXEL)
    change = (line // _LINES) * (SIDE + 1) + pixel
    size = SIDE * (SIDE + 1)
    # bincount adds up in float64, exactly for integers
    changes = np.bincount(change, np.sign(dy) * (PIXEL - part), size)
    changes += np.bincount(change + 1, np.sign(dy) * part, size)
    return np.abs(changes.astype(np.int64).reshape(SIDE, SIDE + 1).cumsum(axis=1))[:, :SIDE]


def render(scene: Scene) -> Image.Image:
    """Return the 64×64 RGB image of a scene."""
    background = np.add(BACKGROUND_RGB[scene.background], scene.background_tint)
    canvas = np.broadcast_to(background, (SIDE, SIDE, 3)).copy()
    for thing in (scene.main, *scene.extras):
        colour = np.add(COLOUR_RGB[thing.colour], thing.tint)
        canvas += (colour - canvas) * coverage(thing)[:, :, None] // FULL
    # triangular noise, standard deviation 6.5 of 255, from the sum of two random bytes
    words = raw_words(scene.seed, scene.split, (0, 0, 1, scene.index + 1), SIDE * SIDE * 6 // 8)
    pairs = words.astype("<u8").view(np.uint8).reshape(2, SIDE, SIDE, 3).astype(np.int64)
    noise = (pairs.sum(axis=0) - 255 + 8) >> 4
    return Image.fromarray((canvas + noise).clip(0, 255).astype(np.uint8))
