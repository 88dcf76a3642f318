"""Whether a claim of a paper holds in our runs: decided by a rule, from the numbers that it names."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from clip_geometry.ledger.comparing import Line, Ours, flat, matches
from clip_geometry.ledger.entries import Claim
from clip_geometry.ledger.tables import in_words, setup_words, value_text
from clip_geometry.registry import InputError
from clip_geometry.report.numbers import fixed

ERRORS = 2  # standard errors within which a difference says nothing

VERDICTS = {
    "reproduced": "in the paper's own setup, every number of ours rounds to the printed one, or keeps the stated bound",
    "within error": "in the paper's own setup, every number is within two standard errors of the printed one",
    "agrees elsewhere": "the numbers round to the printed ones, but with another model or other data",
    "same order": "the sign, the order or the bound is the published one, beyond two standard errors; the sizes differ",
    "undecided": "the sign or the order is within two standard errors of its opposite",
    "not reproduced": "the sign, the order or the bound is another one, beyond two standard errors",
    "holds": "no number decides it; the named test does, in favor",
    "does not hold": "no number decides it; the named test does, against",
    "not run here": "nothing of ours stands beside it, or a single number with another model or other data, which is "
    "no test; what it needs is named",
}


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict.

    Args:
        claim: The claim.
        published: Its numbers as printed.
        ours: Ours, and of which setup.
        verdict: A key of VERDICTS.
        run: The command or test.
        needs: What it needs, where it was not run.
        table: The title of the table of its first number.
    """

    claim: Claim
    published: str
    ours: str
    verdict: str
    run: str
    needs: str = ""
    table: str = ""


def judge(claim: Claim, lines: Mapping[str, Line]) -> Judged:
    """Decide a claim.

    Args:
        claim: The claim.
        lines: Path of a published number → the number and our values beside it.

    Raises:
        InputError: If the claim names a number or a variant that does not exist.
    """
    if claim.holds is not None:
        return Judged(claim, "", "", "holds" if claim.holds else "does not hold", claim.run)
    named = [_find(claim, name, lines) for name in claim.numbers]
    first, ours = named[0][0].entry, [each for _, each in named if each is not None]
    decimals, published = claim.decimals, [line.entry.published for line, _ in named]
    shown = (p.shown if decimals is None or p.value is None else fixed(p.value, decimals) for p in published)
    printed = ", ".join(dict.fromkeys(shown))
    verdict = _verdict(claim, named)
    if verdict == "not run here":
        needs = first.rule.reason or f"needs {first.rule.needs}"
        return Judged(claim, printed, "", verdict, claim.run or first.command, needs, first.title)
    recorded = str(ours[0].row.get("command") or "").partition(" --runs ")[0]  # where the run lies says nothing
    run = claim.run or recorded or first.command
    values, rows = ", ".join(map(value_text, ours)), [flat(each.row) for each in ours]
    setups = list(dict.fromkeys(setup_words(each.row) for each in ours))
    models, data = (list(dict.fromkeys(in_words(field, row) for row in rows)) for field in ("model", "dataset"))
    if len(models) == 1 < len(data):  # what they share first: `all-MiniLM-L6-v2, MRPC and RTE`
        setups = [f"{models[0]}, {', '.join(data[:-1])} and {data[-1]}"]
    return Judged(claim, printed, f"{values} ({'; '.join(setups)})", verdict, run, table=first.title)


def _find(claim: Claim, name: str, lines: Mapping[str, Line]) -> tuple[Line, Ours | None]:
    path, _, label = name.partition("@")
    if path not in lines:
        raise InputError(f"claim {claim.text!r} names {path!r}, which was not published")
    line = lines[path]
    if label and label not in [variant.label for variant in line.entry.variants]:
        raise InputError(f"claim {claim.text!r} names the variant {label!r}, which {path} does not have")
    found = [
        ours
        for ours in line.ours
        if (not label or ours.variant.label == label) and matches(flat(ours.row), claim.where)
    ]
    # the paper's own setup, if it was run
    return line, next(iter(sorted(found, key=lambda ours: len(ours.unlike))), None)


def _verdict(claim: Claim, named: Sequence[tuple[Line, Ours | None]]) -> str:
    pairs = [(line, ours) for line, ours in named if ours is not None]
    if len(pairs) < len(named):
        return "not run here"
    own = all(ours.comparable for _, ours in pairs)
    says = _says(claim, pairs)
    if claim.says in ("above", "below"):
        return {True: "reproduced" if own else "same order", False: "not reproduced", None: "undecided"}[says]
    if all(line.agrees(ours, claim.decimals) for line, ours in pairs):
        return "reproduced" if own else "agrees elsewhere"
    off = [(line.difference(ours), ours.error) for line, ours in pairs]
    if own and all(by is not None and error is not None and abs(by) <= ERRORS * error for by, error in off):
        return "within error"
    if not claim.says:
        return "not reproduced" if own else "not run here"
    return {True: "same order", False: "not reproduced", None: "undecided"}[says]


def _says(claim: Claim, pairs: Sequence[tuple[Line, Ours]]) -> bool | None:
    """Whether ours say what the claim says; None where the errors leave it open."""
    ours = [each for _, each in pairs]
    if claim.says in ("above", "below"):
        sign = 1 if claim.says == "above" else -1
        steps = [(sign * (each.value - claim.bound), each.error or 0.0) for each in ours]
    else:
        published = [line.entry.published.value or 0.0 for line, _ in pairs]
        if claim.says == "order":
            order = [(a, b) for a, b in combinations(range(len(ours)), 2) if published[a] != published[b]]
            order = [(a, b) if published[a] < published[b] else (b, a) for a, b in order]
        elif claim.says == "rises":
            order = list(pairwise(range(len(ours))))
        else:  # the first against each of the others
            order = [(0, k) if claim.says == "first lowest" else (k, 0) for k in range(1, len(ours))]
        steps = [
            (ours[b].value - ours[a].value, math.hypot(ours[a].error or 0.0, ours[b].error or 0.0)) for a, b in order
        ]
    if any(step < -ERRORS * error for step, error in steps):
        return False
    return True if all(step > ERRORS * error for step, error in steps) else None
