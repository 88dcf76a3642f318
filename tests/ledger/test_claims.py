"""The verdict of a claim is what its rule says, for numbers on either side of it."""

from dataclasses import replace

import numpy as np
import pytest

from clip_geometry.ledger import papers
from clip_geometry.ledger.claims import VERDICTS, judge
from clip_geometry.ledger.comparing import Line, Ours
from clip_geometry.ledger.entries import Claim, Entry, Rule, Variant, claims
from clip_geometry.ledger.pages import all_lines
from clip_geometry.ledger.published import Published
from clip_geometry.registry import InputError

RULE = Rule(config="x/y", needs="a model", where={"measure": "m"})


def line(name, printed, *values, unlike=(), error=None, variants=("",)):
    """A published number with values of ours, one for each variant."""
    value = float(printed) if printed.replace("-", "").replace(".", "").isdigit() else None
    found = tuple(Variant(label=label) for label in variants)
    entry = Entry(Published("p", "t", (name,), printed, value), "T", name, RULE.model_copy(update={"variants": found}))
    row = {"model": "M", "dataset": "D", "command": "clip-geometry run z"}
    ours = tuple(Ours(row, variant, value, error, unlike) for variant, value in zip(found, values, strict=False))
    return Line(entry, ours)


def verdict(*lines, **rule):
    claim = Claim(text="c", numbers=tuple(each.entry.published.path for each in lines), **rule)
    return judge(claim, {each.entry.published.path: each for each in lines})


@pytest.mark.parametrize(
    ("ours", "unlike", "error", "expected"),
    [
        (0.8449, (), None, "reproduced"),
        (0.8449, ("model",), None, "agrees elsewhere"),
        (0.86, (), 0.011, "within error"),
        (0.86, (), 0.009, "not reproduced"),
        (0.86, (), None, "undecided"),  # an error that is not known is not 0
        (0.86, ("model",), 0.011, "not run here"),  # a single number of another model is no test
    ],
)
def test_a_number(ours, unlike, error, expected):
    assert verdict(line("a", "0.84", ours, unlike=unlike, error=error)).verdict == expected


def test_fewer_decimals():
    rows = line("a", "-0.9397301613", -0.9404)
    assert verdict(rows).verdict == "undecided"
    judged = verdict(rows, decimals=2)
    assert (judged.verdict, judged.published) == ("reproduced", "−0.94 (to 2 decimals)")
    assert verdict(line("a", "-0.94", -0.9404), decimals=2).published == "−0.94"  # all that were printed


@pytest.mark.parametrize(
    ("ours", "error", "expected"),
    [
        ((1.0, 3.0), 0.1, "same order"),
        ((3.0, 1.0), 0.1, "not reproduced"),
        ((1.0, 1.2), 0.1, "undecided"),  # 0.2 of 2 · 0.14
        ((1.2, 1.0), 0.1, "undecided"),
        ((1.0, 3.0), None, "undecided"),
        ((3.0, 1.0), None, "undecided"),
    ],
)
def test_an_order(ours, error, expected):
    a, b = (line(n, p, o, unlike=("n",), error=error) for n, p, o in zip("ab", ("0.10", "0.20"), ours, strict=True))
    assert verdict(a, b, says="order").verdict == expected
    assert verdict(b, a, says="order").verdict == expected
    assert verdict(a, b, says="first lowest").verdict == verdict(b, a, says="first highest").verdict == expected


def test_the_first_is_compared_with_each_and_the_others_are_not_with_each_other():
    values = (("a", "1.0", 5.0), ("b", "2.0", 9.0), ("c", "3.0", 7.0))
    lines = [line(n, p, o, unlike=("n",), error=0.1) for n, p, o in values]
    assert verdict(*lines, says="first lowest").verdict == "same order"
    assert verdict(*lines, says="order").verdict == "not reproduced"


def test_equal_printed_numbers_have_no_order():
    values = (("a", "1.0", 5.0), ("b", "1.0", 4.0), ("c", "3.0", 7.0))
    lines = [line(n, p, o, unlike=("n",), error=0.1) for n, p, o in values]
    assert verdict(*lines, says="order").verdict == "same order"
    assert verdict(*lines[:2], says="order").verdict == "undecided"  # no order was printed, so none is confirmed


def test_words_have_no_printed_order():
    words = line("a", "a curve", 1.0, error=0.1), line("b", "a curve", 2.0, error=0.1)
    with pytest.raises(InputError, match="says 'order' of words"):
        verdict(*words, says="order")


@pytest.mark.parametrize(
    ("ours", "unlike", "expected"),
    [(0.7, (), "not reproduced"), (0.9, (), "reproduced"), (0.9, ("n",), "same order"), (0.81, (), "undecided")],
)
def test_a_bound(ours, unlike, expected):
    rows = line("a", "0.84", ours, unlike=unlike, error=0.01)
    assert verdict(rows, says="above", bound=0.8).verdict == expected
    assert verdict(line("a", "0.84", -ours, unlike=unlike, error=0.01), says="below", bound=-0.8).verdict == expected
    assert verdict(line("a", "0.84", ours, unlike=unlike), says="above", bound=0.8).verdict == "undecided"


@pytest.mark.parametrize(
    ("deviation", "expected"), [(0.0058, "undecided"), (0.05, "not reproduced"), (0.0001, "reproduced")]
)
def test_a_standard_deviation_of_five_seeds_is_known_to_a_factor_of_three(deviation, expected):
    """By chi-square with four degrees of freedom the 95% interval of 0.0058 is 0.0035 to 0.0167."""
    rows = line("a", "0.0054", deviation)
    rows = replace(rows, ours=(replace(rows.ours[0], deviation_of=5),))
    low, high = rows.ours[0].interval
    assert (low / deviation, high / deviation) == pytest.approx((0.0035 / 0.0058, 0.0167 / 0.0058), rel=0.01)
    assert verdict(rows, says="below", bound=0.00545).verdict == expected


def test_the_interval_of_a_deviation_holds_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(size=(4000, 5)).std(axis=1, ddof=1)
    intervals = [replace(line("a", "1.0", each).ours[0], deviation_of=5).interval for each in draws]
    assert np.mean([low <= 1 <= high for low, high in intervals]) == pytest.approx(0.95, abs=0.014)  # 4 standard errors


def test_words_rise_in_the_order_of_the_claim():
    steps = line("figure", "a curve", -0.7, -0.5, -0.1, variants=("0", "1", "2"), error=0.01)
    claim = Claim(text="c", numbers=tuple(f"t.figure@{k}" for k in (0, 1, 2)), says="rises")
    assert judge(claim, {"t.figure": steps}).verdict == "same order"
    turned = claim.model_copy(update={"numbers": claim.numbers[::-1]})
    assert judge(turned, {"t.figure": steps}).verdict == "not reproduced"


def test_nothing_of_ours_says_what_it_needs():
    judged = verdict(line("a", "0.84"))
    assert (judged.verdict, judged.ours, judged.needs) == ("not run here", "", "needs a model")
    assert judged.run == "clip-geometry run configs/x/y.yaml"


def test_a_setup_is_selected_and_told_with_its_command():
    rows = line("a", "0.84", 0.841)
    other = replace(rows.ours[0], row={"model": "other"}, value=0.5)
    judged = verdict(replace(rows, ours=(other, *rows.ours)), where={"model": "M"})
    assert (judged.verdict, judged.ours, judged.run) == ("reproduced", "0.8410 (M, D)", "clip-geometry run z")


@pytest.mark.parametrize(("holds", "expected"), [(True, "holds"), (False, "does not hold")])
def test_what_no_number_decides(holds, expected):
    judged = judge(Claim(text="c", holds=holds, run="tests/x.py::test_y"), {})
    assert (judged.verdict, judged.run) == (expected, "tests/x.py::test_y")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("t.b", "names 't.b', which was not published"), ("t.a@x", "names the variant 'x', which t.a does not have")],
)
def test_a_claim_about_nothing(name, sentence):
    with pytest.raises(InputError, match=sentence):
        judge(Claim(text="c", numbers=(name,)), {"t.a": line("a", "0.84", 0.8)})


@pytest.mark.parametrize("paper", papers())
def test_every_paper_has_claims_that_can_be_judged_and_nothing_run_decides_none(paper):
    assert 7 <= len(claims(paper)) <= 16
    lines = {each.entry.published.path: each for each in all_lines(paper, {})}
    judged = [judge(claim, lines) for claim in claims(paper)]
    assert {each.verdict for each in judged} <= {"not run here", "holds", "does not hold"} <= set(VERDICTS)
    assert all(each.run or each.needs for each in judged)
