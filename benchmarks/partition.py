"""Partition isotropy I1 of float32 rows against the textbook version: eigenvectors and a numpy loop over directions."""

import numpy as np
from contest import Contest, main


def setup(n, d):
    """Unit rows in a cone."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, d)) + rng.normal(size=d)
    return ((rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("float32"),)


def ours(rows):
    from clip_geometry.geometry import partition_isotropy

    return partition_isotropy(rows).i1


def peer(rows):
    rows = rows.astype("float64")
    _, vectors = np.linalg.eigh(rows.T @ rows)
    z = [np.exp(rows @ v).sum() for v in (*vectors.T, *-vectors.T)]
    return min(z) / max(z)


if __name__ == "__main__":
    main(
        [
            Contest(
                name="partition_isotropy",
                setup=setup,
                ours=ours,
                peer=peer,
                peer_package="numpy",
                sizes=[{"n": 10_000, "d": 512}, {"n": 50_000, "d": 512}],
                quick={"n": 300, "d": 16},
                tolerance=1e-9,
            )
        ]
    )
