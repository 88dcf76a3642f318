"""Published numbers beside ours, for docs/papers/ and for the report of a run: tables, and verdicts on claims."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from clip_geometry.config import read_yaml
from clip_geometry.display.numbers import MISSING, fixed, plus_minus, to_error
from clip_geometry.display.origin import option_words, pipeline_words, with_options
from clip_geometry.results import ORIGIN, Row
from clip_geometry_experiments.published.comparing import ERRORS, compare, fits, flat, matches
from clip_geometry_experiments.published.ledger import Claim, LedgerEntry, Ours, Rule

NAMES = read_yaml(Path(__file__).with_name("names.yaml"))  # names of fields and values for readers
# Order of the differences: first what decides how far a number can be trusted, then what was measured.
ORDER = ("updates", "seeds", "at.seeds", "n", "at.sample", "at.probes", "model", "dataset", "fitted_on", "split")
MOST_DECIMALS = 4  # of a difference, even if the published number has more
# keys of `at` that the published labels or the differences already state
LABELS = (
    "row", "split", "modality", "source", "language", "classifier.seed", "layer", "of", "with", "estimator", "zeta",
    "method", "lambda", "training.seed", "metric", "seeds", "rows", "components", "sample", "probes",
)  # fmt: skip
SAME_ROWS = (*ORIGIN, "at", "n", "d")


@dataclass
class PaperTable:
    """A table of a paper.

    Args:
        title: Heading of the table.
        rows: One row for each of our values, beside its published number.
        setups: Letter → model, data and run of our values. All tables of a page share this legend.
        notes: Long explanations. Each is in the first table that it belongs to.
        missing: What a paper's own setup needs that was not run → the numbers that have no value of ours. It is listed
            in the first table that needs it, and in every table with such numbers.
        reasons: Why nothing here computes a number → the numbers.
    """

    title: str
    rows: list[SimpleNamespace] = field(default_factory=list)
    setups: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=dict)
    reasons: dict[str, list[str]] = field(default_factory=dict)


def tables(lines: Iterable[LedgerEntry]) -> list[PaperTable]:
    """Return one table for each section of a paper, in the order of the lines, with one legend of setups."""
    by_section: dict[tuple[str, str], PaperTable] = {}
    setups: dict[str, str] = {}
    stated: set[str] = set()
    for entry in lines:
        table = by_section.setdefault((entry.paper, entry.section), PaperTable(entry.title, setups=setups))
        needs = f"the computation needs {entry.rule.needs}" if entry.rule.needs else ""
        wanted = ". Run it with ".join(filter(None, (needs, entry.command and f"`{entry.command}`")))
        without_ours = []
        if not entry.ours:
            label = entry.label if entry.keys else entry.title
            without_ours = [f"{label} | {entry.shown}"]
        if entry.rule.reason:
            table.reasons.setdefault(entry.rule.reason, []).extend(without_ours)
        elif not entry.comparable and (without_ours or wanted not in stated):
            table.missing.setdefault(wanted, []).extend(without_ours)
        if entry.ours:
            table.notes += [note for note in entry.notes if note not in stated]
            stated.update(entry.notes)
        stated.add(wanted)
        above: list[Ours] = []
        for ours, asides in _with_asides(entry):
            table.rows.append(_cells(table, entry, ours, above, asides))
            above.append(ours)
    return list(by_section.values())


def beside(rows: Sequence[Row], run: str) -> list[PaperTable]:
    """Return the tables for the report of a run, with the published numbers that its rows match.

    Args:
        rows: Result rows.
        run: The name of the run.
    """
    return tables(line for line in compare(rows, run) if line.ours)


def value_text(ours: Ours) -> str:
    """Return a value with its error, a share of 0 or 1 with its limit, or a count without either."""
    if ours.limit is not None:
        value = f"{ours.value:.0f}" if ours.value == 100 else f"{ours.value:g}"
        return f"{value} (95% limit {fixed(ours.limit, 3 if ours.value == 1 else 1)})"
    counted = ours.error is None and float(ours.value).is_integer() and abs(ours.value) >= 10
    return f"{ours.value:.0f}" if counted else plus_minus(ours.value, ours.error)


def null_text(ours: Ours) -> str:
    """Return the null value, such as `null 8.8`, with the decimals of the value; "" if there is none."""
    if ours.null is None:
        return ""
    pooled = "" if ours.row.get("null_value") is not None else "pooled "
    return f"{pooled}null {to_error(ours.null, ours.error, ours.value)}"


def setup_words(row: Row) -> str:
    """Return the model and data of a row, such as `CLIP ViT-B/16, 500 COCO pairs`."""
    fields = flat(row)
    return ", ".join(in_words(name, fields) for name in ("model", "dataset") if fields.get(name))


def in_words(key: str, fields: dict) -> str:
    """Return a field of a flat row in words: numbers with commas, known names as in names.yaml.

    Args:
        key: Name of the field.
        fields: The flat row. A missing field is "none".
    """
    value = fields.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}"
    names = [str(value)]
    if key == "fitted_on":
        return in_words("dataset", {"dataset": str(value).partition("/")[0]})
    if key == "dataset" and "data_options.path" in fields:
        names.insert(0, f"{value}:{fields['data_options.path']}")
    words = [word for name in names for wanted, word in NAMES.get(key, {}).items() if fits(name, wanted)]
    return next(iter(words), "none" if value is None else str(value))


def differences(ours: Ours, rule: Rule) -> str:
    """Return what differs from the paper's setup, in words, settings first.

    If the data set differs, its options, split and prompt are not listed as differences of their own.
    """
    fields = flat(ours.row)
    keys = list(ours.unlike)
    if "dataset" in keys:
        keys = [key for key in keys if key != "split" and not key.startswith("data_options.")]
    keys.sort(key=lambda key: ORDER.index(key) if key in ORDER else len(ORDER))
    phrases = [rule.differs.get(key, f"another {key}").format(in_words(key, fields)) for key in keys]
    return "; ".join(dict.fromkeys(phrases))


def _with_asides(line: LedgerEntry) -> list[tuple[Ours, list[Ours]]]:
    """Return the values that have a table row of their own, each with the variants that are shown in parentheses.

    A variant is shown with the last value before it in the ledger that comes from the same result rows, or with the
    first such value if none precedes it.
    """
    places = {variant.label: place for place, variant in enumerate(line.variants)}
    shown: list[tuple[Ours, list[Ours]]] = [(ours, []) for ours in line.ours if not ours.variant.aside]
    for ours in line.ours:
        if ours.variant.aside:
            hosts = [pair for pair in shown if _same_rows(pair[0], ours)]
            before = [pair for pair in hosts if places[pair[0].variant.label] < places[ours.variant.label]]
            if hosts:
                _, asides = (before or hosts[:1])[-1]
                asides.append(ours)
            else:
                shown.append((ours, []))
    return shown


def _same_rows(one: Ours, other: Ours) -> bool:
    return all(one.row.get(key) == other.row.get(key) for key in SAME_ROWS)


def _cells(
    table: PaperTable, line: LedgerEntry, ours: Ours, above: Sequence[Ours], asides: Sequence[Ours]
) -> SimpleNamespace:
    """Return one row of the table.

    `first` tells whether it is the first row of its published number. `cause` holds what differs from the paper's
    setup, settings first, and why the number differs, in a few words.
    """
    value = value_text(ours)
    printed = min(line.decimals, MOST_DECIMALS)
    decimals = max(len(value.partition(" ")[0].partition(".")[2]), printed)
    difference = MISSING
    # A difference is meaningless if our model is untrained, or if both accuracies are over different classes.
    untrained = "/fresh" in str(ours.row.get("model"))
    other_classes = line.rule.unit == "percent" and "dataset" in ours.unlike
    exact = line.value
    if exact is not None and (ours.comparable or not (untrained or other_classes)):
        text = fixed(ours.value - exact, decimals)
        difference = text if text.startswith("−") or not float(text) else f"+{text}"
    setup = _setup(ours)
    letters = {known: letter for letter, known in table.setups.items()}
    if setup not in letters:  # A, B, …, Z, A2, B2, …
        round_, place = divmod(len(letters), 26)
        letters[setup] = chr(ord("A") + place) + (str(round_ + 1) if round_ else "")
        table.setups[letters[setup]] = setup
    # state the causes only once per number and setup
    repeated = any(_setup(other) == setup and other.unlike == ours.unlike for other in above)
    unlike = "" if repeated else differences(ours, line.rule)
    causes = () if repeated else line.causes
    return SimpleNamespace(
        label=line.label,
        published=line.shown,
        ours=value,
        difference=difference + (" ✓" if line.agrees(ours) else ""),
        cause="; ".join(filter(None, (unlike, *causes, ours.variant.cause))),
        how=_how(line, ours, above[-1] if above else None, asides),
        size=" × ".join(str(ours.row[key]) for key in ("n", "d") if ours.row.get(key) is not None),
        setup=letters[setup],
        first=not above,
    )


def _how(line: LedgerEntry, ours: Ours, above: Ours | None, asides: Sequence[Ours]) -> str:
    """Return the variant, the pipeline, what it was fitted on, and what else distinguishes the row.

    If the row above has the same result rows, this is only the variant. Variants shown aside follow in parentheses.
    """
    row = ours.row
    others = ", ".join(f"{aside.variant.label} {value_text(aside)}" for aside in asides)
    others = f" ({others})" if others else ""
    if above is not None and ours.variant.label and _same_rows(ours, above):
        return ours.variant.label + others
    rest = {key: value for key, value in (row.get("at") or {}).items() if key not in LABELS}
    # the brackets of the step already name the modalities that it was fitted on
    fitted = f"fitted on {str(row['fitted_on']).rpartition(':')[0] or row['fitted_on']}" if row.get("fitted_on") else ""
    seeds = f"mean ± standard deviation of {ours.seeds} seeds" if ours.seeds > 1 else ""
    # name raw rows only if the number may also come from other rows
    pipeline = row.get("pipeline") or ()
    steps = pipeline_words(pipeline) if pipeline or "pipeline" in line.rule.where else ""
    parts = (ours.variant.label, steps, fitted, option_words(rest), seeds, null_text(ours))
    return "; ".join(filter(None, parts)) + others


def _setup(ours: Ours) -> str:
    """Describe how our value was computed: model, data, split, command, date and version."""
    row = ours.row
    fields = flat(row)
    options = dict(row.get("model_options") or {})
    if ours.seeds > 1:
        options.pop("seed", None)
    model = with_options(in_words("model", fields), options) if row.get("model") else ""  # drawn point clouds have none
    data = with_options(in_words("dataset", fields) if row.get("dataset") else "data that are not named",
                        row.get("data_options"))  # fmt: skip
    about = in_words("about", {"about": row.get("dataset")}) if row.get("dataset") in NAMES["about"] else ""
    where = ", ".join(filter(None, (" on ".join(filter(None, (model, data))), row.get("split"), about)))
    command = f"`{row['command']}`" if row.get("command") else ""
    when = ", ".join(filter(None, (row.get("date"), row.get("version") and f"clip-geometry {row['version']}")))
    return "; ".join(filter(None, (where, command, when)))


# --- verdicts on claims

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
        error = None
        if ours.error is not None and subtracted.error is not None:
            error = math.hypot(ours.error, subtracted.error)
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
