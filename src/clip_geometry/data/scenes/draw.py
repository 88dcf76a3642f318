"""Rendering of scenes in integer arithmetic only: the same bytes on every machine."""

from collections.abc import Sequence
from functools import cache
from math import cos, hypot, pi, radians, sin, sqrt

import numpy as np
from PIL import Image

from clip_geometry.data.scenes.layout import DRAWING, PIXEL, SIDE, Scene, Thing, raw_words

RADIUS = 4096  # of the circle around the outline of a shape
_LINES = 4  # scan lines per pixel; along a line the coverage is exact to 1/256 pixel
FULL = _LINES * PIXEL

Points = list[tuple[float, float]]


def _polar(radii: Sequence[float], start: float = -90.0) -> Points:
    """Return points at equal angles, in degrees from `start`, clockwise on the screen."""
    angles = [radians(start + 360 * k / len(radii)) for k in range(len(radii))]
    return [(radius * cos(angle), radius * sin(angle)) for radius, angle in zip(radii, angles, strict=True)]


def _fitted(points: Points) -> Points:
    """Center the bounding box at the origin and scale the farthest point to length 1."""
    x, y = zip(*points, strict=True)
    middle = (min(x) + max(x)) / 2, (min(y) + max(y)) / 2
    points = [(a - middle[0], b - middle[1]) for a, b in points]
    reach = max(hypot(*point) for point in points)
    return [(a / reach, b / reach) for a, b in points]


@cache
def outlines() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the edges of the eight shapes, closed polygons: starts and ends, (m, 2) int64 each.

    The inside is on the same side of all edges; y is down.
    """
    width = 0.33  # of the cross, half of it
    length = sqrt(1 - width**2)
    arm = [(-width, -length), (width, -length), (width, -width)]
    quarter_turns = [lambda x, y: (x, y), lambda x, y: (-y, x), lambda x, y: (-x, -y), lambda x, y: (y, -x)]
    cross = [turned(x, y) for turned in quarter_turns for x, y in arm]

    angles = [2 * pi * k / 40 for k in range(40)]
    heart = [  # a known curve
        (16 * sin(t) ** 3, -(13 * cos(t) - 5 * cos(2 * t) - 2 * cos(3 * t) - cos(4 * t))) for t in angles
    ]

    # of the disc that the crescent, a unit disc, lacks: its radius, and its center to the right
    inner, shift = 0.82, 0.55
    x = (1 - inner**2 + shift**2) / (2 * shift)
    y = sqrt(1 - x**2)  # the circles meet at (x, ±y)
    outer_angle, inner_angle = np.arctan2(y, x), np.arctan2(y, x - shift)
    outer = [(cos(a), sin(a)) for a in np.linspace(outer_angle, 2 * pi - outer_angle, 36)]
    hollow = [(shift + inner * cos(a), inner * sin(a)) for a in np.linspace(2 * pi - inner_angle, inner_angle, 28)]

    shapes = {
        "circle": [_polar([0.9] * 48)],
        "square": [_polar([1.0] * 4, start=-45.0)],
        "triangle": [_fitted(_polar([1.0] * 3))],
        "star": [_fitted(_polar([1.0, 0.43] * 5))],
        "cross": [cross],
        "ring": [_polar([0.95] * 48), _polar([0.55] * 48)[::-1]],  # a hole runs the other way
        "heart": [_fitted(heart)],
        "crescent": [_fitted(outer + hollow[1:-1])],
    }
    edges = {}
    for shape, rings in shapes.items():
        # rounding to integers removes the last bits of cos and sin, which differ between machines
        whole = [np.array([[round(RADIUS * x), round(RADIUS * y)] for x, y in ring]) for ring in rings]
        edges[shape] = np.concatenate(whole), np.concatenate([np.roll(ring, -1, axis=0) for ring in whole])
    return edges


def coverage(thing: Thing) -> np.ndarray:
    """Return how much of each pixel the thing covers, (64, 64) int64 from 0 to FULL.

    Where a scan line crosses an edge of its outline, coverage changes by the part of the pixel right of the crossing;
    a running sum along the row turns these changes into the coverage.
    """
    c, s = (round(RADIUS * turn(radians(thing.turn))) for turn in (cos, sin))
    rotation = np.array([[c, s], [-s, c]])
    starts, ends = (
        (points @ rotation * thing.radius) // RADIUS**2 + (thing.x, thing.y) for points in outlines()[thing.shape]
    )
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
    background = np.add(DRAWING["backgrounds"][scene.background], scene.background_tint)
    canvas = np.broadcast_to(background, (SIDE, SIDE, 3)).copy()
    for thing in (scene.main, *scene.extras):
        colour = np.add(DRAWING["colours"][thing.colour], thing.tint)
        canvas += (colour - canvas) * coverage(thing)[:, :, None] // FULL
    # triangular noise, standard deviation 6.5 of 255, from the sum of two random bytes
    words = raw_words(scene.seed, scene.split, (0, 0, 1, scene.index + 1), SIDE * SIDE * 6 // 8)
    pairs = words.astype("<u8").view(np.uint8).reshape(2, SIDE, SIDE, 3).astype(np.int64)
    noise = (pairs.sum(axis=0) - 255 + 8) >> 4
    return Image.fromarray((canvas + noise).clip(0, 255).astype(np.uint8))
