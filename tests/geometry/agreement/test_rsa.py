import sys

import numpy as np
import pytest
import torch

from clip_geometry.geometry import rsa, standard_error
from clip_geometry.registry import InputError
from support.clouds import cone, rotation

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_keeps_the_order_of_cosines_agrees_fully(seed):
    rng = np.random.default_rng(seed)
    x = cone(30, 6, rng)
    assert rsa(x, -3 * x @ rotation(6, rng)) == pytest.approx(1, abs=1e-12)


def test_independent_sets_do_not_agree():
    values = [rsa(*np.random.default_rng(seed).normal(size=(2, 30, 5))) for seed in range(60)]
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(60)


def test_three_pairs():
    """Cosines 0.995, 0.894 and 0.937 have ranks 3, 1 and 2, those of the others 1, 2 and 3."""
    x = np.array([[1, 0], [1, 0.1], [1, 0.5]])
    y = np.linalg.cholesky([[1, 0.2, 0.5], [0.2, 1, 0.8], [0.5, 0.8, 1]])
    assert rsa(x, y) == pytest.approx(-0.5, rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_jackknife_from_one_order_is_that_of_each_subset(seed):
    rng = np.random.default_rng(seed)
    x = np.repeat(cone(20, 5, rng), 2, axis=0)  # copies: ties
    y = x @ rng.normal(size=(5, 7)) + rng.normal(size=(40, 7))
    assert standard_error("rsa", x, y, blocks=10) == pytest.approx(standard_error(rsa, x, y, blocks=10), rel=1e-9)


def test_no_order_is_an_error():
    x = np.random.default_rng(0).normal(size=(12, 5))
    with pytest.raises(InputError, match="all cosines of text are equal"):
        rsa(x, np.eye(12) @ rotation(12, np.random.default_rng(0)))
    with pytest.raises(InputError, match="all 12 rows of image are equal"):
        rsa(np.ones((12, 3)), x)


def test_too_many_pairs_for_memory(monkeypatch):
    monkeypatch.setattr(sys.modules["clip_geometry.geometry.agreement.rsa"], "memory", lambda: 1000)
    x = torch.randn(20, 4)
    with pytest.raises(InputError, match="the 190 pairs of 20 rows do not fit into memory"):
        rsa(x, x)
