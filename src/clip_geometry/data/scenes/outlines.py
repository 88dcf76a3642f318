"""The eight shapes as closed polygons of integer points; 4096 is the radius of the circle around a shape, y is down."""

from collections.abc import Sequence
from functools import cache
from math import cos, hypot, pi, radians, sin, sqrt

import numpy as np

RADIUS = 4096

Points = list[tuple[float, float]]


def _polar(radii: Sequence[float], start: float = -90.0) -> Points:
    """Return points at equal angles, in degrees from `start`, clockwise on the screen."""
    angles = [radians(start + 360 * k / len(radii)) for k in range(len(radii))]
    return [(radius * cos(angle), radius * sin(angle)) for radius, angle in zip(radii, angles, strict=True)]


def _cross() -> Points:
    width = 0.33
    length = sqrt(1 - width**2)
    arm = [(-width, -length), (width, -length), (width, -width)]
    quarter_turns = [lambda x, y: (x, y), lambda x, y: (-y, x), lambda x, y: (-x, -y), lambda x, y: (y, -x)]
    return [turned(x, y) for turned in quarter_turns for x, y in arm]


def _heart() -> Points:
    angles = [2 * pi * k / 40 for k in range(40)]
    return _fitted(
        [
            (16 * sin(t) ** 3, -(13 * cos(t) - 5 * cos(2 * t) - 2 * cos(3 * t) - cos(4 * t)))  # known curve of a heart
            for t in angles
        ]
    )


def _crescent() -> Points:
    """Return the unit disc minus a disc of radius 0.82 whose center is 0.55 to its right."""
    inner, shift = 0.82, 0.55
    x = (1 - inner**2 + shift**2) / (2 * shift)
    y = sqrt(1 - x**2)  # the circles meet at (x, ±y)
    outer_angle, inner_angle = np.arctan2(y, x), np.arctan2(y, x - shift)
    outer = [(cos(a), sin(a)) for a in np.linspace(outer_angle, 2 * pi - outer_angle, 36)]
    hollow = [(shift + inner * cos(a), inner * sin(a)) for a in np.linspace(2 * pi - inner_angle, inner_angle, 28)]
    return _fitted(outer + hollow[1:-1])


def _fitted(points: Points) -> Points:
    """Center the bounding box at the origin and scale the farthest point to length 1."""
    x, y = zip(*points, strict=True)
    middle = (min(x) + max(x)) / 2, (min(y) + max(y)) / 2
    points = [(a - middle[0], b - middle[1]) for a, b in points]
    reach = max(hypot(*point) for point in points)
    return [(a / reach, b / reach) for a, b in points]


@cache
def outlines() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the edges of each shape: starts and ends, (m, 2) int64 each; the inside is on the same side of all."""
    shapes = {
        "circle": [_polar([0.9] * 48)],
        "square": [_polar([1.0] * 4, start=-45.0)],
        "triangle": [_fitted(_polar([1.0] * 3))],
        "star": [_fitted(_polar([1.0, 0.43] * 5))],
        "cross": [_cross()],
        "ring": [_polar([0.95] * 48), _polar([0.55] * 48)[::-1]],  # a hole runs the other way
        "heart": [_heart()],
        "crescent": [_crescent()],
    }
    edges = {}
    for shape, rings in shapes.items():
        # rounding to integers removes the last bits of cos and sin, which differ between machines
        whole = [np.array([[round(RADIUS * x), round(RADIUS * y)] for x, y in ring]) for ring in rings]
        edges[shape] = np.concatenate(whole), np.concatenate([np.roll(ring, -1, axis=0) for ring in whole])
    return edges
