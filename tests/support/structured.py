"""Populations of paired rows with structure, of which many samples can be drawn: clusters, narrow cones, hubs."""

import numpy as np

KINDS = ("clusters", "cone", "hubs")
D = 32
_FIXED = np.random.default_rng(12345)
_CENTERS = _FIXED.normal(size=(20, D)) / np.sqrt(D)
_OFFSETS = _FIXED.normal(size=(2, D)) / np.sqrt(D)
_AXES = np.arange(1, D + 1) ** -0.5
_AXES /= np.linalg.norm(_AXES)
GAPS = {"clusters": 0.7, "cone": 2.0, "hubs": 0.5}
_SHARES = np.array([0.25, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.04, 0.03, 0.03])


def drawn(kind, n, rng, noise=1.0):
    """Image rows, text rows and labels of n items: what both share, noise of each, and a modality gap.

    clusters: ten, of unequal size. cone: four classes about a mean far longer than their spread, and rows of unequal
    spread. hubs: 20 clusters; five texts, on average, lie at the center of a cluster of images, and are nearest to many
    of them. The spectrum falls in all of them. More noise lowers recall from 1 to chance level.
    """
    gap = GAPS[kind]
    if kind == "clusters":
        labels = rng.choice(10, n, p=_SHARES)
        latent = 1.2 * _CENTERS[labels] + 0.7 * rng.normal(size=(n, D)) * _AXES
    elif kind == "cone":
        labels = rng.integers(0, 4, n)
        latent = (rng.normal(size=(n, D)) + 8 * _CENTERS[labels]) * _AXES * np.exp(0.4 * rng.normal(size=(n, 1))) * 0.7
    else:
        labels = rng.integers(0, 20, n)
        latent = _CENTERS[labels] + 0.7 * rng.normal(size=(n, D)) * _AXES
    image, text = (latent + 0.4 * noise * rng.normal(size=(n, D)) * _AXES + gap * offset for offset in _OFFSETS)
    if kind == "hubs":
        hub = rng.random(n) < 5 / n
        text[hub] = _CENTERS[labels[hub]] + gap * _OFFSETS[1] + 0.01 * rng.normal(size=(int(hub.sum()), D))
    return *(rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (image, text)), labels


def prompts(kind):
    """A text row of each class of `drawn`, at the center of the class beside the gap, and the labels."""
    centers = {"clusters": 1.2 * _CENTERS[:10], "cone": 8 * _CENTERS[:4] * _AXES * 0.7, "hubs": _CENTERS}[kind]
    rows = centers + GAPS[kind] * _OFFSETS[1]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), np.arange(len(rows))


def noise(n, rng):
    """Isotropic rows without pairs, clusters or gap: the structureless case."""
    image, text = rng.normal(size=(2, n, D))
    return *(rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (image, text)), rng.integers(0, 4, n)
