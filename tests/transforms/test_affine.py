"""Fitted pipelines as one affine map, and why some are none."""

import numpy as np
import pytest

from clip_geometry import Pipeline
from clip_geometry.registry import InputError
from clip_geometry.transforms import Affine, Center, Procrustes
from support.clouds import cone


@pytest.fixture
def x():
    return cone(40, 6, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("steps", "unit_rows_in", "renormalise"),
    [
        ("", False, False),
        ("normalize", False, True),
        ("center", False, False),
        ("normalize,whiten(4)", True, False),
        ("normalize,scale(3),center", True, False),
        ("normalize,normalize,center,pca(3),normalize", True, True),
        ("whiten(5),pca(2, center=false),normalize,normalize", False, True),
    ],
)
def test_affine_chains_are_w_and_b(x, steps, unit_rows_in, renormalise):
    fitted, y = Pipeline(steps).fit({"any": x}), cone(9, 6, np.random.default_rng(1))
    affine, expected = fitted.affine("any"), fitted.transform({"any": y})["any"]
    assert (affine.unit_rows_in, affine.renormalise) == (unit_rows_in, renormalise)
    rows = y / np.linalg.norm(y, axis=1, keepdims=True) if unit_rows_in else y
    rows = rows @ affine.W + affine.b
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True) if renormalise else rows
    assert np.allclose(rows, expected, rtol=1e-10, atol=1e-10)
    assert np.allclose(affine(y), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("center,normalize,pca(2)", r"a normalize stands between affine steps \(before pca\).*first and last"),
        ("normalize,cluster_center(2)", "cluster_center is not an affine map"),
    ],
)
def test_what_is_no_affine_map_says_why(x, steps, message):
    with pytest.raises(InputError, match=message):
        Pipeline(steps).fit({"any": x}).affine("any")


def test_a_square_map_after_a_shift_moves_the_shift_too():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)) + 5, rng.normal(size=(30, 4))
    chain = [Center().fit(x), Procrustes().fit(x, y)]
    assert np.allclose(Affine.of(chain, 4)(x), chain[1].transform(chain[0].transform(x)), rtol=0, atol=1e-12)
