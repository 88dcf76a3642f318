"""Local intrinsic dimension (harmonic mean) against scikit-dimension's MLE, with scikit-learn's neighbor search."""

import numpy as np
from contest import Contest, main

SIZES = [{"n": 5_000, "d": 128, "k": 20}, {"n": 5_000, "d": 128, "k": 100}, {"n": 4_000, "d": 10, "k": 20}]


def setup(n, d, k):
    return np.random.default_rng(0).normal(size=(n, d)).astype("float32"), k


def ours(rows, k):
    from clip_geometry.geometry import local_intrinsic_dimension

    return local_intrinsic_dimension(rows, k=k)


def peer(rows, k):
    from skdim.id import MLE

    return MLE(neighborhood_based=True, unbiased=False).fit_transform(rows, n_neighbors=k, comb="mle", n_jobs=2)


if __name__ == "__main__":
    main(
        [
            Contest(
                name="lid",
                setup=setup,
                ours=ours,
                peer=peer,
                peer_package="scikit-dimension",
                sizes=SIZES,
                quick={"n": 200, "d": 16, "k": 10},
                tolerance=1e-3,  # the peer's distances of float32 rows have about seven digits
                rounds=5,
            )
        ]
    )
