"""The verdict of a claim is what its rule says, for numbers on either side of it."""

from dataclasses import replace

import pytest

from clip_geometry_experiments.published.ledger import Claim, LedgerEntry, Ours, Rule, Variant, entries, ledger, papers
from clip_geometry_experiments.published.pages import all_lines
from clip_geometry_experiments.published.tables import VERDICTS, judge

RULE = Rule(config=("x/y",), needs="a model", where={"measure": "m"})


def line(name, printed, *values, unlike=(), error=None, variants=("",)):
    """A published number with values of ours, one for each variant."""
    value = float(printed) if printed.replace("-", "").replace(".", "").isdigit() else None
    found = tuple(Variant(label=label) for label in variants)
    row = {"model": "M", "dataset": "D", "command": "clip-geometry run z"}
    ours = tuple(Ours(row, variant, value, error, unlike) for variant, value in zip(found, values, strict=False))
    rule = RULE.model_copy(update={"variants": found})
    return LedgerEntry("p", "t", (name,), printed, value, title="T", label=name, rule=rule, ours=ours)


def verdict(*lines, **rule):
    claim = Claim(text="c", numbers=tuple(each.path for each in lines), **rule)
    return judge(claim, {each.path: each for each in lines})


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


@pytest.mark.parametrize(
    ("ours", "error", "expected"),
    [
        ((1.0, 3.0), 0.1, "same order"),
        ((3.0, 1.0), 0.1, "differs elsewhere"),
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
    assert verdict(*lines, says="order").verdict == "differs elsewhere"


def test_equal_printed_numbers_have_no_order():
    values = (("a", "1.0", 5.0), ("b", "1.0", 4.0), ("c", "3.0", 7.0))
    lines = [line(n, p, o, unlike=("n",), error=0.1) for n, p, o in values]
    assert verdict(*lines, says="order").verdict == "same order"
    assert verdict(*lines[:2], says="order").verdict == "undecided"  # no order was printed, so none is confirmed


@pytest.mark.parametrize(
    ("ours", "unlike", "expected"),
    [
        (0.7, (), "not reproduced"),
        (0.7, ("n",), "differs elsewhere"),
        (0.9, (), "reproduced"),
        (0.9, ("n",), "same order"),
        (0.81, (), "undecided"),
    ],
)
def test_a_bound(ours, unlike, expected):
    rows = line("a", "0.84", ours, unlike=unlike, error=0.01)
    assert verdict(rows, says="above", bound=0.8).verdict == expected
    assert verdict(line("a", "0.84", -ours, unlike=unlike, error=0.01), says="below", bound=-0.8).verdict == expected
    assert verdict(line("a", "0.84", ours, unlike=unlike), says="above", bound=0.8).verdict == "undecided"


@pytest.mark.parametrize("n", [1000, 2000])
def test_numbers_that_depend_on_n_have_an_order_only_where_n_is_equal(n):
    def of(name, printed, value, n, unlike=("n",)):
        rows = line(name, printed, value, unlike=unlike, error=0.1)
        ours = replace(rows.ours[0], row={"n": n})
        return replace(rows, rule=rows.rule.model_copy(update={"depends_on_n": True}), ours=(ours,))

    judged = verdict(of("a", "1.0", 5.0, 2000), of("b", "2.0", 9.0, n), says="order")
    assert judged.verdict == ("same order" if n == 2000 else "undecided")
    assert ("No test: numbers of 1,000 and 2,000 rows" in judged.ours) == (n == 1000)
    own = of("a", "1.0", 5.0, 2000, unlike=()), of("b", "2.0", 9.0, n, unlike=())
    assert verdict(*own, says="order").verdict == "same order"  # the published numbers have these n


def test_a_choice_of_ours_that_decides_the_sign_is_no_test_but_of_the_paper_s_own_setup():
    rule = {"says": "below", "no_test": "our choice"}
    judged = verdict(line("a", "-0.84", -0.9, unlike=("model",), error=0.01), **rule)
    assert (judged.verdict, judged.ours) == ("undecided", "−0.900 ± 0.010 (M, D). No test: our choice")
    own = verdict(line("a", "-0.84", -0.9, error=0.01), **rule)
    assert own.verdict == "reproduced" and "No test" not in own.ours


def test_a_difference_of_two_numbers():
    lines = {
        f"t.{name}": line(name, printed, value, unlike=("n",), error=0.03)
        for name, printed, value in (("a", "0.73", 0.69), ("b", "0.49", 0.51), ("c", "0.3", 0.31), ("d", "0.15", 0.16))
    }
    claim = Claim(text="c", numbers=("t.c minus t.d", "t.a minus t.b"), says="order")
    judged = judge(claim, lines)
    assert (judged.published, judged.ours) == ("0.15, 0.24", "0.150 ± 0.042, 0.180 ± 0.042 (M, D)")
    assert judged.verdict == "undecided"  # 0.03 is within two errors of 0.06


def test_nothing_of_ours_says_what_it_needs():
    judged = verdict(line("a", "0.84"))
    assert (judged.verdict, judged.ours, judged.needs) == ("not run here", "", "needs a model")
    assert judged.run == ""  # no config has this setup


@pytest.mark.parametrize(("holds", "expected"), [(True, "holds"), (False, "does not hold")])
def test_what_no_number_decides(holds, expected):
    judged = judge(Claim(text="c", holds=holds, run="tests/x.py::test_y"), {})
    assert (judged.verdict, judged.run) == (expected, "tests/x.py::test_y")


@pytest.mark.parametrize("paper", papers())
def test_every_paper_has_claims_that_can_be_judged_and_nothing_run_decides_none(paper):
    assert 5 <= len(ledger(paper).claims) <= 20
    lines = {each.path: each for each in all_lines(paper, {})}
    judged = [judge(claim, lines) for claim in ledger(paper).claims]
    assert {each.verdict for each in judged} <= {"not run here", "holds", "does not hold"} <= set(VERDICTS)
    assert all(each.run or each.needs for each in judged)


@pytest.mark.parametrize("paper", papers())
def test_a_claim_names_variants_of_published_numbers(paper):
    labels = {each.path: [variant.label for variant in each.variants] for each in entries(paper)}
    for claim in ledger(paper).claims:
        for name in (part for each in claim.numbers for part in each.split(" minus ")):
            path, _, label = name.partition("@")
            assert path in labels and (not label or label in labels[path]), name


@pytest.mark.parametrize("paper", papers())
def test_what_a_claim_says_is_what_was_printed(paper):
    """An order is of printed numbers, and the first is the lowest or highest of these; of a figure without numbers the
    words have to state it ("beats")."""
    printed = {each.path: each for each in entries(paper)}
    for claim in (each for each in ledger(paper).claims if each.says not in ("", "above", "below")):
        names = [[part.partition("@")[0] for part in name.split(" minus ")] for name in claim.numbers]
        flat = [printed[part] for parts in names for part in parts]
        if all(each.value is None for each in flat):
            assert claim.says != "order" and all("beats" in each.text for each in flat), claim.text
            continue
        sizes = [printed[first].value - sum(printed[each].value for each in less) for first, *less in names]
        best = {"first lowest": min, "first highest": max}.get(claim.says)
        assert best is None or best(sizes) == sizes[0], claim.text
