"""A small mixed index: items of several modalities that share latent factors, each modality around its own mean."""

import numpy as np

from clip_geometry.search.relevance import Relevance
from clip_geometry.search.repairs import Known

NAMES = ("image", "text", "audio")
CLASSES = 20


def rows(seed=0, *, n=100, d=70, names=NAMES[:2], noise=0.6, gap=1.2):
    """Modality → (n, d) rows of different lengths; row i of every modality is of the same item, of class i mod 20."""
    offsets = gap * np.random.default_rng(7).normal(size=(len(names), d))
    rng = np.random.default_rng(seed)
    latent = np.random.default_rng(8).normal(size=(CLASSES, d))[np.arange(n) % CLASSES] + 0.7 * rng.normal(size=(n, d))
    return {
        name: (latent + noise * rng.normal(size=(n, d)) + offset) * rng.uniform(0.5, 2, size=(n, 1))
        for name, offset in zip(names, offsets, strict=True)
    }


def labelled(sets, **more):
    """The rows with their classes known."""
    labels = {name: np.arange(len(x)) % CLASSES for name, x in sets.items()}
    return Known(sets, Relevance.of_labels(**labels), **more)


def paired(sets, **more):
    """Images and texts paired by position."""
    n = len(sets["image"])
    return Known(sets, Relevance.of_labels(image=np.arange(n), text=np.arange(n), within=False), **more)
