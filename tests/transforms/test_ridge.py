"""Ridge regression between two sets: scikit-learn's, and reduced rank against its definition."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge as Theirs

from clip_geometry.registry import InputError
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.transforms import Ridge
from support.clouds import cone


@pytest.fixture
def pairs():
    rng = np.random.default_rng(0)
    x = cone(40, 5, rng)
    return x, x @ rng.normal(size=(5, 7)) + rng.normal(size=(40, 7)) + 3


@pytest.mark.parametrize("alpha", [0.001, 0.1, 5.0])
def test_the_map_is_scikit_learns(pairs, alpha):
    x, y = pairs
    scaled = alpha * np.square(x - x.mean(0)).sum() / 5
    theirs, ours = Theirs(alpha=scaled).fit(x, y), Ridge(alpha).fit(x, y)
    others = cone(9, 5, np.random.default_rng(1))
    assert np.abs(ours.transform(others) - theirs.predict(others)).max() < 1e-10
    assert np.allclose(Ridge(alpha).fit(10 * x, y).transform(10 * others), ours.transform(others))


def test_few_pairs_in_many_dimensions(pairs):
    x, y = (each[:3] for each in pairs)
    scaled = 0.1 * np.square(x - x.mean(0)).sum() / 5
    assert np.abs(Ridge().fit(x, y).W_ - Theirs(alpha=scaled).fit(x, y).coef_.T).max() < 1e-10
    equal = Ridge().fit(np.tile(x[0], (2, 1)), y[:2])
    assert np.allclose(equal.transform(x), np.tile(y[:2].mean(0), (3, 1)))


@pytest.mark.parametrize("rank", [1, 3])
def test_low_rank(pairs, rank):
    """Ridge of pairs with √λ I below, whose fitted rows are projected on their principal axes: no W of this rank has a
    smaller sum of squared errors and penalty."""
    x, y = pairs
    fitted = Ridge(0.1, rank=rank).fit(x, y)
    a, b = x - x.mean(0), y - y.mean(0)
    scaled = 0.1 * np.square(a).sum() / 5
    a, b = np.concatenate([a, np.sqrt(scaled) * np.eye(5)]), np.concatenate([b, np.zeros((5, 7))])
    full = np.linalg.lstsq(a, b)[0]
    axes = np.linalg.svd(a @ full, full_matrices=False)[2][:rank]
    assert np.abs(fitted.W_ - full @ axes.T @ axes).max() < 1e-10
    assert np.linalg.matrix_rank(fitted.W_) == fitted.rank_ == rank


def test_streamed_rows_give_the_same_map(pairs):
    x, y = pairs
    streamed = Ridge(0.1, rank=2).fit(*(StreamedRows.of(each, name="x") for each in pairs))
    assert np.allclose(streamed.W_, Ridge(0.1, rank=2).fit(x, y).W_, atol=1e-10)


def test_pairs_that_do_not_fit(pairs):
    x, y = pairs
    with pytest.raises(InputError, match="source has 40 rows and target has 39; expected pairs"):
        Ridge().fit(x, y[1:])
    with pytest.raises(InputError, match="rank of ridge = 3; expected at most 2 for 3 pairs of 5 and 7 dimensions"):
        Ridge(rank=3).fit(x[:3], y[:3])
