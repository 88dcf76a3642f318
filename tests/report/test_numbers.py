"""Numbers as a reader meets them."""

import math

import pytest

from clip_geometry.report.numbers import bound, null_number, number, plus_minus


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.85142, "0.8514"),
        (-0.0312, "−0.0312"),
        (42.704, "42.70"),
        (1234.4, "1234"),
        (0.000123, "0.0001"),
        (0.0000123, "1.2 × 10⁻⁵"),
        (-2.5e12, "−2.5 × 10¹²"),
        (0, "0"),
        (3, "3.000"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        ("1", "–"),
        (True, "–"),
    ],
)
def test_number(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.73012, 0.0123, "0.730 ± 0.012"),
        (42.704, 3.21, "42.7 ± 3.2"),
        (1234.4, 56.0, "1234 ± 56"),
        (0.5, None, "0.5000"),
        (0.5, 0.0, "0.5000"),
        (None, 0.1, "–"),
    ],
)
def test_plus_minus(value, error, text):
    assert plus_minus(value, error) == text


@pytest.mark.parametrize(
    ("null", "value", "text"),
    [(-2e-6, 0.3, "0.0000"), (-7e-5, 0.3, "−0.0001"), (-2e-6, 1e-5, "−2.0 × 10⁻⁶"), (0.98, 0.5, "0.9800")],
)
def test_null_number_shows_noise_as_zero(null, value, text):
    assert null_number(null, value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (-1.0, "−1"), (math.inf, "∞"), (-math.inf, "−∞"), ("d", "d"), (180, "180")]
)
def test_bound(value, text):
    assert bound(value) == text
