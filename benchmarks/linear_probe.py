"""The linear probe's solver "torch" (SciPy's L-BFGS, loss and gradient in torch) against scikit-learn's, to the same
loss: C = 1, 100 classes, float32 unit rows.

The rows resemble CLIP's: a common offset, a decaying spectrum, overlapping classes. The value is the training loss of
the fit, in float64. scikit-learn stops by the gradient, and its default tolerance leaves the loss 5e-3 above the
minimum. The speedup is therefore claimed at the tolerance where both losses agree to 1e-4.
"""

import numpy as np
from contest import Contest, main

CLASSES = 100


def setup(n, d):
    import torch

    rng = np.random.default_rng(0)
    spectrum = np.geomspace(1, 0.1, d)
    labels = rng.integers(CLASSES, size=n)
    rows = rng.normal(size=(CLASSES, d))[labels] * 0.3 * spectrum + rng.normal(size=(n, d)) * spectrum
    rows += rng.normal(size=d) * spectrum
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return torch.from_numpy(rows.astype("float32")), torch.from_numpy(labels)


def ours(rows, labels):
    from clip_geometry.evaluate.linear_probe import fit_logistic, objective

    return objective(rows, labels, fit_logistic(rows, labels, CLASSES, C=1.0, max_iter=1000), 1.0)


def peer(tol):
    def fit(rows, labels):
        import torch
        from sklearn.linear_model import LogisticRegression

        from clip_geometry.evaluate.linear_probe import Logistic, objective

        model = LogisticRegression(max_iter=1000, tol=tol).fit(rows.numpy(), labels.numpy())
        weights, bias = torch.from_numpy(model.coef_.T.copy()), torch.from_numpy(model.intercept_)
        return objective(rows, labels, Logistic(weights, bias, 0), 1.0)

    return fit


def contest(name, tol, tolerance, faster=None):
    return Contest(
        name=name,
        setup=setup,
        ours=ours,
        peer=peer(tol),
        peer_package="scikit-learn",
        sizes=[{"n": 50_000, "d": 512}],
        quick={"n": 2_000, "d": 16},
        tolerance=tolerance,
        faster=faster,
    )


if __name__ == "__main__":
    main([contest("linear probe", 2e-5, 1e-4, faster=1.3), contest("linear probe, default tol", 1e-4, 1e-2)])
