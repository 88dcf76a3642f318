"""The theorems of Mickus et al. 2024, section 2 and appendix B, and counter-examples to what does not hold."""

import numpy as np
import pytest
import torch

from clip_geometry.geometry import isoscore, measures
from clip_geometry.geometry.statistics.moments import Moments
from clip_geometry.registry import InputError
from clip_geometry_experiments.mickus2024.classify import objectives
from clip_geometry_experiments.mickus2024.classify.objectives import OBJECTIVES
from support.clouds import CLOUDS, arguments, cone
from support.oracles_objectives import OBJECTIVE_ORACLES, bound_terms, classifier_terms, sign, triplet_terms

SEEDS = range(5)


def draw(seed, n=24, d=4, k=3):
    """Gaussian rows, and random labels of which each occurs at least twice."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(k), np.arange(k), rng.integers(k, size=n - 2 * k)])
    return rng.normal(size=(n, d)) + 0.3, labels


def squared_distances(x):
    return ((x[:, None] - x[None]) ** 2).sum(-1)


# --- definitions


PRECISIONS = {torch.float64: 1e-9, torch.float32: 1e-6, torch.float16: 1e-6}


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_is_its_definition_on_every_cloud_in_every_precision(name, cloud):
    x, labels = (torch.as_tensor(part) for part in arguments(measures["silhouette"], cloud))
    rest = (labels,) if OBJECTIVES[name].takes == "labeled rows" else ()
    for dtype, error in PRECISIONS.items():
        rows = x.to(dtype)
        if not rows.isfinite().all() or float((rows.double() - x).norm() / x.norm()) > 0.01:
            continue  # the type cannot hold the rows
        oracle = OBJECTIVE_ORACLES[name](rows.double().numpy(), *(part.numpy() for part in rest))
        tolerance = {"rel": error, "abs": error if name == "objective_isotropy" else 0}
        assert float(OBJECTIVES[name](rows, *rest)) == pytest.approx(oracle, **tolerance)


# --- isotropy


@pytest.mark.parametrize("shape", [(40, 5), (6, 9)], ids=["n > d", "n < d"])
@pytest.mark.parametrize("seed", SEEDS)
def test_isotropy_objective_is_isoscore_on_another_scale(seed, shape):
    n, d = shape
    x = cone(n, d, np.random.default_rng(seed))
    assert float(isoscore(x)) == pytest.approx((d * float(objectives.isotropy(x)) ** 2 - 1) / (d - 1), abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_isotropy_defect_is_the_chord_of_the_angle(seed):
    """‖ṽ − 1‖ = 2√d sin(α/2), ṽ the variances scaled to length √d, α the angle whose cosine is O_I."""
    d = 5
    x = cone(40, d, np.random.default_rng(seed))
    variances = np.linalg.eigvalsh(np.cov(x.T))
    defect = np.linalg.norm(np.sqrt(d) * variances / np.linalg.norm(variances) - 1)
    alpha = np.arccos(float(objectives.isotropy(x)))
    assert defect == pytest.approx(2 * np.sqrt(d) * np.sin(alpha / 2), rel=1e-9)


def test_isotropy_objective_is_not_proportional_to_the_squared_distances():
    """The paper's "∝ ΣΣ‖d − d'‖²" drops ‖V‖: the same distances twice, or larger ones with less isotropy."""
    for seed in SEEDS:
        x, _ = draw(seed)
        wider, longer = 2 * x, x * [10, 1, 1, 1]
        total, wider_total, longer_total = (squared_distances(rows).sum() for rows in (x, wider, longer))
        value, wider_value, longer_value = (float(objectives.isotropy(rows)) for rows in (x, wider, longer))
        assert wider_total == pytest.approx(4 * total)
        assert wider_value == pytest.approx(value, rel=1e-12)
        assert longer_total > 5 * total
        assert longer_value < 0.7 * value


def test_isotropy_takes_moments_and_reaches_its_bounds():
    x = cone(30, 4, np.random.default_rng(0))
    assert float(objectives.isotropy(Moments.of(x))) == float(objectives.isotropy(x))
    assert float(objectives.isotropy(np.outer(np.arange(5.0), [1, 2, 3, 4]))) == pytest.approx(1 / 2, rel=1e-12)
    assert float(objectives.isotropy(np.concatenate([np.eye(4), -np.eye(4)]))) == pytest.approx(1, rel=1e-12)
    with pytest.raises(InputError, match="all 5 rows of x are equal"):
        objectives.isotropy(np.full((5, 3), 0.1))


# --- classifier


def three_terms(x, labels, vectors):
    """Equation 3, second line."""
    n, k = len(x), len(vectors)
    rows = -(k - 2) / 2 * (x**2).sum()
    classes = -sum((n - 2 * (labels == omega).sum()) / 2 * (vectors[omega] ** 2).sum() for omega in range(k))
    distances = sum(
        sign(omega, label) * ((row - vectors[omega]) ** 2).sum() / 2
        for row, label in zip(x, labels, strict=True)
        for omega in range(k)
    )
    return rows + classes + distances


def class_vectors(seed, k=3, d=4):
    return np.random.default_rng([seed, 1]).normal(size=(k, d))


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_classifier_objective_is_the_three_term_form(seed, k):
    x, labels = draw(seed, k=k)
    vectors = class_vectors(seed, k)
    value = float(objectives.classifier(x, labels, torch.from_numpy(vectors)))
    assert value == pytest.approx(sum(classifier_terms(x, labels, dict(enumerate(vectors)))), rel=1e-9, abs=1e-9)
    assert value == pytest.approx(three_terms(x, labels, vectors), rel=1e-9, abs=1e-9)
    means = np.stack([x[labels == omega].mean(0) for omega in range(k)])
    assert float(objectives.classifier(x, labels)) == pytest.approx(three_terms(x, labels, means), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_classifier_objective_has_no_optimum(seed):
    """Linear in the rows for given class vectors, quadratic with class means: t times the rows, t or t² the value."""
    x, labels = draw(seed)
    vectors = torch.from_numpy(class_vectors(seed))
    gradient = np.stack([2 * vectors[label] - vectors.sum(0) for label in labels])
    for t in (1, 10, 1e6):
        assert float(objectives.classifier(t * gradient, labels, vectors)) == pytest.approx(t * (gradient**2).sum())
        assert float(objectives.classifier(t * x, labels)) == pytest.approx(
            t**2 * float(objectives.classifier(x, labels))
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_labels_collapse_where_rows_are_bounded(seed):
    """Under ‖d‖ ≤ 1 the optimum puts all rows of a label on one point, along 2c_ω − Σc; nothing else is as good."""
    x, labels = draw(seed)
    vectors = class_vectors(seed)
    best = np.stack([2 * vectors[label] - vectors.sum(0) for label in labels])
    best /= np.linalg.norm(best, axis=1, keepdims=True)
    optimum = float(objectives.classifier(best, labels, torch.from_numpy(vectors)))
    for other in (x / np.linalg.norm(x, axis=1, keepdims=True), best + 0.01 * x):
        other = other / np.linalg.norm(other, axis=1, keepdims=True).clip(1)
        assert float(objectives.classifier(other, labels, torch.from_numpy(vectors))) < optimum
    assert all((best[labels == omega] == best[labels == omega][0]).all() for omega in range(3))


def test_different_labels_may_collapse_too():
    """Equation 4 says "if and only if"; only one direction holds: here the optimum joins two of three classes."""
    vectors = np.array([[3.0, 0.0], [2.9, 0.0], [-2.0, 0.0]])
    best = 2 * vectors - vectors.sum(0)
    best /= np.linalg.norm(best, axis=1, keepdims=True)
    assert best.tolist() == [[1, 0], [1, 0], [-1, 0]]
    optimum = float(objectives.classifier(best, [0, 1, 2], torch.from_numpy(vectors)))
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    for first in circle:
        for second in circle:
            value = float(objectives.classifier(np.stack([first, second, best[2]]), [0, 1, 2], torch.tensor(vectors)))
            assert value <= optimum + 1e-12
    # so that an optimum of O_C need not be one of O_S, which puts the three on a regular triangle
    apart = np.stack([np.cos(angles[::8]), np.sin(angles[::8])], axis=1)
    assert float(objectives.silhouette(apart, [0, 1, 2])) > float(objectives.silhouette(best, [0, 1, 2]))


VECTORS = torch.eye(3, dtype=torch.float64)


@pytest.mark.parametrize(
    ("labels", "vectors", "message"),
    [
        ([0, 1, 2, 0], torch.eye(2), "x has dimension 3 and class_vectors has 2; expected the same"),
        ([0, 1, 2, 0], torch.ones(3), r"class_vectors has shape \(3,\); expected a matrix"),
        ([0, 1, 2, 0], torch.tensor([[1.0, 2, 3], [1, 2, torch.nan]]), "class_vectors has NaN or infinity in row 1"),
        (["a", "b", "a", "b"], VECTORS, r"labels\[0\] = 'a'; expected a whole number from 0 to 2"),
        ([0.0, 1.0, 2.0, 0.0], VECTORS, r"labels\[0\] = 0.0; expected a whole number"),
        ([0, 1, 2], VECTORS, "3 labels for 4 rows; expected one label per row"),
        ([0, 1, 3, 0], VECTORS, r"labels\[2\] = 3; expected a whole number from 0 to 2"),
        ([0, 1, -1, 0], VECTORS, r"labels\[2\] = -1; expected a whole number from 0 to 2"),
        ([0, 0, 0, 0], None, "all 4 labels are equal"),
    ],
)
def test_labels_that_do_not_fit_the_class_vectors(labels, vectors, message):
    with pytest.raises(InputError, match=message):
        objectives.classifier(np.eye(4)[:, :3] + 1, labels, vectors)


# --- triplets


@pytest.mark.parametrize("seed", range(10))
def test_triplet_objective_stays_below_its_bound(seed):
    x, labels = draw(seed, n=10 + seed, k=2 + seed % 3)
    value, bound = float(objectives.triplet(x, labels)), float(objectives.triplet_bound(x, labels))
    assert value <= bound
    assert value == pytest.approx(sum(triplet_terms(x, labels)), rel=1e-9)
    assert bound == pytest.approx(sum(bound_terms(x, labels)), rel=1e-9)


def violations(root):
    """Of 300 random draws, those where the bound lies below the silhouette objective (root: of distances)."""
    count = 0
    for seed in range(300):
        x, labels = draw(seed, n=20, d=4, k=3)
        terms = squared_distances(x) ** (0.5 if root else 1) * np.where(labels[:, None] == labels, -1, 1)
        if not root:
            assert terms.sum() == pytest.approx(float(objectives.silhouette(x, labels)), rel=1e-9)
        count += float(objectives.triplet_bound(x, labels)) < terms.sum()
    return count


def test_the_bound_does_not_bound_the_silhouette_objective():
    """The paper's remark below equation 5 is false, for the objective as printed and for distances not squared."""
    assert violations(root=False) == 300
    assert violations(root=True) > 280  # 295 here
    x = np.array([[0.0], [1.0], [5.0]])
    labels = [0, 0, 1]
    # by hand: (2 − 3)·(1 + 1) + (2 − 1)·(5 + 4) + (1 − 1)·(5 + 4) = 7; 2·(25 + 16 − 1) = 80; 2·(5 + 4 − 1) = 16
    assert float(objectives.triplet_bound(x, labels)) == pytest.approx(7)
    assert float(objectives.silhouette(x, labels)) == pytest.approx(80)
    assert (np.abs(x - x.T) * [[-1, -1, 1], [-1, -1, 1], [1, 1, -1]]).sum() == 16


@pytest.mark.parametrize("distances", [1, 100, 2**20])
def test_triplets_do_not_depend_on_the_block(distances, monkeypatch):
    monkeypatch.setattr("clip_geometry_experiments.mickus2024.classify.objectives.DISTANCES", distances)
    x, labels = draw(0)
    rows = torch.from_numpy(x).requires_grad_()
    for objective, terms in ((objectives.triplet, triplet_terms), (objectives.triplet_bound, bound_terms)):
        value = objective(rows, labels)
        assert float(value.detach()) == pytest.approx(sum(terms(x, labels)), rel=1e-9)
        (gradient,) = torch.autograd.grad(value, rows)
        step = 1e-6 * torch.from_numpy(np.random.default_rng(1).normal(size=x.shape))
        with torch.no_grad():
            along = float(objective(rows + step, labels) - objective(rows - step, labels)) / 2
        assert float((gradient * step).sum()) == pytest.approx(along, rel=1e-5)


def test_triplets_need_a_class_of_two():
    for objective in (objectives.triplet, objectives.triplet_bound):
        with pytest.raises(
            InputError, match="each of the 4 rows has a label of its own; a triplet needs a class of two"
        ):
            objective(np.eye(4), [0, 1, 2, 3])


# --- gradients


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize(
    "name", ["objective_silhouette", "objective_isotropy", "objective_classifier", "objective_triplet", "triplet_bound"]
)
def test_gradients(name, k):
    measure = OBJECTIVES[name]
    x, labels = draw(k, n=9, k=k)
    rest = (labels,) if measure.takes == "labeled rows" else ()
    rows = torch.from_numpy(x).requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: measure(rows, *rest), (rows,))


def test_gradients_are_finite_where_rows_coincide():
    x, labels = draw(0)
    rows = torch.from_numpy(np.repeat(x[:8], 3, axis=0)).requires_grad_()
    for objective in (objectives.silhouette, objectives.classifier, objectives.triplet, objectives.triplet_bound):
        (gradient,) = torch.autograd.grad(objective(rows, labels), rows)
        assert torch.isfinite(gradient).all()
        assert gradient.abs().max() > 0.01


def test_triplets_have_second_derivatives():
    x, labels = draw(0, n=9)
    rows = torch.from_numpy(x).requires_grad_()
    for objective in (objectives.triplet, objectives.triplet_bound):
        assert torch.autograd.gradgradcheck(lambda rows, objective=objective: objective(rows, labels), rows)
