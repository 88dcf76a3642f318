"""The eight shapes as closed polygons of integer points; 4096 is the radius of the circle around a shape, y is down."""

from collections.abc import Sequence
from functools import cache
from math import cos, hypot, pi, radians, sin, sqrt

import numpy as np

RADIUS = 4096

Points = list[tuple[float, float]]


def _polar(radii: Sequence[float], start: float = -90.0) -> Points:
    """Points at equal angles, in degrees from `start`, clockwise on the screen."""
    angles = [radians(start + 360 * k / len(radii)) for k in range(len(radii))]
    return [(radius * cos(angle), radius * sin(angle)) for radius, angle in zip(radii, angles, strict=True)]


def _cross() -> Points:
    width = 0.33
    length = sqrt(1 - width**2)
    arm = [(-width, -length), (width, -length), (width, -width)]  # and three quarter turns of it
    return [point for quarter in range(4) for point in (_quarter_turns(p, quarter) for p in arm)]


def _quarter_turns(point: tuple[float, float], n: int) -> tuple[float, float]:
    x, y = point
    return [(x, y), (-y, x), (-x, -y), (y, -x)][n]


def _heart() -> Points:
    angles = [2 * pi * k / 40 for k in range(40)]
    return _fitted(
        [
            (16 * sin(t) ** 3, -(13 * cos(t) - 5 * cos(2 * t) - 2 * cos(3 * t) - cos(4 * t)))  # known curve of a heart
            for t in angles
        ]
    )


def _crescent() -> Points:
    """The unit disc less a disc of radius .82 whose centre lies .55 to its right."""
    inner, shift = 0.82, 0.55
    x = (1 - inner**2 + shift**2) / (2 * shift)
    y = sqrt(1 - x**2)  # the circles meet at (x, ±y)
    outer_angle, inner_angle = np.arctan2(y, x), np.arctan2(y, x - shift)
    outer = [(cos(a), sin(a)) for a in np.linspace(outer_angle, 2 * pi - outer_angle, 36)]
    hollow = [(shift + inner * cos(a), inner * sin(a)) for a in np.linspace(2 * pi - inner_angle, inner_angle, 28)]
    return _fitted(outer + hollow[1:-1])


def _fitted(points: Points) -> Points:
    """Moved so that the middle of the bounding box is the origin, scaled so that the farthest point is at 1."""
    x, y = zip(*points, strict=True)
    middle = (min(x) + max(x)) / 2, (min(y) + max(y)) / 2
    points = [(a - middle[0], b - middle[1]) for a, b in points]
    reach = max(hypot(*point) for point in points)
    return [(a / reach, b / reach) for a, b in points]


def _rings() -> dict[str, list[Points]]:
    return {
        "circle": [_polar([0.9] * 48)],
        "square": [_polar([1.0] * 4, start=-45.0)],
        "triangle": [_fitted(_polar([1.0] * 3))],
        "star": [_fitted(_polar([1.0, 0.43] * 5))],
        "cross": [_cross()],
        "ring": [_polar([0.95] * 48), _polar([0.55] * 48)[::-1]],  # a hole runs the other way
        "heart": [_heart()],
        "crescent": [_crescent()],
    }


@cache
def outlines() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each shape its edges: starts and ends, (m, 2) int64 each; the inside lies on the same hand of all edges."""
    edges = {}
    for shape, rings in _rings().items():
        # rounding to integers here keeps the last bits of cos and sin, which differ between machines, out of it
        whole = [np.array([[round(RADIUS * x), round(RADIUS * y)] for x, y in ring]) for ring in rings]
        edges[shape] = np.concatenate(whole), np.concatenate([np.roll(ring, -1, axis=0) for ring in whole])
    return edges
