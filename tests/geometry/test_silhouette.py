import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_samples as sklearn_samples

from clip_geometry.geometry import silhouette, silhouette_samples
from clip_geometry.geometry import silhouette as public
from clip_geometry.geometry.silhouette import _euclidean_sums, squared_distances
from clip_geometry.registry import InputError
from support.clouds import cone

METRICS = ("euclidean", "sqeuclidean", "cosine")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [2, 5, 29])
def test_samples_agree_with_scikit_learn(metric, k):
    rng = np.random.default_rng(k)
    x = cone(60, 5, rng)
    labels = np.concatenate([np.arange(k), rng.integers(k, size=60 - k)])  # singletons among them at k = 29
    ours = silhouette_samples(x, labels, metric=metric).numpy()
    # scikit-learn's own distances cancel for near rows, hence 1e-7
    assert np.abs(ours - sklearn_samples(x, labels, metric=metric)).max() < 1e-7


@pytest.mark.parametrize(
    "labels",
    [
        ["b", "a", "b", "a"],
        [2.5, 1.5, 2.5, 1.5],
        np.array(["y", "x", "y", "x"]),
        ("b", "a", "b", "a"),
        list(torch.tensor([1, 0, 1, 0])),
    ],
)
def test_labels_may_be_anything_that_can_be_compared(labels):
    x = np.array([[0.0, 0], [5.0, 0], [1.0, 0], [5.0, 2.0]])
    assert float(silhouette(x, labels)) == pytest.approx(float(silhouette(x, [0, 1, 0, 1])))


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_two_clusters_far_apart_have_the_closed_form(metric):
    """Clusters {0, 1} and {L, L + 1}: a = 1 and b is the mean distance to the two far points."""
    far = 10.0
    power = 1 if metric == "euclidean" else 2
    x = np.array([[0.0], [1.0], [far], [far + 1]])
    b = np.array([(far**power + (far + 1) ** power) / 2, ((far - 1) ** power + far**power) / 2])
    assert float(silhouette(x, [0, 0, 1, 1], metric=metric)) == pytest.approx((1 - 1 / b).mean(), rel=1e-12)


def test_singletons_and_coinciding_points_are_0():
    x = np.array([[0.0, 1], [0.0, 1], [0.0, 1], [7.0, 7.0]])
    assert silhouette_samples(x, [0, 0, 1, 2]).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("block_size", [1, 7, 64])
def test_blocks_do_not_change_the_sums(block_size):
    rng = np.random.default_rng(0)
    x, codes = torch.from_numpy(cone(50, 4, rng)), torch.from_numpy(rng.integers(3, size=50))
    oracle = np.stack([np.linalg.norm(x[:, None] - x[codes == k], axis=-1).sum(1) for k in range(3)], axis=1)
    assert np.allclose(_euclidean_sums(x, codes, 3, block_size), oracle, rtol=1e-12)


@pytest.mark.parametrize("spread", [1e-8, 1e-4, 1.0])
def test_distances_of_near_rows_are_not_cancelled(spread):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 6)).repeat(10, axis=0) + spread * rng.normal(size=(30, 6))
    exact = ((x[:, None] - x[None]) ** 2).sum(-1)
    found = squared_distances(torch.from_numpy(x), torch.from_numpy(x)).numpy()
    assert np.abs(found - exact).max() < 1e-9
    assert np.allclose(found, exact, rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 0, 0, 0], "all 4 labels are equal"),
        ([0, 1, 2, 3], "each of the 4 rows has a label of its own"),
        ([0, 1, 0], "3 labels for 4 rows"),
        ([0, 1, None, 0], "missing values"),
        (np.array([0, 1, np.nan, 0]), "missing values"),
        (np.zeros((4, 2)), "not single values"),
        ([[0, 1], [1, 0], [0, 1], [1, 1]], "not single values"),
        (3, "labels are a int; expected a list"),
        (np.array(1), "labels are a ndarray; expected a list"),
        ({0: 1}, "labels are a dict; expected a list"),
    ],
)
def test_unusable_labels(labels, message):
    with pytest.raises(InputError, match=message):
        silhouette(np.eye(4), labels)


def test_unknown_metric():
    with pytest.raises(InputError, match="metric 'manhattan' is unknown; known are 'euclidean'"):
        silhouette(np.eye(4), [0, 0, 1, 1], metric="manhattan")  # pyright: ignore


@pytest.mark.parametrize("metric", METRICS)
def test_gradients(metric):
    x = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda rows: public(rows, [0, 1, 0, 1, 2, 2, 0], metric=metric), (x,))


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
