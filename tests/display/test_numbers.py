"""Numbers as a reader meets them."""

import math

import pytest

from clip_geometry.display.numbers import bound, brief, fixed, number, percent, plus_minus, to_error


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.85142, "0.8514"),
        (-0.0312, "−0.0312"),
        (0.000123, "0.00012"),
        (3.4e-7, "3.4 × 10⁻⁷"),
        (6.4e-17, "0"),
        (0.99999, "1.000"),
        (999999.9, "1000000"),
        (-2.5e12, "−2.5 × 10¹²"),
        (None, "–"),
        (math.nan, "–"),
        (True, "–"),
    ],
)
def test_number(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.73012, 0.0123, "0.730 ± 0.012"),
        (1234.4, 56.0, "1234 ± 56"),
        (0.5, 0.0, "0.5000"),
        (0.7, 0.0996, "0.70 ± 0.10"),
        (-0.000079, 0.000098, "−0.000079 ± 0.000098"),
        (None, 0.1, "–"),
    ],
)
def test_plus_minus(value, error, text):
    assert plus_minus(value, error) == text


def test_without_an_error_the_neighbors_decide():
    assert plus_minus(8e-6, None, 0.3) == plus_minus(8e-6, 1e-9, 0.3) == to_error(8e-6, None, 0.3) == "0.0000"


@pytest.mark.parametrize(
    ("null", "error", "text"),
    [
        (-0.00098, 0.000098, "−0.000980"),
        (0.1, None, "0.1000"),
        (None, 0.1, "–"),
    ],
)
def test_a_null_value_has_the_decimals_of_the_value_that_it_stands_beside(null, error, text):
    assert to_error(null, error) == text


@pytest.mark.parametrize(
    ("value", "others", "text"),
    [
        (-8.8e-6, [0.0048], "0.0000"),
        (0, [], "0"),
        (-2e-6, [1e-5, -2e-6, None], "−0.000002"),
        (-5.6e-5, [1e-4], "−0.00006"),
        (2e-7, [5e-7], "2.0 × 10⁻⁷"),
        (None, [0.5], "–"),
    ],
)
def test_what_is_small_has_the_decimals_of_its_neighbors(value, others, text):
    assert to_error(value, None, *others) == text


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


@pytest.mark.parametrize(("value", "text"), [(1.193, "1.19"), (0.2387, "0.24"), (0.0174, "0.017"), (-0.014, "−0.014")])
def test_running_text_has_few_digits(value, text):
    assert brief(value) == text
