"""IsoScore of float32 rows against the IsoScore package (which decomposes the covariance of float32 rows)."""

import numpy as np
from contest import Contest, main


def setup(n, d):
    """Rows with a common offset and a spectrum that decays by a factor of ten."""
    rng = np.random.default_rng(0)
    return ((rng.normal(size=(n, d)) * np.geomspace(1, 0.1, d) + rng.normal(size=d)).astype("float32"),)


def ours(rows):
    from clip_geometry.geometry import isoscore

    return isoscore(rows)


def peer(rows):
    from IsoScore import IsoScore

    return IsoScore.IsoScore(rows)


def contest(faster, **size):
    return Contest(
        name="isoscore",
        setup=setup,
        ours=ours,
        peer=peer,
        peer_package="IsoScore",
        sizes=[size],
        quick={"n": 300, "d": 16},
        tolerance=1e-5,  # the package works in float32
        rounds=5,
        faster=faster,
    )


if __name__ == "__main__":
    main([contest(2, n=4096, d=2048), contest(1, n=10_662, d=384)])
