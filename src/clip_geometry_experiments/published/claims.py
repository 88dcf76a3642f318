"""Verdicts on the claims of papers: a rule decides from the numbers that a claim names whether it holds in our runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from clip_geometry.display.numbers import fixed
from clip_geometry_experiments.published.comparing import ERRORS, flat, matches
from clip_geometry_experiments.published.ledger import Claim, LedgerEntry, Ours
from clip_geometry_experiments.published.tables import NAMES, in_words, null_text, setup_words, value_text

VERDICTS: dict[str, str] = NAMES["verdicts"]  # verdict → what it means
BOUNDS = ("above", "below")

Pair = tuple[LedgerEntry, Ours]  # a published number and our value
Estimate = tuple[float, float | None]  # a value and its standard error, None if unknown


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict.

    Args:
        claim: The claim.
        published: The published numbers as printed.
        ours: Our numbers and their setup.
        verdict: A key of VERDICTS.
        run: The command or test that checks the claim.
        needs: What the run needs, if it was not run.
        table: The title of the table with the first number.
    """

    claim: Claim
    published: str
    ours: str
    verdict: str
    run: str
    needs: str = ""
    table: str = ""


def judge(claim: Claim, lines: Mapping[str, LedgerEntry]) -> Judged:
    """Return the verdict on a claim.

    Args:
        claim: The claim.
        lines: Path of a published number → the number with our values.
    """
    if claim.holds is not None:
        return Judged(claim, "", "", "holds" if claim.holds else "does not hold", claim.run)
    found = [_find(claim, name, lines) for name in claim.numbers]
    entry = found[0]
    pairs = [(number, ours) for number in found for ours in number.ours]
    decimals = claim.decimals
    texts = [n.shown if decimals is None or n.value is None else fixed(n.value, decimals) for n in found]
    printed = ", ".join(dict.fromkeys(texts))
    rounded = decimals is not None and any(n.value is not None and decimals < n.decimals for n in found)
    if rounded and claim.says not in BOUNDS:  # a bound decides, whatever the decimals
        printed += f" (to {decimals} decimals)"
    no_test = _no_test(claim, pairs)
    verdict = "not run here" if len(pairs) < len(found) else _verdict(claim, pairs, no_test)
    if verdict == "not run here":
        needs = entry.rule.reason or f"needs {entry.rule.needs}"
        return Judged(claim, printed, "", verdict, claim.run or entry.command, needs, entry.title)
    values = [ours for _, ours in pairs]
    texts = [value_text(ours) + (f" ({null_text(ours)})" if null_text(ours) else "") for ours in values]
    rows = [flat(ours.row) for ours in values]
    setups = list(dict.fromkeys(setup_words(ours.row) for ours in values))
    models, data = (list(dict.fromkeys(in_words(field, row) for row in rows)) for field in ("model", "dataset"))
    if len(models) == 1 < len(data):  # name the shared model once: `all-MiniLM-L6-v2, MRPC and RTE`
        setups = [f"{models[0]}, {', '.join(data[:-1])} and {data[-1]}"]
    why = f". No test: {no_test}" if no_test else ""
    run = claim.run or str(values[0].row.get("command") or "") or entry.command
    return Judged(claim, printed, f"{', '.join(texts)} ({'; '.join(setups)}){why}", verdict, run, table=entry.title)


def _find(claim: Claim, name: str, lines: Mapping[str, LedgerEntry]) -> LedgerEntry:
    """Return a published number with at most one value of ours, preferably from the paper's own setup."""
    name, _, subtracted = name.partition(" minus ")
    path, _, label = name.partition("@")
    candidates = [ours for ours in lines[path].ours if label in ("", ours.variant.label)]
    candidates = [ours for ours in candidates if matches(flat(ours.row), claim.where)]
    found = replace(lines[path], ours=tuple(sorted(candidates, key=lambda ours: len(ours.unlike))[:1]))
    return _difference(found, _find(claim, subtracted, lines)) if subtracted else found


def _difference(one: LedgerEntry, other: LedgerEntry) -> LedgerEntry:
    """Return the difference of two published numbers and of our values, whose errors count as independent."""
    assert one.value is not None and other.value is not None, "words have no difference"
    text = f"{one.value - other.value:.{max(one.decimals, other.decimals)}f}"
    differences = []
    for ours, subtracted in zip(one.ours, other.ours, strict=False):
        known = ours.error is not None and subtracted.error is not None
        error = math.hypot(ours.error, subtracted.error) if known else None
        differences.append(replace(ours, value=ours.value - subtracted.value, error=error, null=None, limit=None))
    return replace(one, text=text, value=float(text), ours=tuple(differences))


def _no_test(claim: Claim, pairs: Sequence[Pair]) -> str:
    """Return why our numbers cannot decide the claim, for example because of another setup; "" if they can."""
    if all(ours.comparable for _, ours in pairs):
        return ""
    sizes = {ours.row["n"] for line, ours in pairs if line.rule.depends_on_n}
    if claim.says in BOUNDS or len(sizes) < 2:
        return claim.no_test
    return f"numbers of {' and '.join(f'{n:,}' for n in sorted(sizes))} rows, which depend on how many these are"


def _verdict(claim: Claim, pairs: Sequence[Pair], no_test: str) -> str:
    """Return the verdict on a claim of a paper, such as "reproduced" or "same order", from our numbers."""
    if no_test:
        return "undecided"
    own = all(ours.comparable for _, ours in pairs)
    decided = {True: "same order", False: "not reproduced" if own else "differs elsewhere", None: "undecided"}
    if claim.says in BOUNDS:
        holds = _order_holds(claim, pairs)
        return "reproduced" if own and holds else decided[holds]
    if all(line.agrees(ours) for line, ours in pairs):
        return "reproduced" if own else "agrees elsewhere"
    beyond = [_beyond_error(line, ours) for line, ours in pairs]
    if own and all(differs is False for differs in beyond):
        return "within error"
    if claim.says:
        return decided[_order_holds(claim, pairs)]
    if not own:
        return "not run here"
    return "not reproduced" if any(beyond) else "undecided"


def _beyond_error(line: LedgerEntry, ours: Ours) -> bool | None:
    """Return whether our value neither rounds to the printed number nor is within its error of it; None if unknown."""
    if line.agrees(ours):
        return False
    value = line.value
    return None if value is None or ours.error is None else _sign((ours.value, ours.error), (value, 0.0)) != 0


def _order_holds(claim: Claim, pairs: Sequence[Pair]) -> bool | None:
    """Return whether our numbers agree with the claim; None if the errors leave it open or are unknown."""
    estimates: list[Estimate] = [(ours.value, ours.error) for _, ours in pairs]
    bound: Estimate = (claim.bound, 0.0)
    match claim.says:
        case "above":
            ordered = [(estimate, bound) for estimate in estimates]
        case "below":
            ordered = [(bound, estimate) for estimate in estimates]
        case "first lowest":
            ordered = [(other, estimates[0]) for other in estimates[1:]]
        case "first highest":
            ordered = [(estimates[0], other) for other in estimates[1:]]
        case _:  # all pairs of printed numbers that differ
            printed: Any = [line.value for line, _ in pairs]
            places = permutations(range(len(estimates)), 2)
            ordered = [
                (estimates[larger], estimates[smaller])
                for larger, smaller in places
                if printed[larger] > printed[smaller]
            ]
    signs = {_sign(larger, smaller) for larger, smaller in ordered}
    if -1 in signs:
        return False
    return True if signs == {1} else None


def _sign(one: Estimate, other: Estimate) -> int:
    """Return 1 if one is larger, −1 if it is smaller, and 0 within two standard errors or if these are unknown."""
    (value, error), (other_value, other_error) = one, other
    if error is None or other_error is None:
        return 0
    difference = value - other_value
    if abs(difference) <= ERRORS * math.hypot(error, other_error):
        return 0
    return 1 if difference > 0 else -1
