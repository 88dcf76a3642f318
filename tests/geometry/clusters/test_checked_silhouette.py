"""A silhouette and its error."""

import numpy as np
import pytest
import torch

from clip_geometry.geometry import silhouette, silhouette_samples
from clip_geometry.geometry.clusters.checked_silhouette import checked_silhouette
from clip_geometry.registry import InputError


def rows(dtype):
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.arange(6), rng.integers(5, size=294)])  # one class of one row
    return (rng.normal(size=(6, 64))[labels] + rng.normal(size=(300, 64))).astype(dtype), labels


@pytest.mark.parametrize(("dtype", "low", "high"), [("float32", 1e-10, 1e-6), ("float64", 0, 1e-13)])
def test_the_error_is_the_distance_from_float64(dtype, low, high):
    x, labels = rows(dtype)
    found = checked_silhouette(x, labels, of=300)
    exact = silhouette_samples(x.astype("float64"), labels)
    error = np.abs(silhouette_samples(x, labels) - exact)
    assert float(found.largest_error) == pytest.approx(float(error.max()), abs=1e-13)
    assert float(found.error) == pytest.approx(float(np.sqrt(np.square(error).mean())), abs=1e-13)
    assert low <= found.error <= found.largest_error < high
    assert abs(found.value - exact.mean()) <= found.largest_error
    assert (found.checked, found.products) == (300, dtype)
    assert found.value == silhouette(x, labels)


def test_some_rows_are_checked():
    x, labels = rows("float32")
    found = [checked_silhouette(torch.from_numpy(x), labels, of=10, seed=seed) for seed in (0, 0, 1)]
    assert [each.checked for each in found] == [10, 10, 10]
    assert found[0].error == found[1].error != found[2].error
    with pytest.raises(InputError, match="of = 0; expected a whole number from 1 on, of rows to check"):
        checked_silhouette(x, labels, of=0)
