import numpy as np
import pytest
import torch

from clip_geometry.evaluators.cosine_distributions import cosine_distributions, cosine_histograms
from clip_geometry.geometry import matching_cosine, random_cosine
from clip_geometry.registry import InputError
from support import oracles_evaluators as oracles
from support.clouds import CLOUDS


def pairs(n=80, d=6, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x + 1, x + rng.normal(size=(n, d)) - 0.3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bins", [2000, 100])
@pytest.mark.parametrize("kind", ["float64", "float32", "float16"])
def test_agrees_with_all_cosines(seed, bins, kind):
    image, text = (rows.astype(kind) for rows in pairs(seed=seed))
    found = cosine_distributions(image, text, bins=bins)
    expected = oracles.cosine_distributions(image.astype(float), text.astype(float))
    binned = {name for name in expected if name.startswith("random.q")}
    assert {n: found[n] for n in found if n not in binned | {"auc"}} == pytest.approx(
        {n: expected[n] for n in expected if n not in binned | {"auc"}}, abs=1e-12
    )
    width = 2 / bins
    gap = 1.5e-3  # where the cosines themselves are this far apart, numpy's quantile lies between two of them
    assert all(abs(found[name] - expected[name]) < width + gap for name in binned)
    assert found["auc"] == pytest.approx(expected["auc"], abs=0.6 * width)
    assert list(found) == list(expected)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_moments_are_exact_on_difficult_rows(cloud):
    rng = np.random.default_rng(0)
    x = CLOUDS[cloud](60, rng)
    y = x + 0.1 * x.std(0) * rng.normal(size=x.shape)
    found, expected = cosine_distributions(x, y), oracles.cosine_distributions(x, y)
    for name in ("matching.mean", "matching.std", "random.mean", "random.std"):
        assert found[name] == pytest.approx(expected[name], abs=1e-9), name
    assert found["matching.mean"] == pytest.approx(float(matching_cosine(x, y)), abs=1e-12)
    assert found["random.mean"] == float(random_cosine(x, y))


@pytest.mark.parametrize("block_size", [1, 7, 80, 1000])
def test_counts_are_all_pairs_in_any_blocks(block_size):
    image, text = pairs()
    counted = cosine_histograms(image, text, bins=50, block_size=block_size)
    cosines = oracles.unit(image) @ oracles.unit(text).T
    apart = ~np.eye(80, dtype=bool)
    for found, values in ((counted.matching, np.diag(cosines)), (counted.random, cosines[apart])):
        assert found.tolist() == np.histogram(values, bins=50, range=(-1, 1))[0].tolist()
    assert counted.random.sum() == 80 * 79 and counted.edges[[0, -1]].tolist() == [-1, 1]


def test_the_ends_belong_to_the_last_bins():
    rows = np.array([[1.0, 0], [1.0, 0], [-1.0, 0]])
    counted = cosine_histograms(rows, rows, bins=4)
    assert counted.matching.tolist() == [0, 0, 0, 3]
    assert counted.random.tolist() == [4, 0, 0, 2]


def test_pairs_that_lead_have_an_area_of_one_and_shuffled_ones_of_a_half():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 40))
    assert cosine_distributions(rows, rows)["auc"] == 1
    assert cosine_distributions(rows, rows[::-1])["auc"] == pytest.approx(0.5, abs=0.05)
    same = np.ones((5, 3))
    found = cosine_distributions(same, same)
    assert (found["auc"], found["random.std"]) == (0.5, pytest.approx(0, abs=1e-12))
    assert found["random.q50"] == pytest.approx(1, abs=1e-3)


def test_torch_is_numpy():
    image, text = pairs()
    assert cosine_distributions(torch.from_numpy(image), torch.from_numpy(text)) == cosine_distributions(image, text)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"bins": 0}, "bins = 0; expected a whole number from 1 on"),
        ({"bins": 2.5}, "bins = 2.5; expected a whole number from 1 on"),
        ({"bins": "x"}, "bins = 'x'; expected a whole number from 1 on"),
        ({"text": np.ones((3, 6))}, "image has 80 rows and text has 3; expected pairs, row i with row i"),
        ({"image": np.zeros((80, 6))}, "image has a zero row"),
    ],
)
def test_errors(change, sentence):
    image, text = pairs()
    with pytest.raises(InputError, match=sentence):
        cosine_distributions(**({"image": image, "text": text} | change))
