from importlib import import_module

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from clip_geometry.evaluate.cosine_distributions import cosine_distributions
from clip_geometry.registry import InputError
from support import oracles_evaluators as oracles

module = import_module("clip_geometry.evaluate.cosine_distributions")  # the package has the function of this name


def pairs(n=80, d=6, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x + 1, x + rng.normal(size=(n, d)) - 0.3


@pytest.mark.parametrize(("seed", "bins", "kind"), [(0, 2000, "float64"), (1, 100, "float32"), (2, 2000, "float16")])
def test_agrees_with_all_cosines(seed, bins, kind):
    image, text = (rows.astype(kind) for rows in pairs(seed=seed))
    result = cosine_distributions(image, text, bins=bins)
    expected = oracles.cosine_distributions(image.astype(float), text.astype(float))
    binned = {name for name in expected if name.startswith("random.q")}
    assert {n: result[n] for n in result if n not in binned | {"auc"}} == pytest.approx(
        {n: expected[n] for n in expected if n not in binned | {"auc"}}, abs=1e-12
    )
    apart = ~np.eye(80, dtype=bool)
    cosines = (oracles.unit(image.astype(float)) @ oracles.unit(text.astype(float)).T)[apart]
    width = np.ptp(cosines) / bins
    # the bounds of the bins are wider than the cosines, by less than half here
    assert all(abs(result[name] - expected[name]) < 1.5 * width for name in binned)
    assert result["auc"] == pytest.approx(expected["auc"], abs=1e-12)
    assert list(result) == list(expected)


@pytest.mark.parametrize("n", [2, 3, 7, 40])
@pytest.mark.parametrize("bins", [2000, 20])
def test_quantiles_of_few_random_pairs_are_off_by_less_than_a_width(n, bins):
    """n(n − 1) cosines lie far apart, and numpy's quantile between two of them. A width is at most 2/bins."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        image, text = rng.normal(size=(2, n, int(rng.integers(2, 40)))) + rng.uniform(0, 2)
        if seed % 4 == 0:  # ties
            image, text = image.round() + 0.1, text.round() + 0.1
        result, expected = cosine_distributions(image, text, bins=bins), oracles.cosine_distributions(image, text)
        for name in (name for name in expected if name.startswith("random.q")):
            assert abs(result[name] - expected[name]) < 2 / bins + 1e-12, (seed, name)  # 1e-12: rounding at an edge


def test_pairs_that_lead_have_an_area_of_one_and_shuffled_ones_of_a_half():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 40))
    assert cosine_distributions(rows, rows)["auc"] == 1
    assert cosine_distributions(rows, rows[::-1])["auc"] == pytest.approx(0.5, abs=0.05)
    same = np.ones((5, 3))
    result = cosine_distributions(same, same)
    assert (result["auc"], result["random.std"]) == (0.5, pytest.approx(0, abs=1e-12))
    assert result["random.q50"] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("spread", [1e-2, 1e-4, 1e-6])
def test_a_narrow_cone_keeps_its_area(seed, spread):
    """All rows within `spread` of one axis: a histogram over [−1, 1] put all cosines into its last bin, area 0.5."""
    rng = np.random.default_rng(seed)
    axis, x = rng.normal(size=16), rng.normal(size=(60, 16))
    image, text = axis + spread * x, axis + spread * (x + 0.1 * rng.normal(size=x.shape))
    result = cosine_distributions(image, text)
    assert result["auc"] == pytest.approx(1, abs=1e-3)
    assert result["random.q50"] < result["matching.q50"]
    noisy = axis + spread * (x + 2 * rng.normal(size=x.shape))
    far = np.square(oracles.unit(image)[:, None] - oracles.unit(noisy)).sum(2)
    expected = mannwhitneyu(-np.diag(far), -far[~np.eye(60, dtype=bool)]).statistic / (60 * 60 * 59)
    assert 0.6 < expected < 0.9
    assert cosine_distributions(image, noisy)["auc"] == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(("seed", "block_size"), [(0, 1), (1, 7), (2, 1024)])
def test_equal_cosines_count_half(seed, block_size, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block_size)
    """Rows of few directions, each of any length: most cosines are tied, and rounding must not part them."""
    rng = np.random.default_rng(seed)
    rows = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]])
    image, text = rows[rng.integers(4, size=40)], rows[rng.integers(4, size=40)]
    cosines = np.round(oracles.unit(image) @ oracles.unit(text).T, 9)
    apart = ~np.eye(40, dtype=bool)
    expected = mannwhitneyu(np.diag(cosines), cosines[apart]).statistic / (40 * 40 * 39)
    lengths = rng.uniform(0.1, 10, size=(2, 40, 1))
    result = cosine_distributions(image * lengths[0], text * lengths[1])
    assert result["auc"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"bins": 0}, "bins = 0; expected a whole number from 1 to 1000000"),
        ({"text": np.ones((3, 6))}, "image has 80 rows and text has 3; expected pairs, row i with row i"),
        ({"image": np.zeros((80, 6))}, "image has a zero row"),
    ],
)
def test_errors(change, sentence):
    image, text = pairs()
    with pytest.raises(InputError, match=sentence):
        cosine_distributions(**({"image": image, "text": text} | change))
