import numpy as np
import pytest

from clip_geometry.registry import InputError
from clip_geometry_experiments.kit import languages as languages_of_kit
from clip_geometry_experiments.kit.languages import language_distance
from support import oracles_evaluators as oracles
from support.clouds import CLOUDS


def languages(n=70, d=6, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.linspace(1, 3, d)
    return x, x + 0.5 * rng.normal(size=(n, d)) + 0.3


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize(("kind", "error"), [("float64", 1e-9), ("float32", 1e-6), ("float16", 1e-6)])
def test_agrees_with_the_definition(cloud, kind, error, monkeypatch):
    rng = np.random.default_rng(1)
    x = CLOUDS[cloud](60, rng)
    if kind == "float16" and np.abs(x).max() > 6e4:
        x = x / 1e3  # float16 ends at 65504
    x = x.astype(kind)
    y = (x.astype(float) + 0.1 * x.astype(float).std(0) * rng.normal(size=x.shape)).astype(kind)
    monkeypatch.setattr(languages_of_kit, "BLOCK", 13)
    found = language_distance(x, y)
    expected = oracles.language_distance(x.astype(float), y.astype(float))
    assert found == pytest.approx(expected, rel=error)
    assert list(found) == list(expected)


def test_translations_that_coincide_and_translations_that_are_any_others():
    x, y = languages()
    assert language_distance(x, x)["ratio"] == language_distance(x, x)["pair_distance"] == 0
    assert language_distance(x, x)["global_distance"] == pytest.approx(language_distance(x, x)["within_source"])
    shuffled = [language_distance(x, y[np.random.default_rng(s).permutation(70)])["ratio"] for s in range(20)]
    assert np.mean(shuffled) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        (np.ones((4, 3)), np.ones((4, 3)), "all 4 rows of source and target coincide; the ratio of their distances is"),
        (np.ones((4, 3)), np.ones((5, 3)), "source has 4 rows and target has 5; expected pairs, row i with row i"),
        (np.ones((1, 3)), np.ones((1, 3)), "source has 1 row; expected at least 2"),
        (np.ones((4, 3)), np.ones((4, 2)), "source has dimension 3 and target has 2; expected the same dimension"),
    ],
)
def test_errors(x, y, sentence):
    with pytest.raises(InputError, match=sentence):
        language_distance(x, y)
