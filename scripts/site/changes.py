"""A drawn collection of images and captions, and the changes whose effect on each measure the site shows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clip_geometry.geometry import Measure
from clip_geometry.registry import InputError

N, D, CLASSES = 240, 16, 8


@dataclass(frozen=True)
class Drawn:
    """Images, their captions and classes, and a text for each class."""

    image: np.ndarray
    text: np.ndarray
    labels: np.ndarray
    class_text: np.ndarray

    def each(self, change: Callable[[np.ndarray], np.ndarray]) -> "Drawn":
        """The same change of all rows."""
        return replace(self, image=change(self.image), text=change(self.text), class_text=change(self.class_text))


def drawn(seed: int = 0) -> Drawn:
    """Classes, items within them, unequal axes, an offset for each modality, noise of each row."""
    rng = np.random.default_rng(seed)
    axes = np.linspace(1.6, 0.4, D)
    labels = np.arange(N) * 7 % 11 % CLASSES
    centers = 0.8 * rng.normal(size=(CLASSES, D)) * axes
    items = centers[labels] + 0.6 * rng.normal(size=(N, D)) * axes
    offset = {name: rng.normal(size=D) * 0.5 for name in ("image", "text")}
    image = items + 0.4 * rng.normal(size=(N, D)) + offset["image"]
    text = items + 0.4 * rng.normal(size=(N, D)) + offset["text"]
    return Drawn(image, text, labels, centers + 0.4 * rng.normal(size=(CLASSES, D)) + offset["text"])


def _whitened(world: Drawn) -> Drawn:
    rows = np.concatenate([world.image, world.text])
    mean = rows.mean(0)
    values, vectors = np.linalg.eigh(np.cov(rows.T))
    return world.each(lambda x: (x - mean) @ (vectors / np.sqrt(values)))


def _centered(world: Drawn) -> Drawn:
    mean = world.text.mean(0)
    return replace(
        world, image=world.image - world.image.mean(0), text=world.text - mean, class_text=world.class_text - mean
    )


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _outlier(world: Drawn) -> Drawn:
    image, text = world.image.copy(), world.text.copy()
    image[0] *= -10
    text[0] *= -10
    return replace(world, image=image, text=text)


def changes() -> dict[str, tuple[str, Callable[[Drawn], Drawn]]]:
    """What is changed → what a measure must take to see it ("" for all), and the change."""
    rng = np.random.default_rng(1)
    turn = np.linalg.qr(rng.normal(size=(D, D)))[0]
    offset, gap = 1.5 * rng.normal(size=D), rng.normal(size=D)
    stretch = np.ones(D)
    stretch[0] = 5
    lengths = {"image": rng.lognormal(sigma=0.5, size=(N, 1)), "text": rng.lognormal(sigma=0.5, size=(N, 1))}
    noise = {"image": rng.normal(size=(N, D)), "text": rng.normal(size=(N, D))}
    order = rng.permutation(N)
    return {
        "rotated": ("", lambda w: w.each(lambda x: x @ turn)),
        "one vector added": ("", lambda w: w.each(lambda x: x + offset)),
        "all rows × 3": ("", lambda w: w.each(lambda x: 3 * x)),
        "lengths varied": (
            "",
            lambda w: replace(w, image=w.image * lengths["image"], text=w.text * lengths["text"]),
        ),
        "unit length": ("", lambda w: w.each(_unit)),
        "each centered": ("", _centered),
        "whitened": ("", _whitened),
        "one axis × 5": ("", lambda w: w.each(lambda x: x * stretch)),
        "noise added": ("", lambda w: replace(w, image=w.image + noise["image"], text=w.text + noise["text"])),
        "one outlier": ("", _outlier),
        "half of the rows": (
            "",
            lambda w: replace(w, image=w.image[::2], text=w.text[::2], labels=w.labels[::2]),
        ),
        "texts moved off": ("text", lambda w: replace(w, text=w.text + gap, class_text=w.class_text + gap)),
        "sets exchanged": ("pair", lambda w: replace(w, image=w.text, text=w.image)),
        "texts shuffled": ("pair", lambda w: replace(w, text=w.text[order])),
        "labels shuffled": ("labels", lambda w: replace(w, labels=w.labels[order[: len(w.labels)] % len(w.labels)])),
    }


def arguments(measure: Measure, world: Drawn) -> tuple[Any, ...]:
    """What the measure takes, of this collection."""
    half = len(world.image) // 2
    fit, test = slice(0, half), slice(half, None)
    by_kind: dict[str, tuple[Any, ...]] = {
        "rows": (world.image,),
        "labeled rows": (world.image, world.labels),
        "classes": (world.image, world.labels, world.class_text),
        "train and test": (world.image[fit], world.labels[fit], world.image[test], world.labels[test]),
    }
    return by_kind.get(measure.takes, (world.image, world.text))


def sees(measure: Measure, what: str) -> bool:
    """Whether a change can reach the measure: one of captions, of labels or of how two sets pair."""
    takes = measure.inputs.arguments
    if what == "labels":
        return "labels" in takes or "train_y" in takes
    if what == "pair":
        return takes == ("image", "text")
    return not what or (len(takes) > 1 and takes[0] not in ("x", "train_x"))


def value(measure: Measure, world: Drawn) -> float | None:
    """The measure of this collection; None where it is not defined."""
    try:
        return float(measure(*arguments(measure, world)))
    except InputError:
        return None


def effects(measure: Measure) -> tuple[float | None, dict[str, float | None]]:
    """The measure as drawn, and after each change."""
    world = drawn()
    after = {name: value(measure, change(world)) for name, (what, change) in changes().items() if sees(measure, what)}
    return value(measure, world), after
