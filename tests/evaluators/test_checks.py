import numpy as np
import pytest
import torch

from clip_geometry.evaluators.checks import members, positive_number, seed_number, whole_number
from clip_geometry.registry import InputError


@pytest.mark.parametrize("value", [3, np.int64(3), np.array(3), torch.tensor(3), np.uint8(3)])
def test_whole_numbers(value):
    found = whole_number(value, "k")
    assert found == 3 and type(found) is int


@pytest.mark.parametrize("value", [2.0, "3", None, True, np.float64(2), [3], 0, -1, float("nan"), 6])
def test_what_is_no_whole_number(value):
    with pytest.raises(InputError, match=r"^folds = .*; expected a whole number from 1 to 5, the rows$"):
        whole_number(value, "folds", most=5, of=", the rows")


def test_without_an_upper_bound():
    assert whole_number(10**9, "k") == 10**9
    with pytest.raises(InputError, match=r"draws = 1; expected a whole number from 2 on$"):
        whole_number(1, "draws", least=2)


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.array(0.5), torch.tensor(0.5), np.float16(0.5)])
def test_positive_numbers(value):
    found = positive_number(value, "C")
    assert found == 0.5 and type(found) is float
    assert positive_number(2, "C") == positive_number(np.int8(2), "C") == 2


@pytest.mark.parametrize("value", [0, -1.0, "1", None, True, float("nan"), float("inf"), [1.0], np.array([1.0, 2.0])])
def test_what_is_no_positive_number(value):
    with pytest.raises(InputError, match=r"^C = .*; expected a positive, finite number, or 'validation'$"):
        positive_number(value, "C", of=", or 'validation'")


def test_members():
    several = ((1, 2), [1, 2], range(1, 3), np.array([1, 2]), torch.tensor([1, 2]), iter([1, 2]), {1, 2})
    assert all(members(value) == [1, 2] for value in several)
    assert members(()) == []
    assert [members(value) for value in (1, "ab", None, np.float32(1), np.array(1))] == [None] * 5


@pytest.mark.parametrize("value", [-1, 2**32, 1.5, "a", None])
def test_seeds(value):
    assert seed_number(2**32 - 1) == 2**32 - 1 and seed_number(0) == 0
    with pytest.raises(InputError, match=r"seed = .*; expected a whole number from 0 to 4294967295"):
        seed_number(value)
