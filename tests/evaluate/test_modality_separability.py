import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC

from clip_geometry.evaluate.linear_probe import modality_separability
from clip_geometry.registry import InputError


def sets(gap=0.8, n=60, m=45, d=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + gap, rng.normal(size=(m, d))


def by_hand(x, labels, make, folds, seed):
    """(train, cross_validated)"""
    right = []
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, labels):
        right.append((make().fit(x[train], labels[train]).predict(x[test]) == labels[test]).mean())
    return (make().fit(x, labels).predict(x) == labels).mean(), np.mean(right)


@pytest.mark.parametrize(("folds", "seed"), [(5, 0), (3, 4)])
def test_agrees_with_the_loop(folds, seed):
    image, text = sets()
    result = modality_separability(image, text, folds=folds, seed=seed, draws=2)
    x, labels = np.vstack([image, text]), np.repeat([0, 1], [60, 45])
    rng = np.random.default_rng(seed)
    shuffled = [rng.permutation(labels) for _ in range(2)]
    makers = {"logistic_regression": LogisticRegression, "linear_svc": lambda: LinearSVC(random_state=seed)}
    for name, make in makers.items():
        train, held_out = by_hand(x, labels, make, folds, seed)
        nulls = np.mean([by_hand(x, each, make, folds, seed) for each in shuffled], axis=0)
        expected = {"train": train, "cross_validated": held_out, "null": nulls[1], "null_train": nulls[0]}
        assert {key: result[f"{name}.{key}"] for key in expected} == pytest.approx(expected, abs=1e-12)
    assert len(result) == 8


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"folds": 1}, "folds = 1; expected a whole number from 2 to 45, the rows of the smaller set"),
        ({"draws": 0}, "draws = 0; expected a whole number from 1 to 100000"),
        ({"seed": -1}, "seed = -1; expected a whole number from 0 to 4294967295"),
        ({"text": np.ones((9, 4))}, "image has dimension 5 and text has 4; expected the same dimension"),
    ],
)
def test_errors(change, sentence):
    image, text = sets()
    with pytest.raises(InputError, match=sentence):
        modality_separability(**({"image": image, "text": text} | change))


@pytest.mark.parametrize(("scale", "dtype"), [(1e30, np.float32), (1e80, np.float64), (1e139, np.float64)])
def test_rows_of_any_scale_are_separated_alike(scale, dtype):
    """At 1e80 squares of products leave float64: LIBLINEAR never returned, and L-BFGS gave 0.5."""
    rng = np.random.default_rng(0)
    image, text = rng.normal(size=(40, 6)) + 0.5, rng.normal(size=(30, 6))
    result = modality_separability((scale * image).astype(dtype), (scale * text).astype(dtype), draws=1)
    expected = modality_separability((1e9 * image).astype(dtype), (1e9 * text).astype(dtype), draws=1)
    assert result == pytest.approx(expected, abs=0.06)
    assert all(0 <= value <= 1 for value in modality_separability(image / scale, text / scale, draws=1).values())


NAMES = [f"{c}.{v}" for c in ("logistic_regression", "linear_svc") for v in ("train", "cross_validated")]


def test_sets_far_apart_are_separable_and_shuffled_labels_are_not():
    result = modality_separability(*sets(gap=10.0))
    assert [result[name] for name in NAMES] == [1.0] * 4
    for name in ("logistic_regression", "linear_svc"):
        assert 0.4 < result[f"{name}.null"] < 0.65 and result[f"{name}.null_train"] < 0.75


def test_equal_distributions_separate_in_training_only():
    """More dimensions than rows: the training accuracy is 1 for any labels, and says nothing."""
    result = modality_separability(*sets(gap=0.0, n=40, m=40, d=200))
    for name in ("logistic_regression", "linear_svc"):
        assert result[f"{name}.train"] == result[f"{name}.null_train"] == 1
        assert 0.3 < result[f"{name}.cross_validated"] < 0.7
