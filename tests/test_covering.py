from itertools import combinations, product

import pytest

from support.covering import covering_array


@pytest.mark.parametrize(("sizes", "most"), [((70, 4, 3), 280), ((5, 4, 3, 2), 24), ((14, 5, 3), 70), ((2, 2), 4)])
def test_any_two_values_of_two_parameters_occur_together(sizes, most):
    cases = covering_array(*map(range, sizes))
    for i, j in combinations(range(len(sizes)), 2):
        assert {(case[i], case[j]) for case in cases} == {*product(range(sizes[i]), range(sizes[j]))}
    assert len(cases) == len({*cases}) <= most and cases == covering_array(*map(range, sizes))
