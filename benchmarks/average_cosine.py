"""Average cosine of float32 rows, linear in n, against the mean of scikit-learn's pairwise cosine matrix."""

import numpy as np
from contest import Contest, main


def setup(n, d):
    """Rows in a cone."""
    rng = np.random.default_rng(0)
    return ((rng.normal(size=(n, d)) + rng.normal(size=d)).astype("float32"),)


def ours(rows):
    from clip_geometry.geometry import average_cosine

    return average_cosine(rows)


def peer(rows):
    from sklearn.metrics.pairwise import cosine_similarity

    n = len(rows)
    return (cosine_similarity(rows).sum(dtype="float64") - n) / (n * (n - 1))


def contest(n, faster=None):
    return Contest(
        name="average_cosine",
        setup=setup,
        ours=ours,
        peer=peer,
        peer_package="scikit-learn",
        sizes=[{"n": n, "d": 512}],
        quick={"n": 300, "d": 16},
        tolerance=1e-6,  # the peer's products are float32
        faster=faster,
    )


if __name__ == "__main__":
    main([contest(2_000), contest(20_000, faster=2)])
