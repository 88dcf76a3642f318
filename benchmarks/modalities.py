"""The core of five modalities with its standard errors, against numpy; retrieval, against float64 products in numpy."""

from itertools import combinations

import numpy as np
from contest import Contest, main

NAMES = ("image", "en", "de", "fr", "ru")
BLOCKS = 20
ACROSS = ("modality_gap", "relative_modality_gap", "matching_cosine", "random_cosine")


def setup(n, d, m):
    """Rows of one item share a low-rank part; each modality has a mean and noise of its own."""
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(n, d // 8)) @ rng.normal(size=(d // 8, d)) / np.sqrt(d // 8)
    return [(shared + 0.4 * rng.normal(size=(n, d)) + 0.3 * rng.normal(size=d)).astype("float32") for _ in range(m)]


def table(*sets):
    """Value and standard error of what numpy below computes, out of the whole core, null values included."""
    import clip_geometry as cg

    result = cg.measure(dict(zip(NAMES, sets, strict=True)))
    couples = ["+".join(sorted(couple)) for couple in combinations(NAMES, 2)]
    rows = [*(("average_cosine", name) for name in NAMES), *((name, place) for name in ACROSS for place in couples)]
    return np.array([result[each][:2] for each in rows])


def couple_by_couple(*sets):
    from clip_geometry.geometry.uncertainty import assign_blocks

    unit = [x.astype(float) / np.linalg.norm(x.astype(float), axis=1, keepdims=True) for x in sets]
    block_of = assign_blocks(len(sets[0]), BLOCKS, 0).numpy()
    kept = [slice(None), *(block_of != block for block in range(BLOCKS))]
    rows = [[average_cosine(x[some]) for some in kept] for x in unit]
    found = np.array([[across(x[some], y[some]) for some in kept] for x, y in combinations(unit, 2)])
    values = np.array([*rows, *np.moveaxis(found, 2, 0).reshape(-1, BLOCKS + 1)])
    errors = np.sqrt((BLOCKS - 1) * values[:, 1:].var(axis=1))
    return np.stack((values[:, 0], errors), axis=1)


def average_cosine(x):
    n, total = len(x), x.sum(0)
    return (total @ total - n) / (n * (n - 1))


def across(x, y):
    n, matching = len(x), (x * y).sum(1).mean()
    apart, within = (1 - matching) / 2, (2 - average_cosine(x) - average_cosine(y)) / 4
    random = (x.sum(0) @ y.sum(0) - n * matching) / (n * (n - 1))
    return np.linalg.norm(x.mean(0) - y.mean(0)), apart / (apart + within), matching, random


def ranks(image, text):
    from clip_geometry.evaluate import retrieval

    return np.array(list(retrieval(image, text).values()))


def by_products(image, text):
    u, v = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (image.astype(float), text.astype(float)))
    found = []
    for one, other in ((u, v), (v, u)):
        parts = [slice(start, start + 1024) for start in range(0, len(one), 1024)]
        least = (one * other).sum(1)
        rank = np.concatenate([(one[part] @ other.T >= least[part, None] - 1e-15).sum(1) for part in parts])
        found += [*((rank <= top).mean() for top in (1, 5, 10)), np.median(rank)]
    return np.array(found)


if __name__ == "__main__":
    size, quick = {"n": 10_000, "d": 512}, {"n": 400, "d": 32}
    main(
        [
            Contest(
                "core of 5 modalities",
                setup,
                table,
                couple_by_couple,
                "numpy",
                [{**size, "m": 5}],
                {**quick, "m": 5},
                tolerance=1e-6,  # unit rows are float32 in a pipeline
                rounds=1,
            ),
            Contest(
                "retrieval", setup, ranks, by_products, "numpy", [{**size, "m": 2}], {**quick, "m": 2}, 0, rounds=3
            ),
        ]
    )
