"""Two numbers differ beyond two standard errors of their difference; without errors this is not known."""

import pytest

from clip_geometry_experiments.kit.significance import differ


@pytest.mark.parametrize(
    ("values", "errors", "expected"),
    [((1.0, 1.2), (0.1, 0.0), False), ((1.0, 1.21), (0.1, 0.0), True), ((1.0, 1.25), (0.1, 0.1), False),
     ((1.0, 1.0 + 1e-15), (None, None), False), ((1.0, 9.0), (None, None), None), ((1.0, 9.0), (0.1, None), None)],
)  # fmt: skip
def test_values_within_two_standard_errors_of_their_difference_are_a_tie(values, errors, expected):
    one, other = ({"value": v, "standard_error": e} for v, e in zip(values, errors, strict=True))
    assert differ(one, other) is differ(other, one) is expected
