"""Numbers as a reader meets them."""

import math

import pytest

from clip_geometry.report.numbers import beside, bound, fixed, number, percent, plus_minus


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
    ("value", "others", "text"),
    [
        (-8.8e-6, [0.0048], "0.0000"),
        (-7e-5, [None, 0.3], "−0.0001"),
        (0, [-0.3], "0.0000"),
        (0, [], "0"),
        (-2e-6, [1e-5, -2e-6, None], "−2.0 × 10⁻⁶"),
        (0.98, [0.5], "0.9800"),
        (None, [0.5], "–"),
    ],
)
def test_what_is_zero_to_the_digits_of_its_neighbours_shows_as_zero(value, others, text):
    assert beside(value, *others) == text


@pytest.mark.parametrize(("value", "decimals", "text"), [(-0.0004, 2, "0.00"), (-0.126, 2, "−0.13"), (53.4, 0, "53")])
def test_fixed(value, decimals, text):
    assert fixed(value, decimals) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.374, "37%"), (0.004, "under 1%"), (0.0, "0%"), (1e-17, "0%"), (0.997, "over 99%"), (1.0, "100%")],
)
def test_percent(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (-1.0, "−1"), (math.inf, "∞"), (-math.inf, "−∞"), ("d", "d"), (180, "180")]
)
def test_bound(value, text):
    assert bound(value) == text
