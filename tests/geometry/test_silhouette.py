from importlib import import_module

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_samples as sklearn_samples
from sklearn.metrics import silhouette_score

from clip_geometry.geometry import measures, silhouette, silhouette_samples
from clip_geometry.geometry.distances import by_class
from clip_geometry.geometry.silhouette import in_proportion, random_ranks, sampled_silhouette, strata
from clip_geometry.geometry.statistics import BlockedRows
from clip_geometry.registry import InputError
from support.clouds import cone
from support.covering import covering_array
from support.oracles import silhouette as oracle

module = import_module("clip_geometry.geometry.silhouette")  # the package has the function of this name
METRICS = ("euclidean", "sqeuclidean", "cosine")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [2, 5, 29])
def test_samples_agree_with_scikit_learn(metric, k):
    rng = np.random.default_rng(k)
    x = cone(60, 5, rng)
    labels = np.concatenate([np.arange(k), rng.integers(k, size=60 - k)])  # singletons among them at k = 29
    ours = silhouette_samples(x, labels, metric=metric)
    # scikit-learn's own distances cancel for near rows, hence 1e-7
    assert np.abs(ours - sklearn_samples(x, labels, metric=metric)).max() < 1e-7


def test_singletons_and_coinciding_points_are_0():
    x = np.array([[0.0, 1], [0.0, 1], [0.0, 1], [7.0, 7.0]])
    assert silhouette_samples(x, [0, 0, 1, 2]).tolist() == [0, 0, 0, 0]


def classes_of(n, k, rng):
    return np.concatenate([np.arange(k), rng.integers(k, size=n - k)])


def _in_classes(n, d, labels, rng):
    """Gaussian classes around centres of the same spread."""
    return rng.normal(size=(labels.max() + 1, d))[labels] + rng.normal(size=(n, d))


def tight(spread, *, unrelated=False):
    """Clusters of this spread; `unrelated`: every class has rows in every cluster."""

    def rows(n, d, labels, rng):
        where = rng.integers(4, size=n) if unrelated else labels
        return rng.normal(size=(labels.max() + 4, d))[where] + spread * rng.normal(size=(n, d))

    return rows


def scaled_row(factor):
    def rows(n, d, labels, rng):
        x = _in_classes(n, d, labels, rng)
        x[3] *= factor
        return x

    return rows


def scaled_class(factor):
    def rows(n, d, labels, rng):
        return _in_classes(n, d, labels, rng) * np.where(labels == 0, factor, 1)[:, None]

    return rows


def _tight_pair(n, d, labels, rng):
    x = _in_classes(n, d, labels, rng)
    x[1] = x[0] * (1 + 2**-20)  # classes 0 and 1
    return x


# beyond those of the contract: in many dimensions, where float32 products lose most
CLOUDS = {
    "classes": _in_classes,
    "mean 1000 times the spread": lambda *given: _in_classes(*given) + 1000,
    "scale 1e30": lambda *given: 1e30 * _in_classes(*given),
    "scale 1e-36": lambda *given: 1e-36 * _in_classes(*given),
    "tight classes": tight(1e-4),
    "tighter classes": tight(1e-6),
    "tight clusters in all classes": tight(1e-4, unrelated=True),
    "clusters in all classes": tight(0.2, unrelated=True),
    "a row far away": scaled_row(1e4),
    "a row very far away": scaled_row(1e12),
    "a tiny class": scaled_class(1e-12),
    "a huge class": scaled_class(1e12),
    "two tight points with different labels": _tight_pair,
    "one positive cone": lambda *given: np.abs(_in_classes(*given)) + 1,
    "heavy tails": lambda n, d, labels, rng: _in_classes(n, d, labels, rng) * np.exp(2 * rng.normal(size=(n, 1))),
}


@pytest.mark.parametrize(
    ("cloud", "metric", "dtype", "shape"),
    covering_array(CLOUDS, METRICS, ["float64", "float32"], [(200, 64, 3), (90, 400, 30)]),
)
def test_silhouette_in_many_dimensions_is_that_of_differences(cloud, metric, dtype, shape):
    n, d, k = shape
    rng = np.random.default_rng(n)
    labels = classes_of(n, k, rng)
    x = CLOUDS[cloud](n, d, labels, rng).astype(dtype)
    # silhouettes do not change with the scale, but the oracle's squares may leave the range
    expected = oracle(x.astype("float64") / np.abs(x).max(), labels, metric)
    error = {"float64": 1e-9, "float32": 1e-6}[dtype]
    assert abs(float(silhouette(x, labels, metric=metric)) - expected) < error


@pytest.mark.parametrize("scale", [2e-140, 0.5e140])
@pytest.mark.parametrize("metric", METRICS)
def test_float64_of_any_scale(metric, scale):
    rng = np.random.default_rng(0)
    x, labels = rng.uniform(0.2, 1, size=(30, 4)), classes_of(30, 4, rng)
    expected = float(silhouette(x, labels, metric=metric))
    assert float(silhouette(scale * x / x.max(), labels, metric=metric)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("metric", METRICS)
def test_lower_precision_of_others_does_not_reach_the_products(metric):
    """Autocast would take bfloat16 products, whose error is 1e-3."""
    rng = np.random.default_rng(0)
    labels = classes_of(200, 4, rng)
    x = torch.from_numpy(_in_classes(200, 64, labels, rng)).float()
    with torch.autocast("cpu"):
        result = float(silhouette(x, labels, metric=metric))
    assert abs(result - oracle(x.double().numpy(), labels, metric)) < 1e-6


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 0, 0, 0], "all 4 labels are equal"),
        ([0, 1, 2, 3], "each of the 4 rows has a label of its own"),
        ([0, 1, 0], "3 labels for 4 rows"),
        ([0, 1, None, 0], r"labels lack a value in row 2 \(None\)"),
        (np.array([0, 1, np.nan, 0]), r"labels lack a value in row 2 \(nan\)"),
        (np.zeros((4, 2)), "not single values"),
        ([[0, 1], [1, 0], [0, 1], [1, 1]], "not single values"),
        (3, "labels = 3; expected a list"),
        (np.array(1), r"labels = array\(1\); expected a list"),
        ({0: 1}, "labels = {0: 1}; expected a list"),
    ],
)
def test_unusable_labels(labels, message):
    with pytest.raises(InputError, match=message):
        silhouette(np.eye(4), labels)


@pytest.mark.parametrize("metric", METRICS)
def test_gradients_of_float32_and_of_copies_are_finite_and_those_of_float64(metric):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(np.repeat(rng.normal(size=(10, 5)), 2, axis=0)).float()
    gradients = []
    for rows in (x.requires_grad_(), x.detach().double().requires_grad_()):
        (gradient,) = torch.autograd.grad(silhouette(rows, [0, 1, 2, 0] * 5, metric=metric), rows)
        gradients.append(gradient.double())
    assert gradients[0].abs().max() > 1e-3
    assert torch.allclose(gradients[0], gradients[1], atol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n", [2, 5, 9])
def test_classes_on_the_same_duplicated_rows_are_0_over_0(metric, n):
    """Classes of n and n + 1 copies of one row have a = b = 0, hence 0; two copies of another row have 1."""
    for seed in range(5):
        v, w = np.random.default_rng([seed, n]).normal(size=(2, 7))
        x = np.concatenate([np.tile(v, (2 * n + 1, 1)), np.tile(w, (2, 1))])
        labels = [0] * n + [1] * (n + 1) + [2, 2]
        assert float(silhouette(x, labels, metric=metric)) == pytest.approx(2 / (2 * n + 3), abs=1e-12)


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
def test_more_rows_than_a_block(metric):
    """Mean squared distances by the parallel axis theorem, in one piece."""
    rng = np.random.default_rng(0)
    x, labels = cone(5000, 3, rng), rng.integers(4, size=5000)
    u = x / np.linalg.norm(x, axis=1, keepdims=True) if metric == "cosine" else x
    centres = np.stack([u[labels == k].mean(0) for k in range(4)])
    spreads = np.array([((u[labels == k] - centres[k]) ** 2).sum(1).mean() for k in range(4)])
    means = ((u[:, None] - centres) ** 2).sum(-1) + spreads
    counts = np.bincount(labels)[labels]
    a = means[np.arange(5000), labels] * counts / (counts - 1)
    means[np.arange(5000), labels] = np.inf
    b = means.min(1)
    assert np.allclose(silhouette_samples(x, labels, metric=metric), (b - a) / np.maximum(a, b), atol=1e-9)


@pytest.mark.parametrize("block", [7, 64, 1024])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_float32_rows_without_each_block_keep_six_digits(block, scale, monkeypatch):
    """Tight clusters far from each other and from the origin, where plain float32 products leave nothing."""
    monkeypatch.setattr("clip_geometry.geometry.distances.by_class.BLOCK", block)
    rng = np.random.default_rng(0)
    codes = np.arange(120) % 3
    x = (100 * rng.normal(size=(3, 5)) + 50)[codes] + 0.01 * rng.normal(size=(120, 5))
    x = (scale * x).astype(np.float32)
    block_of = rng.integers(-1, 4, size=120)
    for labels in (codes, np.arange(120) % 6, rng.integers(2, size=120)):
        rows = BlockedRows(torch.from_numpy(x), torch.from_numpy(block_of), 4)
        result = [float(value) for value in measures["silhouette"].without_each(rows, labels)]
        kept = [block_of != b for b in range(4)]
        assert result == pytest.approx(
            [silhouette_score(x[k].astype(np.float64) / scale, labels[k]) for k in kept], abs=1e-6
        )


def population(n=1200, d=6, shares=(0.5, 0.3, 0.12, 0.06, 0.02), seed=0):
    """Overlapping classes of very uneven sizes, two of them of one row."""
    rng = np.random.default_rng(seed)
    k = len(shares)
    labels = np.concatenate([[k, k + 1], np.arange(k), rng.choice(k, size=n - k - 2, p=shares)])
    return 0.7 * rng.normal(size=(k + 2, d))[labels] + rng.normal(size=(n, d)), labels


def draws(x, labels, *, seeds, **options):
    result = [sampled_silhouette(x, labels, seed=seed, **options) for seed in range(seeds)]
    return (np.array([float(each[part]) for each in result]) for part in (0, 1))


@pytest.mark.parametrize("k", [2, 29])
def test_of_all_rows_it_is_the_silhouette_without_an_error(k):
    rng = np.random.default_rng(k)
    x = cone(60, 5, rng)
    labels = np.concatenate([np.arange(k), rng.integers(k, size=60 - k)])  # singletons among them at k = 29
    result = sampled_silhouette(x, labels, of=60)
    assert float(result.value) == pytest.approx(float(silhouette(x, labels)), abs=1e-12)
    assert result.standard_error == 0
    assert result.rows == 60


@pytest.mark.parametrize("of", [2, 7, 100])
def test_some_rows_have_the_silhouettes_that_they_have_among_all(of, monkeypatch):
    x, labels = population(300)
    seen = []
    sums_by_class, stratified = module.sums_by_class, module._stratified

    def watched(x, chosen, *rest):
        seen.append(chosen)
        return sums_by_class(x, chosen, *rest)

    def mean(values, *rest):
        seen.append(values)
        return stratified(values, *rest)

    monkeypatch.setattr(module, "sums_by_class", watched)
    monkeypatch.setattr(module, "_stratified", mean)
    result = sampled_silhouette(x, labels, of=of, seed=3)
    chosen, values = seen
    assert result.rows == len(chosen) == len(set(chosen.tolist())) == of
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
    assert said == f"mean over 100 of 400 rows, drawn from all classes (seed 0), standard error {error:.1g}"


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([0, 0, 1, 1], {"of": 1}, "of = 1; expected a whole number from 2 on, of rows, for a standard error"),
        ([0, 1, 2, 3], {}, "each of the 4 rows has a label of its own"),
        ([0, 0, 0, 0], {}, "all 4 labels are equal"),
    ],
)
def test_unusable_samples(labels, options, message):
    with pytest.raises(InputError, match=message):
        sampled_silhouette(np.eye(4), labels, **options)


@pytest.mark.parametrize(("dtype", "error"), [("float64", 1e-12), ("float32", 1e-6)])
@pytest.mark.parametrize(("block", "kept"), [(1024, 2**24), (7, 2**24), (64, 30)])
def test_sums_are_those_of_the_definition(block, kept, dtype, error, monkeypatch):
    monkeypatch.setattr(by_class, "BLOCK", block)
    monkeypatch.setattr(by_class, "KEPT", kept)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(90, 12)) + 40).to(getattr(torch, dtype))
    x[3] = x[50]
    of = torch.from_numpy(rng.permutation(90)[:40])
    groups = torch.from_numpy(rng.choice([0, 2, 3, 5, 8], size=90))
    apart = (x.double()[:, None] - x.double()[None]).square().sum(-1).sqrt()
    expected = torch.stack([apart[of][:, groups == g].sum(1) for g in range(9)])
    rows, sums = (torch.cat(parts, dim=-1) for parts in zip(*by_class.sums_by_class(x, of, groups, 9), strict=True))
    assert torch.equal(rows, of)
    unit = 2.0 ** torch.frexp(x.abs().max().double()).exponent  # a power of two
    assert torch.allclose(sums * unit, expected, rtol=error, atol=0)


SIZES = {"even": [10] * 7, "uneven": [500, 1, 1, 80, 3, 3, 1, 200], "one large": [1000, 1], "tiny": [1] * 30 + [2]}


def test_ranks_count_the_rows_of_each_class_in_a_random_order():
    codes = torch.tensor([2, 0, 2, 2, 0, 1, 2])
    seen = {tuple(random_ranks(codes, torch.Generator().manual_seed(seed)).tolist()) for seed in range(300)}
    assert len(seen) == 2 * 24  # every order of two and of four rows
    for ranks in seen:
        for c, size in enumerate((2, 1, 4)):
            assert sorted(np.array(ranks)[codes == c]) == list(range(size))


@pytest.mark.parametrize("of", [2, 5, 31])
@pytest.mark.parametrize("sizes", SIZES)
def test_two_rows_or_more_fall_to_each_stratum(sizes, of):
    sizes = torch.tensor(SIZES[sizes])
    stratum = strata(sizes, of)
    assert sorted(set(stratum.tolist())) == list(range(int(stratum.max()) + 1))
    sums = torch.zeros(int(stratum.max()) + 1, dtype=torch.long).index_add(0, stratum, sizes)
    drawn = in_proportion(sums, of)
    assert drawn.sum() == of
    assert (drawn >= 2).all() and (drawn <= sums).all()
    assert ((drawn - sums * of / sums.sum()).abs() < 1).all()


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_two_clusters_far_apart_have_the_closed_form(metric):
    """Clusters {0, 1} and {L, L + 1}: a = 1 and b is the mean distance to the two far points."""
    far = 10.0
    power = 1 if metric == "euclidean" else 2
    x = np.array([[0.0], [1.0], [far], [far + 1]])
    b = np.array([(far**power + (far + 1) ** power) / 2, ((far - 1) ** power + far**power) / 2])
    assert float(silhouette(x, [0, 0, 1, 1], metric=metric)) == pytest.approx((1 - 1 / b).mean(), rel=1e-12)


def test_strata_help_where_classes_differ():
    """Silhouettes of one class near 1, of the other below 0: rows drawn from both in proportion tell little more by
    chance, rows drawn from all together do."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 600)
    x = rng.normal(size=(1200, 4)) * np.where(labels == 0, 0.05, 3)[:, None]
    values, _ = draws(x, labels, of=50, seeds=60)
    together = silhouette_samples(x, labels)
    assert values.std() < 0.5 * together.std() / np.sqrt(50)
