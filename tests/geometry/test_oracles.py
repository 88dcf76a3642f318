"""Every registered measure against its definition: on every cloud, in every precision and memory layout."""

import numpy as np
import pytest
import torch

from clip_geometry.geometry import measures
from support.clouds import CLOUDS, MEASURES, arguments
from support.oracles import ORACLES

# float64: the digits that the definitions themselves keep; scores bounded by 1 are compared absolutely
EXACT = {"rel": 1e-9, "abs": 1e-9}
SINGLE = {"rel": 1e-6, "abs": 1e-6}


def tolerance(measure, exact):
    bounded = all(isinstance(bound, int | float) and abs(bound) <= 1 for bound in measure.range)
    return exact if bounded else {"rel": exact["rel"], "abs": 0.0}


def undetermined(measure, cloud):
    """The rows of the eigenvector matrix are arbitrary where the null space is, the other bases are not."""
    return "[rows]" in measure.name and cloud == "fewer rows than dimensions"


def test_every_measure_has_an_oracle():
    assert ORACLES.keys() == MEASURES.keys()


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("name", MEASURES)
def test_float64(name, cloud):
    measure = measures[name]
    if undetermined(measure, cloud):
        pytest.skip("a null space has no distinguished basis")
    sets = arguments(measure, cloud)
    assert float(measure(*sets)) == pytest.approx(ORACLES[name](*sets), **tolerance(measure, EXACT))


def survives(x, dtype, measure):
    """float16 ends at 65 504, its small rows become zeros, and near rows become copies."""
    converted = x.to(dtype).double()
    several = len(converted.unique(dim=0)) >= measure.least_n
    return bool(converted.isfinite().all()) and float((converted - x).norm() / x.norm()) < 0.01 and several


LOWER = (torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("name", MEASURES)
def test_lower_precision_is_exact_on_the_converted_rows(name):
    """On every cloud, in one of the types that can hold its rows; all of them have their turn."""
    measure, used = measures[name], set()
    result, expected = {}, {}
    for turn, cloud in enumerate(CLOUDS, list(MEASURES).index(name)):
        x, *rest = (torch.as_tensor(part.copy()) for part in arguments(measure, cloud))
        types = [dtype for dtype in LOWER[turn % 3 :] + LOWER[: turn % 3] if survives(x, dtype, measure)]
        if undetermined(measure, cloud) or not types:
            continue
        used.add(types[0])
        sets = [x.to(types[0]), *(part.to(types[0]) if part.is_floating_point() else part for part in rest)]
        oracle = ORACLES[name](*(part.double().numpy() if part.is_floating_point() else part.numpy() for part in sets))
        result[cloud], expected[cloud] = float(measure(*sets)), oracle
    assert {"plain", "duplicated rows"} <= result.keys() and used == {*LOWER}
    assert result == pytest.approx(expected, **tolerance(measure, SINGLE))


def non_contiguous(x):
    wide = np.zeros((x.shape[0], 2 * x.shape[1]))
    wide[:, ::2] = x
    return wide[:, ::2]


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def negative_stride(x):
    return np.ascontiguousarray(x[::-1])[::-1]


def big_endian(x):
    return x.astype(">f8")


@pytest.mark.parametrize("name", MEASURES)
def test_memory_layouts(name):
    measure = measures[name]
    x, *rest = arguments(measure, "plain")
    layouts = (non_contiguous, read_only, negative_stride, big_endian)
    result = {layout.__name__: float(measure(layout(x), *rest)) for layout in layouts}
    assert result == pytest.approx(dict.fromkeys(result, float(measure(x, *rest))), rel=1e-12)


@pytest.mark.parametrize("name", MEASURES)
def test_result_is_a_float64_scalar_and_the_input_is_untouched(name):
    measure = measures[name]
    sets = arguments(measure, "plain")
    before = [part.copy() for part in sets]
    result = measure(*(torch.tensor(part) for part in sets))
    assert measure(*sets) == result
    assert result.ndim == 0
    assert result.dtype == torch.float64
    assert all((part == old).all() for part, old in zip(sets, before, strict=True))
