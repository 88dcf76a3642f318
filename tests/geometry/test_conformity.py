import numpy as np
import pytest
import torch

from clip_geometry.geometry import average_cosine, conformity, conformity_std
from clip_geometry.registry import InputError
from support.clouds import CLOUDS, cone
from support.oracles_objectives import conformity_distances

SEEDS = range(5)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_rows_agree_with_the_definition(cloud):
    x = CLOUDS[cloud](60, np.random.default_rng(0))
    assert np.abs(1 - conformity(x) - conformity_distances(x)).max() < 1e-12


@pytest.mark.parametrize("seed", SEEDS)
def test_mean_is_the_average_cosine_and_std_that_of_the_rows(seed):
    x = cone(40, 6, np.random.default_rng(seed))
    values = conformity(x)
    assert values.shape == (40,)
    assert values.dtype == np.float64
    assert float(values.mean()) == pytest.approx(float(average_cosine(x)), abs=1e-12)
    assert float(conformity_std(x)) == pytest.approx(float(values.std()), abs=1e-12)


def test_an_unusual_row_conforms_least():
    x = cone(40, 6, np.random.default_rng(0), offset=8.0)
    x[17] = -x.mean(0)
    values = conformity(x)
    assert int(values.argmin()) == 17
    assert float(values[17]) < 0 < float(np.delete(values, 17).min())


def test_orthogonal_rows_conform_alike():
    assert conformity(np.eye(5) * 3).tolist() == pytest.approx([0] * 5, abs=1e-12)
    assert float(conformity_std(np.eye(5))) == pytest.approx(0, abs=1e-12)
    # two rows along one axis, one across: (1 + 0)/2 twice, and 0
    x = np.array([[1.0, 0], [2.0, 0], [0, 3.0]])
    assert conformity(x).tolist() == pytest.approx([0.5, 0.5, 0], abs=1e-12)
    assert float(conformity_std(x)) == pytest.approx(np.std([0.5, 0.5, 0]), rel=1e-12)


def test_a_tight_cone_keeps_the_digits_of_the_spread():
    """Angles 0, ε, 3ε with ε = 1e-6: the spread of 1 − cos is of order 1e-12, below what conformities near 1 hold."""
    angles = 1e-6 * np.array([0.0, 1.0, 3.0])
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    squares = (angles[:, None] - angles) ** 2 / 2  # 1 − cos to order ε⁴
    assert float(conformity_std(x)) == pytest.approx(np.std(squares.sum(1) / 2), rel=1e-6)


def test_centering_takes_the_spread_away():
    """The caveat: without a common direction it is near 0 however unusual rows are."""
    x = cone(400, 6, np.random.default_rng(0), offset=3.0)
    x[:20] *= -1
    assert float(conformity_std(x)) > 0.2
    centered = x - x.mean(0)
    unit = centered / np.linalg.norm(centered, axis=1, keepdims=True)
    assert float(conformity_std(unit - unit.mean(0))) < 0.05


def test_two_rows_always_conform_alike():
    x = cone(2, 4, np.random.default_rng(0))
    first, second = conformity(x).tolist()
    assert first == pytest.approx(second, rel=1e-12)
    with pytest.raises(InputError, match="2 rows; expected at least 3"):
        conformity_std(x)
    with pytest.raises(InputError, match="1 row; expected at least 2"):
        conformity(x[:1])
    with pytest.raises(InputError, match=r"zero row \(row 1\)"):
        conformity(x * [[1], [0]])


@pytest.mark.parametrize("measure", [conformity, conformity_std])
def test_gradients(measure):
    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(measure, (x,))
