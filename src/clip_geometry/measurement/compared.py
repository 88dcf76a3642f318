"""A comparison as text and HTML, from the same lines and tables as on the command line."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clip_geometry import display
from clip_geometry.display.numbers import in_ascii, plus_minus, to_error, with_error
from clip_geometry.display.words import html_templates
from clip_geometry.geometry import measures
from clip_geometry.measurement.written import WIDTH, justified
from clip_geometry.registry import printable
from clip_geometry.results import Record

if TYPE_CHECKING:
    from clip_geometry.measurement.comparison import Change, Comparison

LEVEL = 0.05  # of p, from which a change is a tie


def as_text(found: "Comparison") -> str:
    """What is compared, then for each column but the first what the change means and a table."""
    parts = [[line for name in names(found) for line in textwrap.wrap(name, WIDTH)]]
    for said, heads, rows in tables(found):
        parts.append([line for sentence in said for line in textwrap.wrap(sentence, WIDTH)])
        numbers = [head.startswith(">") for head in heads]
        parts.append(
            justified([[head.removeprefix(">") for head in heads], *rows], numbers) if rows else ["no numbers"]
        )
    parts.append([line for sentence in legend(found) for line in textwrap.wrap(sentence, WIDTH)])
    return "\n\n".join("\n".join(map(printable, part)) for part in parts if part)


def as_html(found: "Comparison") -> str:
    """The same in the colors of the notebook."""
    template = html_templates(Path(__file__).parent, *display.__path__).get_template("compared.html")
    return template.render(names=names(found), tables=tables(found), footnotes=legend(found))


def letter(number: int) -> str:
    """A, B, …"""
    return chr(ord("A") + number) if number < 26 else f"#{number + 1}"


def letters(found: "Comparison") -> list[str]:
    """What each column is called in the tables."""
    return [letter(k) for k in range(len(found.columns))]


def names(found: "Comparison") -> list[str]:
    """A line for each column: what its letter stands for, unless it is the name itself."""
    own = [(a, column.name.removeprefix(f"{a} · ")) for a, column in zip(letters(found), found.columns, strict=True)]
    return [f"{a} = {name}" for a, name in own if name != a]


def tables(found: "Comparison") -> "Iterator[tuple[list[str], list[str], list[list[str]]]]":
    """For each column but the first: sentences on the change, and the heads and rows of a table. ">name" is the head of
    a column of numbers."""
    a, *others = letters(found)
    for b, column, changes in zip(others, found.columns[1:], found.changes, strict=True):
        said = [*_verdict(changes, a, b)]
        said += [f"{name} {each.saw}" for name, each in ((a, found.columns[0]), (b, column)) if each.saw]
        valued = [each for each in changes if _has_value(each.before) and _has_value(each.after)]
        errors = len({each.error for each in valued} - {""}) > 1
        heads = ["measure", "set", f">{a}", f">{b}", f">{b} - {a}", ">p", *["error"] * errors]
        yield said, heads, [[*cells_of(each), *[each.error] * errors] for each in valued]


def _verdict(changes: "Sequence[Change]", a: str, b: str) -> Iterator[str]:
    """What helped and what got worse, as far as the measures say so."""
    useful = [change for change in changes if (known := measures.get(change.measure)) is not None and known.better]
    for effect, begin in (("better", f"better in {b} than in {a}"), ("worse", f"worse in {b} than in {a}")):
        some = []
        for each in (change for change in useful if change.effect == effect):
            values = " → ".join(in_ascii(float(record["value"])) for record in (each.before, each.after) if record)
            some.append(f"{_name(each)} ({values})")
        if some:
            yield f"{begin}: {', '.join(some)}"
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


def cells_of(change: "Change") -> list[str]:
    """measure, set, both values, Δ ± SE or Δ [low, high], and p or the verdict."""
    values = [_value(each, change.standard_error) for each in (change.before, change.after) if each is not None]
    if change.value is None:
        return [change.measure, change.place, *values, "–", "not compared"]
    row = {"value": change.value, "standard_error": change.standard_error, "low": change.low, "high": change.high}
    delta = with_error(row).replace("−", "-")
    if change.verdict == "equal":
        return [change.measure, change.place, *values, "0", "equal"]
    p = "–" if change.p_value is None else f"{change.p_value:.4f}" if change.p_value >= 1e-4 else "<0.0001"
    return [change.measure, change.place, *values, delta, "tie" if change.verdict == "tie" else p]


def _value(record: Record, error: float | None) -> str:
    if record.get("sd") is not None:
        return plus_minus(record["value"], record["sd"]).replace("−", "-")
    return in_ascii(float(record["value"])) if error is None else to_error(record["value"], error).replace("−", "-")


def legend(found: "Comparison") -> Iterator[str]:
    """What the columns mean, and what was not compared and why."""
    names = letters(found)
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
    if any(each.error == "by position" for each in changes):
        yield (
            "the items have no ids: row i of one column is assumed to be the item of row i of the other, as in the "
            "same data embedded twice; if it is not, the errors are those of independent samples and hold as well"
        )
    if any(each.error == "independent" for each in changes):
        yield "independent: not the same items in the same blocks; errors of two samples, p of the normal distribution"
    if any(each.verdict == "tie" for each in changes):
        yield "tie: p is 0.05 or more; of 20 numbers that did not change, one is called changed by chance"
    if any(each.verdict == "no error" for each in changes):
        yield (
            "no ±: there are no standard errors (--blocks 0), none of the measure can be trusted, or there are too "
            "many or too few rows for it"
        )
    if any(column.seeds for column in found.columns):
        yield "values of several seeds are mean ± standard deviation"
    yield from _lengths(found, names)
    obstacles: dict[str, list[str]] = {}
    for change in changes:
        if change.obstacle:
            obstacles.setdefault(change.obstacle, []).append(_name(change))
    yield from (f"not compared: {', '.join(dict.fromkeys(some))}: {why}" for why, some in obstacles.items())


def _lengths(found: "Comparison", names: Sequence[str]) -> Iterator[str]:
    """Which measures see that one column has unit rows and another has not, as far as the pipelines tell."""
    last = [(column.origin.get("pipeline") or [""])[-1] for column in found.columns]
    unit = [name for name, step in zip(names, last, strict=True) if step == "normalize"]
    others = [name for name in names if name not in unit]
    changed = {each.measure for changes in found.changes for each in changes if each.verdict in ("higher", "lower")}
    known = [measures.get(each) for each in dict.fromkeys(row["measure"] for row in found.rows())]
    scaled = [each.name for each in known if each and each.name in changed and "scale" not in each.invariances]
    if unit and others and scaled:
        yield (
            f"rows of {' and '.join(unit)} have unit length, those of {' and '.join(others)} need not: end each "
            f"pipeline with normalize, or read the change of length in {', '.join(scaled)}"
        )
