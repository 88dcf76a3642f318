from importlib import import_module

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from clip_geometry.evaluate.linear_probe import GRID, Logistic, fit_logistic, linear_probe
from clip_geometry.registry import InputError
from support import oracles_evaluators as oracles

SOLVERS = ("sklearn", "torch")


def task(n=400, m=1000, d=10, k=8, seed=0, spread=1.7):
    """(train_x, train_y, test_x, test_y): classes that overlap, named by letters, not equally many."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(k), (k * rng.random(n + m - k) ** 1.5).astype(int)])
    x = rng.normal(size=(k, d))[labels] + spread * rng.normal(size=(n + m, d)) + 1
    names = np.array(list("hgfedcba"))[labels]
    return x[:n], names[:n], x[n:], names[n:]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("k", [2, 3, 8])
def test_is_the_published_probe(solver, k):
    data = task(k=k)
    expected = oracles.sklearn_probe(*data, C=1.0)
    result = linear_probe(*data, solver=solver)
    # a test row in a thousand may lie on the border
    assert (result["top_1"], result["mean_per_class"]) == pytest.approx(
        expected, abs=1e-15 if solver == "sklearn" else 1.5e-3
    )
    assert result["C"] == 1 and result["iterations"] < 100
    assert ("top_5" in result) == (k > 5)
    if k > 5:
        assert result["top_1"] < result["top_5"] < 1


@pytest.mark.parametrize(("C", "k"), [(0.01, 8), (1.0, 3), (100.0, 2)])
def test_both_solvers_reach_the_minimum_of_one_loss(C, k):
    """That of a generic optimizer. scikit-learn's default tolerance is one of the gradient: 1e-3 where C is large."""
    train_x, train_y, *test = task(k=k)
    codes = np.unique(train_y, return_inverse=True)[1]
    least = oracles.least_logistic_loss(train_x, codes, k, C)
    for solver in SOLVERS:
        result = linear_probe(train_x, train_y, *test, C=C, solver=solver)["loss"]
        assert least - 1e-9 < result < least + (2e-5 if solver == "torch" else 1e-4 if C <= 1 else 1e-3), solver


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_torch_does_not_mind_where_the_rows_lie(kind):
    """The loss is that of the rows about their mean, which the intercept absorbs, 1000 times the spread away."""
    train_x, train_y, test_x, test_y = task()
    near = linear_probe(train_x, train_y, test_x, test_y, solver="torch")
    far = [(x + 1000).astype(kind) for x in (train_x, test_x)]
    result = linear_probe(far[0], train_y, far[1], test_y, solver="torch")
    assert result["loss"] == pytest.approx(near["loss"], abs=1e-4 if kind == "float32" else 1e-6)  # float32 rows round
    assert result["top_1"] == pytest.approx(near["top_1"], abs=2e-3)


def separable(scale=1.0, n=60, d=100, k=4):
    """Fewer rows than dimensions, so that any labels can be separated, and a spectrum that falls by 10³."""
    rng = np.random.default_rng(0)
    codes = np.arange(1000 + n) % k
    spectrum = np.geomspace(1, 1e-3, d)
    x = scale * (0.3 * rng.normal(size=(k, d))[codes] + rng.normal(size=(1000 + n, d))) * spectrum
    return x[:n], codes[:n], x[n:], codes[n:]


@pytest.mark.parametrize(
    ("kind", "scale", "C"),
    [("float32", 1, 1e3), ("float64", 100, 1e4), ("float64", 1, 1e10), ("float32", 1e5, 1.0)],
)
def test_the_minimum_is_reached_where_the_penalty_hardly_counts(kind, scale, C):
    """The loss there is 1e-4 to 1e-10, and which of all separating planes is found decides on the test rows. The
    reference is scikit-learn's Newton method, its tolerance at rounding."""
    train_x, train_y, test_x, test_y = separable(scale)
    centre = train_x.mean(0)
    model = oracles.exact_logistic(train_x - centre, train_y, C)
    least = oracles.logistic_loss(train_x - centre, train_y, model.coef_.T, model.intercept_, C)
    result = linear_probe(train_x.astype(kind), train_y, test_x.astype(kind), test_y, C=C, solver="torch")
    assert result["loss"] == pytest.approx(least, rel=2e-4)  # the oracle rounds at 1e-16
    assert result["top_1"] == pytest.approx(model.score(test_x - centre, test_y), abs=2e-3)  # two of 1000 on a border
    assert result["iterations"] < 200


@pytest.mark.parametrize(("scale", "kind"), [(1e22, "float32"), (1e140, "float64")])
def test_a_penalty_that_is_nothing_is_refused(scale, kind):
    train_x, train_y, test_x, test_y = separable(scale / 10)
    with pytest.raises(InputError, match=r"^C = 1 is next to no penalty for rows that lie about \de\+\d+ from their"):
        linear_probe(train_x.astype(kind), train_y, test_x.astype(kind), test_y, solver="torch")


@pytest.mark.parametrize(("scale", "kind"), [(1e30, "float32"), (1e-30, "float32"), (1e100, "float64")])
def test_rows_of_any_length_with_a_C_to_match(scale, kind):
    plain = linear_probe(*separable(), solver="torch")
    train_x, train_y, test_x, test_y = separable(scale)
    rows = train_x.astype(kind), train_y, test_x.astype(kind), test_y
    result = linear_probe(*rows, C=scale**-2, solver="torch")
    assert result["loss"] == pytest.approx(plain["loss"], rel=1e-5)
    assert result["top_1"] == pytest.approx(plain["top_1"], abs=2e-3)


def test_a_fit_that_is_not_finite_is_refused(monkeypatch):
    module = import_module("clip_geometry.evaluate.linear_probe")
    data = task()

    def broken(weight):
        return lambda x, codes, k, *, C, max_iter: Logistic(torch.full((10, k), weight), torch.zeros(k), 1)

    monkeypatch.setitem(module._SOLVERS, "torch", broken(float("nan")))
    with pytest.raises(
        InputError, match="the fit has logits that are not finite, because the rows leave its range; rescale"
    ):
        linear_probe(*data, solver="torch")
    monkeypatch.setattr(module, "objective", lambda *_: float("inf"))
    monkeypatch.setitem(module._SOLVERS, "torch", broken(1.0))
    with pytest.raises(
        InputError, match="the loss of solver 'torch' is inf, because the rows leave its range; rescale the rows"
    ):
        linear_probe(*data, solver="torch")


@pytest.mark.parametrize("solver", SOLVERS)
def test_C_is_chosen_on_rows_held_out(solver):
    """Many dimensions, few rows, loud classes: strong regularisation is best, and never is the test looked at."""
    train_x, train_y, test_x, test_y = task(n=200, d=40, k=4, spread=3.0)
    result = linear_probe(train_x, train_y, test_x, test_y, C="validation", solver=solver)
    assert result["C"] == 0.01
    assert result == linear_probe(train_x, train_y, test_x, test_y, C=0.01, solver=solver)
    assert linear_probe(train_x, train_y, test_x[::-1], test_y, C="validation", solver=solver)["C"] == 0.01


def test_the_split_and_the_choice_are_as_documented(monkeypatch):
    """A fifth of each class, rounded down; the same for all C; the smallest of equally good ones."""
    module = import_module("clip_geometry.evaluate.linear_probe")  # the package has a function of that name

    x, y = np.repeat(np.eye(4), [10, 14, 5, 4], axis=0), np.repeat([3, 1, 2, 0], [10, 14, 5, 4])
    seen = []

    def solver(rows, codes, k, *, C, max_iter):
        seen.append((C, np.bincount(codes, minlength=k).tolist()))
        return fit_logistic(rows, codes, k, C=C, max_iter=max_iter)

    monkeypatch.setitem(module._SOLVERS, "torch", solver)
    result = linear_probe(x, y, x, y, C="validation", solver="torch", seed=3)
    assert result["C"] == 1  # smaller ones take the largest class for others too, from here on all are perfect
    assert [C for C, _ in seen] == [*GRID, result["C"]]
    assert [counts for _, counts in seen] == [[8, 12, 4, 4]] * len(GRID) + [[10, 14, 5, 4]]


@pytest.mark.parametrize("solver", SOLVERS)
def test_too_few_iterations_warn(solver):
    with pytest.warns(ConvergenceWarning):
        result = linear_probe(*task(), solver=solver, max_iter=3)
    assert result["iterations"] == 3


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"solver": "saga"}, "solver 'saga' is unknown; known are 'sklearn', 'torch'"),
        ({"max_iter": 0}, "max_iter = 0; expected a whole number from 1 on"),
        ({"C": 0}, "C = 0; expected a positive, finite number, or 'validation'"),
        ({"C": (1.0, 2.0)}, r"C = \(1.0, 2.0\); expected a positive, finite number, or 'validation'"),
        ({"seed": "a"}, "seed = 'a'; expected a whole number from 0"),
        ({"test_y": None}, "labels in test_y = None; expected a list, an array or a tensor, one label per row"),
        ({"train_x": np.full((400, 10), np.nan)}, "train_x has NaN or infinity in row 0"),
        ({"test_y": ["a"] * 999 + ["z"]}, r"test_y has the label 'z' \(row 999\), which train_y lacks"),
        ({"train_y": ["a"] * 400}, "all 400 labels in train_y are equal; expected at least two different"),
        ({"test_x": np.ones((1000, 3))}, "train_x has dimension 10 and test_x has 3; expected the same dimension"),
    ],
)
def test_errors(change, sentence):
    given = dict(zip(("train_x", "train_y", "test_x", "test_y"), task(), strict=True)) | change
    with pytest.raises(InputError, match=sentence):
        linear_probe(**given)


def test_too_few_rows_to_choose_from():
    x = np.eye(8)
    with pytest.raises(InputError, match="no class has 5 rows, so no rows can be held out to choose C; give a number"):
        linear_probe(x, [0, 1] * 4, x, [0, 1] * 4, C="validation")


@pytest.mark.parametrize("scale", [1e30, 1e139])
def test_scikit_learn_takes_rows_of_any_scale(scale):
    """Weights of 1/scale; beyond 1e40 L-BFGS gave up at its start."""
    train_x, train_y, test_x, test_y = task()
    result = linear_probe(scale * train_x, train_y, scale * test_x, test_y)
    expected = linear_probe(1e9 * train_x, train_y, 1e9 * test_x, test_y)
    assert result["top_1"] == pytest.approx(expected["top_1"], abs=0.01)
    assert result["loss"] == pytest.approx(expected["loss"], abs=0.01)
