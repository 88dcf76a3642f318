"""Transposed rows of real embeddings are remarked on, and no form of them that is in order."""

import numpy as np
import pytest

from clip_geometry.embeddings import Embeddings
from clip_geometry.search.checks.remarks import looks_transposed

CLIP = [
    *(f"coco500-clip-vit-b16{init}/{name}" for init in ("", "-random-init") for name in ("image", "text")),
    "cifar10-500-clip-vit-b32/image",
    *(f"class-names-clip-vit-b32/{name}" for name in ("cifar100", "coco80", "lvis", "openimages")),
]


@pytest.mark.parametrize("name", CLIP)
def test_transposed_rows_and_rows_in_order(data, name):
    x = np.load(data / "embeddings" / f"{name}.npy").astype(np.float64)
    centered = x - x.mean(0)
    u, _, v = np.linalg.svd(centered, full_matrices=False)
    forms = [
        *(x, centered, centered / x.std(0), x / np.sqrt(np.square(x).mean(0)), centered @ v[:64].T, u[:, :64]),
        x * np.random.default_rng(0).lognormal(0, 0.5, (len(x), 1)),
    ]
    assert not any(looks_transposed(Embeddings(each, "image")) for each in forms)
    assert looks_transposed(Embeddings(x.T, "image"))
