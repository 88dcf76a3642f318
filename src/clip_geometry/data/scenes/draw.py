"""The content and the image of a scene, which are determined by (seed, split, k) for scene k.

All draws are raw words of the counter-based generator Philox, whose bit stream NumPy guarantees (NEP 19). They are
converted to integers by integer arithmetic, so that a scene is the same on every machine and under every NumPy version.
Lengths are integers in 1/256 pixel, and angles are whole degrees. Images are also rendered in integer arithmetic only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import cos, radians, sin
from pathlib import Path

import numpy as np
from PIL import Image

from clip_geometry.catalog import read_yaml

SIDE = 64  # pixels
PIXEL = 256  # length units per pixel

DRAWING = read_yaml(Path(__file__).with_name("drawing.yaml"))
SHAPES, COLOURS, BACKGROUNDS = (tuple(DRAWING[key]) for key in ("shapes", "colours", "backgrounds"))
PLACES = {name: tuple(steps) for name, steps in DRAWING["places"].items()}
RADII = {size: tuple(int(radius * PIXEL) for radius in radii) for size, radii in DRAWING["radii"].items()}
MAIN_SIZES = ("small", "large", "huge")
CAPTIONS = 5
CLASSES = len(SHAPES) * len(COLOURS)  # label = shape * 10 + colour


# shape s is held out in the colors s and s + 4 (modulo 10), so each shape occurs twice and each color once or twice
HELD_OUT = tuple(sorted(s * len(COLOURS) + (s + step) % len(COLOURS) for s in range(len(SHAPES)) for step in (0, 4)))
SEEN = tuple(label for label in range(CLASSES) if label not in HELD_OUT)

_SPLITS = {"train": 0, "test": 1}


@dataclass(frozen=True)
class Thing:
    """An object in a scene.

    Attributes:
        label: Its class, i.e. shape and color.
        x, y, radius: Center and radius of the circle around it.
        tint: Added to its RGB color.
    """

    label: int
    size: str
    x: int
    y: int
    radius: int
    turn: int
    tint: tuple[int, ...]

    @property
    def shape(self) -> str:
        return SHAPES[self.label // len(COLOURS)]

    @property
    def colour(self) -> str:
        return COLOURS[self.label % len(COLOURS)]


@dataclass(frozen=True)
class Scene:
    """The content of a scene.

    Attributes:
        order: The caption templates (of five) that the first, second, … caption uses.
    """

    seed: int
    split: str
    index: int
    main: Thing
    extras: tuple[Thing, ...]
    place: str
    background: str
    background_tint: tuple[int, ...]
    order: tuple[int, ...]


class _Draws:
    """Uniform integers from raw 64-bit words."""

    def __init__(self, words: np.ndarray):
        self._words = iter(words.tolist())

    def below(self, n: int) -> int:
        return ((next(self._words) >> 32) * n) >> 32  # uniform up to a bias of n / 2**32

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def choice(self, options: Sequence):
        return options[self.below(len(options))]

    def tint(self, shade: int, hue: int) -> tuple[int, ...]:
        """Draw a change of RGB: up to ±shade for all channels together, plus up to ±hue for each channel."""
        common = self.between(-shade, shade)
        return tuple(common + self.between(-hue, hue) for _ in range(3))

    def permutation(self, n: int) -> tuple[int, ...]:
        remaining = list(range(n))
        return tuple(remaining.pop(self.below(len(remaining))) for _ in range(n))


def raw_words(seed: int, split: str, counter: Sequence[int], n: int) -> np.ndarray:
    """Return n words of the stream of (seed, split), starting at a 256-bit counter.

    The counter is given as four parts, least significant first. The most significant part is 0 for the labels and k + 1
    for scene k; the part before it is 1 for the noise of the scene.
    """
    key = np.array([seed, _SPLITS[split]], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array(counter, dtype=np.uint64)).random_raw(n)


def labels(seed: int, split: str, n: int) -> np.ndarray:
    """Return the labels of scenes 0, …, n - 1, (n,) int64."""
    words = raw_words(seed, split, (0, 0, 0, 0), n)
    return (((words >> np.uint64(32)) * np.uint64(CLASSES)) >> np.uint64(32)).astype(np.int64)


def sample(seed: int, split: str, index: int) -> Scene:
    """Return scene number `index`."""
    block = raw_words(seed, split, (index // 4, 0, 0, 0), 4)  # a counter value of Philox gives four words
    label = ((int(block[index % 4]) >> 32) * CLASSES) >> 32
    draws = _Draws(raw_words(seed, split, (0, 0, 0, index + 1), 48))
    place = draws.choice(tuple(PLACES))
    size = draws.choice(MAIN_SIZES)
    radius = draws.between(*RADII[size])
    free = SIDE // 2 * PIXEL - PIXEL - radius  # largest distance of the main object from the center
    center = []
    for step in PLACES[place]:
        offset = step * draws.between(free * 7 // 8, free) if step else draws.between(-free // 8, free // 8)
        center.append(SIDE // 2 * PIXEL + offset)
    x, y = center
    main = Thing(label, size, x, y, radius, draws.between(-12, 12), draws.tint(6, 6))
    return Scene(
        seed=seed,
        split=split,
        index=index,
        main=main,
        extras=_extras(draws, main),
        place=place,
        background=draws.choice(BACKGROUNDS),
        background_tint=draws.tint(8, 3),
        order=draws.permutation(CAPTIONS),
    )


def _extras(draws: _Draws, main: Thing) -> tuple[Thing, ...]:
    """Draw 0 to 2 tiny objects of other, not held-out classes that do not touch any other object."""
    things = [main]
    for _ in range(draws.below(3)):
        taken = {thing.label for thing in things}
        label = draws.choice([seen for seen in SEEN if seen not in taken])
        radius = draws.between(*RADII["tiny"])
        # possible centers, in steps of a pixel, at least a pixel away from the edge and from all objects
        line = np.arange(radius + PIXEL, SIDE * PIXEL - radius - PIXEL + 1, PIXEL)
        free = np.ones((len(line), len(line)), dtype=bool)
        for thing in things:
            squared_distance = (line[None, :] - thing.x) ** 2 + (line[:, None] - thing.y) ** 2
            free &= squared_distance >= (radius + thing.radius + PIXEL) ** 2
        rows, columns = np.nonzero(free)
        k = draws.below(len(rows))
        x, y = line[columns[k]].item(), line[rows[k]].item()
        things.append(Thing(label, "tiny", x, y, radius, draws.between(-12, 12), draws.tint(6, 6)))
    return tuple(things[1:])


# --- rendering

RADIUS = 4096  # radius of the circle around the outline of a shape
_LINES = 4  # scan lines per pixel; along a line, the coverage is exact to 1/256 pixel
FULL = _LINES * PIXEL


@cache
def outlines() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return shape → (starts, ends) of the edges of its closed polygons in outlines.yaml, (m, 2) int64 each."""
    edges = {}
    for shape, polygons in read_yaml(Path(__file__).with_name("outlines.yaml")).items():
        points = [np.array(polygon) for polygon in polygons]
        starts = np.concatenate(points)
        ends = np.concatenate([np.roll(polygon, -1, axis=0) for polygon in points])
        edges[shape] = starts, ends
    return edges


def coverage(thing: Thing) -> np.ndarray:
    """Return how much of each pixel the object covers, (64, 64) int64 from 0 to FULL.

    Where a scan line crosses an edge of the outline, the coverage changes by the part of the pixel to the right of the
    crossing. A cumulative sum along the row converts these changes to the coverage.
    """
    c = round(RADIUS * cos(radians(thing.turn)))
    s = round(RADIUS * sin(radians(thing.turn)))
    rotation = np.array([[c, s], [-s, c]])
    starts, ends = (
        (points @ rotation * thing.radius) // RADIUS**2 + (thing.x, thing.y) for points in outlines()[thing.shape]
    )
    lines = PIXEL // (2 * _LINES) + np.arange(SIDE * _LINES) * (PIXEL // _LINES)
    edge, line = np.nonzero((starts[:, 1:] <= lines) != (ends[:, 1:] <= lines))
    x, y = starts[edge].T
    dx, dy = (ends - starts)[edge].T
    crossing = x + (lines[line] - y) * dx // dy
    pixel, part = np.divmod(crossing, PIXEL)
    change = (line // _LINES) * (SIDE + 1) + pixel
    size = SIDE * (SIDE + 1)
    # bincount sums in float64, which is exact for integers
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
    # triangular noise with standard deviation 6.5 (of 255), from the sum of two random bytes
    words = raw_words(scene.seed, scene.split, (0, 0, 1, scene.index + 1), SIDE * SIDE * 6 // 8)
    pairs = words.astype("<u8").view(np.uint8).reshape(2, SIDE, SIDE, 3).astype(np.int64)
    noise = (pairs.sum(axis=0) - 255 + 8) >> 4
    return Image.fromarray((canvas + noise).clip(0, 255).astype(np.uint8))
