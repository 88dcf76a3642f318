"""The linear probe on CLIP rows of CIFAR-10: 300 rows to train on, 512 dimensions, classes that can be separated."""

import numpy as np
import pytest
import torch

from clip_geometry.evaluate.linear_probe import Logistic, linear_probe, objective
from support import oracles_evaluators as oracles


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize(
    ("scale", "C", "accuracy"), [(1, 1, 0.865), (1, 100, 0.905), (1, 1e4, 0.915), (100, 1e4, 0.905), (1e6, 1, 0.9)]
)
def test_reaches_the_minimum_of_scikit_learn_s_newton(data, scale, C, accuracy, kind):
    """The reference: newton-cg with a tolerance that leaves nothing, in float64. Losses 1.6 to 6e-10."""
    folder = data / "embeddings/cifar10-500-clip-vit-b32"
    x = scale * np.load(folder / "image.npy").astype(np.float64)
    codes = np.unique(np.load(folder / "labels.npy"), return_inverse=True)[1]
    centered, y = x - x[:300].mean(0), codes[:300]
    model = oracles.exact_logistic(centered[:300], y, C)
    exact = Logistic(torch.from_numpy(model.coef_.T.copy()), torch.from_numpy(model.intercept_), 0)
    least = objective(torch.from_numpy(centered[:300]), torch.from_numpy(y), exact, C)
    found = linear_probe(x[:300].astype(kind), y, x[300:].astype(kind), codes[300:], C=C, solver="torch")
    assert found["loss"] == pytest.approx(least, rel=2e-4)
    assert found["top_1"] == pytest.approx(model.score(centered[300:], codes[300:]), abs=1e-9)
    assert found["top_1"] == pytest.approx(accuracy, abs=1e-9)
