"""TwoNN of float32 rows against scikit-dimension's, up to 25 dimensions (where it searches a tree) and beyond."""

import numpy as np
from contest import Contest, main

SIZES = [{"n": 5_000, "d": 128}, {"n": 20_000, "d": 128}]
FEW_DIMENSIONS = [{"n": 5_000, "d": 10}]


def setup(n, d):
    return (np.random.default_rng(0).normal(size=(n, d)).astype("float32"),)


def ours(rows):
    from clip_geometry.geometry import two_nn

    return two_nn(rows)


def peer(rows):
    from skdim.id import TwoNN

    return TwoNN(discard_fraction=0.1, method="linear").fit_transform(rows)


def contest(name, sizes, **claims):
    # the peer's distances are float32 products of float32 rows, so its value has six digits
    return Contest(
        name=name,
        setup=setup,
        ours=ours,
        peer=peer,
        peer_package="scikit-dimension",
        sizes=sizes,
        quick={"n": 200, "d": sizes[0]["d"]},
        tolerance=1e-3,
        rounds=5,
        **claims,
    )


if __name__ == "__main__":
    main([contest("two_nn", SIZES, faster=2), contest("two_nn, few dimensions", FEW_DIMENSIONS)])
