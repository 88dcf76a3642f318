"""The silhouette of some rows: the exact one where all are taken, and an error that holds where they are not."""

import numpy as np
import pytest
from sklearn.metrics import silhouette_samples as sklearn_samples

from clip_geometry.geometry import measures, silhouette, silhouette_samples
from clip_geometry.geometry.clusters import sampled_silhouette as module
from clip_geometry.geometry.clusters.sampled_silhouette import sampled_silhouette
from clip_geometry.registry import InputError
from support.clouds import cone


def population(n=1200, d=6, shares=(0.5, 0.3, 0.12, 0.06, 0.02), seed=0):
    """Overlapping classes of very uneven sizes, two of them of one row."""
    rng = np.random.default_rng(seed)
    k = len(shares)
    labels = np.concatenate([[k, k + 1], np.arange(k), rng.choice(k, size=n - k - 2, p=shares)])
    return 0.7 * rng.normal(size=(k + 2, d))[labels] + rng.normal(size=(n, d)), labels


def draws(x, labels, *, seeds, **options):
    found = [sampled_silhouette(x, labels, seed=seed, **options) for seed in range(seeds)]
    return (np.array([float(each[part]) for each in found]) for part in (0, 1))


@pytest.mark.parametrize("k", [2, 29])
def test_of_all_rows_it_is_the_silhouette_without_an_error(k):
    rng = np.random.default_rng(k)
    x = cone(60, 5, rng)
    labels = np.concatenate([np.arange(k), rng.integers(k, size=60 - k)])  # singletons among them at k = 29
    found = sampled_silhouette(x, labels, of=60)
    assert float(found.value) == pytest.approx(float(silhouette(x, labels)), abs=1e-12)
    assert found.standard_error == 0
    assert found.rows == 60


@pytest.mark.parametrize("of", [2, 7, 100])
def test_some_rows_have_the_silhouettes_that_they_have_among_all(of, monkeypatch):
    x, labels = population(300)
    seen = []
    sums_by_class, stratified = module._sums_by_class, module._stratified

    def watched(x, chosen, *rest):
        seen.append(chosen)
        return sums_by_class(x, chosen, *rest)

    def mean(values, *rest):
        seen.append(values)
        return stratified(values, *rest)

    monkeypatch.setattr(module, "_sums_by_class", watched)
    monkeypatch.setattr(module, "_stratified", mean)
    found = sampled_silhouette(x, labels, of=of, seed=3)
    chosen, values = seen
    assert found.rows == len(chosen) == len(set(chosen.tolist())) == of
    assert np.abs(values.numpy() - sklearn_samples(x, labels)[chosen]).max() < 1e-7  # scikit-learn's cancel


@pytest.mark.usefixtures("no_type_checker")
@pytest.mark.parametrize("of", [2, 60])
def test_the_standard_error_is_how_far_the_estimates_lie_from_the_exact_value(of):
    """100 draws: their spread is known to 7 %, the mean of their squared errors, of few rows or groups, to less."""
    x, labels = population()
    exact = float(silhouette(x, labels))
    values, errors = draws(x, labels, of=of, seeds=100)
    assert abs(values.mean() - exact) < 4 * values.std() / 10
    assert np.sqrt((errors**2).mean()) == pytest.approx(values.std(), rel=0.25)


def test_strata_help_where_classes_differ():
    """Silhouettes of one class near 1, of the other below 0: rows drawn from both in proportion tell little more by
    chance, rows drawn from all together do."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 600)
    x = rng.normal(size=(1200, 4)) * np.where(labels == 0, 0.05, 3)[:, None]
    values, _ = draws(x, labels, of=50, seeds=60)
    together = silhouette_samples(x, labels)
    assert values.std() < 0.5 * together.std() / np.sqrt(50)


def test_other_seeds_draw_other_rows_and_single_precision_is_enough():
    x, labels = population()
    first, second, again = (float(sampled_silhouette(x, labels, of=50, seed=seed).value) for seed in (0, 1, 0))
    assert first == again != second
    single = sampled_silhouette(x.astype("float32"), labels, of=50)
    assert float(single.value) == pytest.approx(float(sampled_silhouette(x, labels, of=50).value), abs=1e-5)


def test_the_measure_says_what_it_drew_where_it_draws(monkeypatch):
    x, labels = population(400)
    measure = measures["silhouette[sampled]"]
    assert measure.remark(x, labels) is None
    assert float(measure(x, labels)) == pytest.approx(float(silhouette(x, labels)), abs=1e-12)
    monkeypatch.setattr(module, "ROWS", 400)
    assert measure.remark(x, labels) is None
    monkeypatch.setattr(module, "ROWS", 100)
    error = float(sampled_silhouette(x, labels, of=100).standard_error)
    said = measure.remark(x, labels)
    assert said == f"of 100 of 400 rows, drawn from all classes (seed 0), standard error {error:.1g}"


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([0, 0, 1, 1], {"of": 1}, "of = 1; expected a whole number from 2 on, of rows, for a standard error"),
        ([0, 1, 2, 3], {}, "each of the 4 rows has a label of its own"),
        ([0, 0, 0, 0], {}, "all 4 labels are equal"),
    ],
)
def test_unusable_input(labels, options, message):
    with pytest.raises(InputError, match=message):
        sampled_silhouette(np.eye(4), labels, **options)
