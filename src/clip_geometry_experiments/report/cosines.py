"""Cosines of the kinds of pairs that the report compares: all of them if they are few, otherwise a sample."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from clip_geometry.rows.matrix import as_rows, unit_rows

MAX_COSINES = 300_000  # per kind of pairs; more are sampled

Rows = NDArray[np.floating]
Pairs = tuple[NDArray[np.integer], NDArray[np.integer]]
Cosines = NDArray[np.float64]


def sampled_cosines(
    sets: Mapping[str, Rows], pairs: Pairs | None, rng: np.random.Generator
) -> tuple[dict[str, Cosines], bool]:
    """Cosines by kind of pairs.

    Args:
        sets: "image" and/or "text" → (n, d), n ≥ 2. There are no cosines between sets of different dimension.
        pairs: Index arrays, or None where nothing pairs.
        rng: Of the samples.

    Returns:
        Kind of pairs → cosines, and whether any kind was sampled.

    Raises:
        InputError: For zero rows, which have no direction.
    """
    unit = {name: unit_rows(as_rows(rows), name=name).numpy() for name, rows in sets.items()}
    kinds: dict[str, Cosines] = {}
    sizes = []
    if len(unit) == 2 and unit["image"].shape[1] == unit["text"].shape[1]:
        image, text = unit["image"], unit["text"]
        cells = len(image) * len(text)
        sizes = [cells, 0 if pairs is None else len(pairs[0])]
        drawn = np.arange(cells) if cells <= MAX_COSINES else rng.integers(cells, size=MAX_COSINES)
        if pairs is not None:
            left, right = (np.asarray(index) for index in pairs)
            drawn = drawn[~np.isin(drawn, left * len(text) + right)]  # rows that are not known to pair
            if len(left) > MAX_COSINES:
                chosen = rng.choice(len(left), MAX_COSINES, replace=False)
                left, right = left[chosen], right[chosen]
            kinds["matching pairs"] = _cosine(image, text, left, right)
        kinds["random image-text pairs"] = _cosine(image, text, *np.divmod(drawn, len(text)))
    for name, rows in unit.items():
        kinds[f"two different {name}s"] = _within(rows, rng)
        sizes.append(len(rows) * (len(rows) - 1) // 2)
    return {kind: cosines for kind, cosines in kinds.items() if len(cosines)}, max(sizes) > MAX_COSINES


def _within(unit: Rows, rng: np.random.Generator) -> Cosines:
    """Cosines of random pairs of different rows; all pairs where they are few."""
    n = len(unit)
    if n * (n - 1) // 2 <= MAX_COSINES:
        return (unit @ unit.T)[np.triu_indices(n, 1)]
    i = rng.integers(n, size=MAX_COSINES)
    j = (i + rng.integers(1, n, size=MAX_COSINES)) % n
    return _cosine(unit, unit, i, j)


def _cosine(x: Rows, y: Rows, i: NDArray, j: NDArray, block: int = 16384) -> Cosines:
    """Cosines of rows i of x with rows j of y, unit rows both, in blocks."""
    parts = [slice(start, start + block) for start in range(0, len(i), block)]
    return np.concatenate([np.einsum("nd,nd->n", x[i[p]], y[j[p]]) for p in parts] or [np.empty(0)])
