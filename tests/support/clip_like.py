"""Generated rows that look like those of a CLIP, for tests of the diagnosis."""

import numpy as np


def unit(x):
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def clip_like(n, d=64, seed=0, space=0):
    """Image and text rows as CLIP's: two cones of anisotropic Gaussians around the same factors of each pair.

    space: seed of the cones and factors, which rows of one model share.
    """
    model, generator = np.random.default_rng([1, space]), np.random.default_rng([2, seed])
    spectrum = 1 / np.sqrt(1 + np.arange(d))
    basis = np.linalg.qr(model.normal(size=(d, d)))[0] * spectrum
    cones = model.normal(size=(2, d)) / np.sqrt(d) * 2
    factors = generator.normal(size=(n, d))
    noise = generator.normal(size=(2, n, d))
    rows = [unit(cone + (factors + 0.4 * each) @ basis.T) for cone, each in zip(cones, noise, strict=True)]
    return {"image": rows[0], "text": rows[1]}
