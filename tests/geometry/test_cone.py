import math

import numpy as np
import pytest

from clip_geometry.geometry import cone
from clip_geometry.registry import InputError


def circle(angle, n=60):
    """n rows at `angle` (radians) around the first axis, of different lengths."""
    turn = np.arange(n) * 2 * np.pi / n
    rows = np.stack([np.full(n, np.cos(angle)), np.sin(angle) * np.cos(turn), np.sin(angle) * np.sin(turn)], axis=1)
    return rows * np.linspace(1, 5, n)[:, None]


@pytest.mark.parametrize("degrees", [1e-5, 0.3, 25.0, 80.0])
def test_half_angle_is_the_angle_of_the_circle(degrees):
    found = cone(circle(math.radians(degrees)))
    assert np.abs(found.axis - [1, 0, 0]).max() < 1e-9
    for angle in (found.half_angle, found.half_angle_99):
        assert float(angle) == pytest.approx(degrees, rel=1e-9)
    for cosine in (found.mean_cosine, found.min_cosine):
        assert float(cosine) == pytest.approx(math.cos(math.radians(degrees)), abs=1e-12)


def test_quantile_angle_ignores_one_outlier_in_a_thousand():
    rows = np.concatenate([circle(0.1, 999), [[0.0, 1.0, 0.0]]])
    found = cone(rows)
    cosines = rows @ found.axis / np.linalg.norm(rows, axis=1)
    assert float(found.half_angle) > 80
    assert float(found.half_angle_99) == pytest.approx(math.degrees(math.acos(np.quantile(cosines, 0.01))), rel=1e-9)


def test_cancelling_directions_have_no_axis():
    with pytest.raises(InputError, match="there is no cone axis"):
        cone(np.array([[1.0, 2.0], [-2.0, -4.0]]))
    pairs = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(InputError, match="there is no cone axis"):
        cone(np.concatenate([pairs, -pairs / 3 + 1e-11]))
