"""The interval of the drift holds simultaneously over the life of a baseline."""

from types import SimpleNamespace

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.search.monitoring.drift import drift
from support.clip_like import unit


def rows(n, rng, shift=0.0):
    spectrum = 1 / np.sqrt(1 + np.arange(32))
    return unit(rng.normal(size=(n, 32)) * spectrum + np.eye(32)[0] * (2 + shift))


def seen(x):
    return SimpleNamespace(mean=x.mean(0), valid=np.ones(len(x), dtype=bool))


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_the_interval_covers_the_true_drift_in_every_check(shift):
    rng = np.random.default_rng(0)
    clean, later = rows(200_000, rng).mean(0), rows(200_000, rng, shift).mean(0)
    missed = 0
    for _ in range(8):
        profile = cg.gate({"image": rows(300, rng)}, checks=90)["image"]
        true = np.linalg.norm(later - clean) / np.sqrt(1 - clean @ clean)
        found = [drift(profile, seen(rows(200, rng, shift)), 0.05 / 90) for _ in range(90)]
        missed += any(not each.low - 0.02 <= true <= each.high + 0.02 for each in found)
    assert missed <= 2  # 5% of 8 lives, and what chance adds


def test_the_interval_shrinks_with_the_rows_and_grows_with_confidence():
    rng = np.random.default_rng(1)
    profile = cg.gate({"image": rows(3000, rng)})["image"]
    width = [drift(profile, seen(rows(n, rng)), error).high for n, error in ((100, 0.01), (5000, 0.01), (5000, 1e-6))]
    assert width[1] < width[2] < width[0]
