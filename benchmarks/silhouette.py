"""Silhouette of labeled float32 rows in three metrics, against scikit-learn's silhouette_score."""

import numpy as np
from contest import Contest, main

CLAIMS = {
    "euclidean": {"faster": 2.5, "memory": 0.25},
    "sqeuclidean": {"faster": 50, "rounds": 1},  # scikit-learn takes two minutes
    "cosine": {"faster": 50},
}
CLASSES = (2, 100)


def setup(n, d, k):
    """Gaussian classes whose centers are as far apart as their rows."""
    rng = np.random.default_rng(0)
    labels = rng.integers(k, size=n)
    rows = rng.normal(size=(k, d))[labels] + rng.normal(size=(n, d))
    return rows.astype("float32"), labels


def ours(metric):
    from clip_geometry.geometry import silhouette

    return lambda rows, labels: silhouette(rows, labels, metric=metric)


def peer(metric):
    from sklearn.metrics import silhouette_score

    return lambda rows, labels: silhouette_score(rows, labels, metric=metric)


def contest(metric, n, **claims):
    return Contest(
        name=f"silhouette[{metric}]",
        setup=setup,
        ours=ours(metric),
        peer=peer(metric),
        peer_package="scikit-learn",
        sizes=[{"n": n, "d": 512, "k": k} for k in CLASSES],
        quick={"n": 200, "d": 16, "k": 3},
        tolerance=1e-6,
        **claims,
    )


if __name__ == "__main__":
    # small sizes show the scaling; the claims concern the large one
    small = [contest(metric, 10_000, rounds=1) for metric in CLAIMS]
    main(small + [contest(metric, 20_000, **claims) for metric, claims in CLAIMS.items()])
