"""The table of a comparison: what changed, whether it helped, and what the columns mean."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from clip_geometry.display.explained import explain, title_of
from clip_geometry.display.numbers import MISSING, in_ascii, plus_minus, to_error, with_error
from clip_geometry.display.table import Cell, Table, TableColumn
from clip_geometry.geometry import measures
from clip_geometry.results import Record

if TYPE_CHECKING:
    from clip_geometry.measuring.comparison import Change, Comparison

LEVEL = 0.05  # of p, from which a change is a tie


def letter(number: int) -> str:
    """A, B, …"""
    return chr(ord("A") + number) if number < 26 else f"#{number + 1}"


def comparison_table(found: "Comparison") -> Table:
    """What is compared, then a table of the changes of each column but the first."""
    letters = [letter(k) for k in range(len(found.columns))]
    own = ((a, column.name.removeprefix(f"{a} · ")) for a, column in zip(letters, found.columns, strict=True))
    first = letters[0]
    tables = []
    for b, column, changes in zip(letters[1:], found.columns[1:], found.changes, strict=True):
        verdict = list(_verdict(changes, first, b))
        verdict += [f"{name} {each.saw}" for name, each in ((first, found.columns[0]), (b, column)) if each.saw]
        valued = [each for each in changes if _has_value(each.before) and _has_value(each.after)]
        several = len({each.error for each in valued} - {""}) > 1
        columns = [
            *map(TableColumn, ("measure", "set")),
            *(TableColumn(name, "number") for name in (first, b, f"{b} − {first}", "p")),
            *([TableColumn("error", spare=1)] if several else []),
        ]
        rows = [[*_cells_of(each), *([each.error] if several else [])] for each in valued]
        tables.append(Table(columns, {"": rows}, verdict=verdict, legend=[] if valued else ["no numbers"]))
    return Table(
        heading=[f"{a} = {name}" for a, name in own if name != a],
        more=tables,
        legend=list(_legend(found)),
        notes=list(_notes(found, letters)),
    )


def _verdict(changes: "Sequence[Change]", a: str, b: str) -> Iterator[str]:
    """What helped and what got worse, as far as the measures say so."""
    useful = [change for change in changes if (known := measures.get(change.measure)) is not None and known.better]
    for effect in ("better", "worse"):
        some = []
        for each in (change for change in useful if change.effect == effect):
            values = " → ".join(in_ascii(float(record["value"])) for record in (each.before, each.after) if record)
            some.append(f"{_name(each)} ({values})")
        if some:
            yield f"{effect} in {b} than in {a}: {', '.join(some)}"
    if unsure := [_name(each) for each in useful if each.verdict == "no error"]:
        yield f"changed, without a standard error that tells by how much: {', '.join(unsure)}"
    ties = [_name(each) for each in useful if each.verdict in ("tie", "equal")]
    if ties:
        yield f"no measurable difference between {a} and {b}: {', '.join(ties)}"
    if not useful:
        yield f"whether {b} is better than {a}, no measure here says: all describe the geometry"


def _name(change: "Change") -> str:
    return change.measure if change.place in ("both", "") else f"{change.measure} {change.place}"


def _has_value(record: Record | None) -> bool:
    return record is not None and record.value is not None


def _cells_of(change: "Change") -> list[str]:
    """measure, set, both values, Δ ± SE or Δ [low, high], and p or the verdict."""
    explanation = explain(change.measure)
    unit = f" ({explanation.unit})" if explanation is not None and explanation.unit else ""
    measure = Cell(change.measure, full=title_of(change.measure, explanation) + unit)
    values = [_value(each, change.standard_error) for each in (change.before, change.after)]
    if change.value is None:
        return [measure, change.place, *values, MISSING, "not compared"]
    if change.verdict == "equal":
        return [measure, change.place, *values, "0", "equal"]
    row = {"value": change.value, "standard_error": change.standard_error, "low": change.low, "high": change.high}
    p = MISSING if change.p_value is None else f"{change.p_value:.4f}" if change.p_value >= 1e-4 else "<0.0001"
    return [measure, change.place, *values, with_error(row), "tie" if change.verdict == "tie" else p]


def _value(record: Record | None, error: float | None) -> str:
    """A value with the decimals of the change; in LaTeX with its own standard error or interval."""
    if record is None:
        return MISSING
    if record.get("sd") is not None:
        return plus_minus(record["value"], record["sd"])
    text = in_ascii(float(record["value"])) if error is None else to_error(record["value"], error)
    return Cell(text, full=with_error(record))


def _legend(found: "Comparison") -> Iterator[str]:
    """What the columns and signs mean."""
    changes = [change for each in found.changes for change in each]
    same = [each for each in changes if each.error in ("paired", "by position")]
    blocks = {len(each.before.without) for each in same if each.low is None and each.before and each.before.without}
    if blocks:
        parts = " or ".join(map(str, sorted(blocks)))
        yield (
            f"±: paired standard error of the difference, jackknife over the same {parts} blocks of items or seeds; "
            f"p by {found.flips} sign flips of the blocks, seed {found.seed}"
        )
        if 2 / 2 ** min(blocks) > LEVEL:
            yield f"p is at least {2 / 2 ** min(blocks):.3g} with {min(blocks)} blocks, so that every change is a tie"
    if any(each.low is not None for each in same):
        yield (
            "[ ]: 95% interval of the difference of two shares (Newcombe); p by McNemar's test of the same queries, or "
            f"by {found.flips} sign flips of the items where a query is partly right"
        )
    if any(each.error == "independent" for each in changes):
        yield "independent: not the same items in the same blocks; errors of two samples, p of the normal distribution"
    if any(each.verdict == "tie" for each in changes):
        yield "tie: p is 0.05 or more; of 20 numbers that did not change, one is called changed by chance"
    if any(column.seeds for column in found.columns):
        yield "values of several seeds are mean ± standard deviation"


def _notes(found: "Comparison", letters: Sequence[str]) -> Iterator[str]:
    """What the errors take for granted, and what was not compared and why."""
    changes = [change for each in found.changes for change in each]
    if any(each.error == "by position" for each in changes):
        yield (
            "the items have no ids: row i of one column is assumed to be the item of row i of the other, as in the "
            "same data embedded twice; if it is not, the errors are those of independent samples and hold as well"
        )
    if any(each.verdict == "no error" for each in changes):
        yield (
            "no ±: there are no standard errors (--blocks 0), none of the measure can be trusted, or there are too "
            "many or too few rows for it"
        )
    # which measures see that one column has unit rows and another has not, as far as the pipelines tell
    last = [(column.origin.get("pipeline") or [""])[-1] for column in found.columns]
    unit = [name for name, step in zip(letters, last, strict=True) if step == "normalize"]
    others = [name for name in letters if name not in unit]
    changed = {each.measure for each in changes if each.verdict in ("higher", "lower")}
    known = [measures.get(each) for each in dict.fromkeys(each.measure for each in changes)]
    scaled = [each.name for each in known if each and each.name in changed and "scale" not in each.invariances]
    if unit and others and scaled:
        yield (
            f"rows of {' and '.join(unit)} have unit length, those of {' and '.join(others)} need not: end each "
            f"pipeline with normalize, or read the change of length in {', '.join(scaled)}"
        )
    obstacles: dict[str, dict[str, None]] = {}
    for change in changes:
        if change.obstacle:
            obstacles.setdefault(change.obstacle, {})[_name(change)] = None
    yield from (f"not compared: {', '.join(some)}: {why}" for why, some in obstacles.items())
