import numpy as np
import pytest

from clip_geometry.geometry import isoscore
from clip_geometry.measuring.records import named
from clip_geometry.references import isoscore_package
from clip_geometry.registry import InputError
from support.clouds import cone


@pytest.mark.parametrize("shape", [(200, 12), (30, 40)])
def test_the_package_agrees_with_ours_to_float32(shape):
    x = cone(*shape, np.random.default_rng(0)).astype("float32")
    assert float(isoscore_package(x)) == pytest.approx(float(isoscore(x)), abs=1e-5)


def test_is_found_by_name_and_taken_only_by_name():
    (measure,) = named(["isoscore[package]"])
    assert measure.function is isoscore_package and not measure.by_default


def test_equal_rows_are_an_error():
    with pytest.raises(InputError, match="are equal"):
        isoscore_package(np.ones((5, 3)))
