"""`clip-geometry compare`: embeddings, runs or measurements side by side, and whether the change helped."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from clip_geometry.cli.tables import console, number, print_table, say
from clip_geometry.embeddings import Embeddings
from clip_geometry.files import write_atomically
from clip_geometry.formats import by_suffix, read_labels, read_sets, with_labels
from clip_geometry.geometry import measures as all_measures
from clip_geometry.measuring.comparison import LEVEL, Change, Comparison, compare, letter
from clip_geometry.measuring.records import ALL, DEFAULT_STEPS, names_to_measure, records_by
from clip_geometry.paths import existing
from clip_geometry.registry import InputError, shown
from clip_geometry.report.latex import SOFTWARE, bibtex, measure_title, table
from clip_geometry.report.numbers import MISSING, plus_minus, to_error, with_error
from clip_geometry.report.origin import heading, words
from clip_geometry.results import ORIGIN, Record, read_rows
from clip_geometry.transforms import parse_pipeline

RAW = "raw"
BIBLIOGRAPHY = f"@misc{{{SOFTWARE},".encode()  # the beginning of the files that are written here


def compare_paths(
    paths: Sequence[Path],
    pipelines: Sequence[str],
    *,
    measures: str | None,
    everything: bool,
    labels: Path | None,
    seed: int,
    blocks: int | None,
    csv: Path | None,
    latex: Path | None,
    json_file: Path | None,
) -> None:
    """Compares what lies at the paths with the first, prints a table for each and writes the files.

    Pipelines: none for the default one, one for all paths, one for each, or several for a single path, of which one is
    compared with the default pipeline.
    """
    bibliography = None if latex is None else latex.resolve().with_suffix(".bib")
    if bibliography is not None and bibliography.exists() and not bibliography.read_bytes().startswith(BIBLIOGRAPHY):
        raise InputError(f"{shown(bibliography)}, where the BibTeX entries of the table go, has others; rename --latex")
    given = [(existing(path, "embeddings, a run folder or a file of measure --json"), path) for path in paths]
    if len(paths) == 1 and not pipelines and not _holds_records(given[0][0]):
        raise InputError("one path was given; give others, or --pipeline to compare pipelines of this one")
    operands, pipelines = [], [DEFAULT_STEPS, *pipelines] if len(paths) == len(pipelines) == 1 else list(pipelines)
    if len(pipelines) > 1 and len(paths) not in (1, len(pipelines)):
        raise InputError(f"{len(pipelines)} pipelines and {len(paths)} paths were given; give one of each per column")
    columns = [(*each, steps) for each in given for steps in pipelines] if len(given) == 1 and pipelines else []
    if not columns:
        steps = pipelines if len(pipelines) > 1 else [pipelines[0] if pipelines else None] * len(given)
        columns = [(*each, step) for each, step in zip(given, steps, strict=True)]
    read: dict[Path, dict[str, Embeddings]] = {}
    for path, shown_path, steps in columns:
        if _holds_records(path):
            if everything or any(each is not None for each in (steps, measures, labels, blocks)):
                raise InputError(
                    f"{shown(path)} holds records, which are compared as they are; --pipeline, --raw, --measures, "
                    "--all, --labels and --blocks are for embeddings"
                )
            operands.append((str(shown_path), read_rows(path)))
            continue
        if path not in read:
            read[path] = dict(read_sets(path))
            if labels is not None:
                read[path] = dict(with_labels(read[path], read_labels(labels)))
        operands.append((str(shown_path), _measured(read[path], steps, ALL if everything else measures, seed, blocks)))
    found = _named(compare(*(records for _, records in operands), names=[name for name, _ in operands], seed=seed))
    print_comparison(found)
    if csv is not None:
        write_atomically(csv.resolve(), found.frame.to_csv(index=False).encode())
    if json_file is not None:
        content = {"flips": found.flips, "seed": found.seed, "changes": list(found.rows())}
        write_atomically(json_file.resolve(), (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
    if latex is not None and bibliography is not None:
        names = dict.fromkeys(change.measure for changes in found.changes for change in changes)
        write_atomically(latex.resolve(), "\n".join(_latex(found)).encode())
        write_atomically(bibliography, bibtex(names).encode())


def _holds_records(path: Path) -> bool:
    if path.is_dir():
        return (path / "results.jsonl").exists()
    return path.suffix.lower() not in by_suffix()


def _measured(
    sets: dict[str, Embeddings], steps: str | None, measures: str | None, seed: int, blocks: int | None
) -> list[Record]:
    pipeline = parse_pipeline(DEFAULT_STEPS if steps is None else "" if steps == RAW else steps)
    names, optional = names_to_measure(measures, "--measures")
    return records_by(None, sets, pipeline, names, seed=seed, blocks=blocks, optional=optional)


def _named(found: Comparison) -> Comparison:
    """Adds to the name of each column in what it differs from the others."""
    firsts = [next(iter(column.records.values())) for column in found.columns]
    fields = [name for name in ORIGIN if name != "fitted_on" and len({words(each, name) for each in firsts}) > 1]
    columns = []
    for column, first in zip(found.columns, firsts, strict=True):
        seeds = f"mean over {len(column.seeds)} seeds" if column.seeds else ""
        varying = heading(first, [field for field in fields if not (field == "seed" and column.seeds)])
        columns.append(replace(column, name=" · ".join(filter(None, (column.name, varying, seeds)))))
    return replace(found, columns=tuple(columns))


def print_comparison(found: Comparison) -> None:
    """Prints what is compared, what the change means, and a table for each column but the first."""
    out = console()
    names = [letter(k) for k in range(len(found.columns))]
    for name, column in zip(names, found.columns, strict=True):
        say(out, f"{name} = {column.name}")
    for k, changes in enumerate(found.changes, 1):
        out.print()
        for line in _verdict(changes, names[0], names[k]):
            say(out, line)
        for name, column in ((names[0], found.columns[0]), (names[k], found.columns[k])):
            if column.saw:
                say(out, f"{name} {column.saw}")
        a, b = names[0], names[k]
        valued = [each for each in changes if _has_value(each.before) and _has_value(each.after)]
        errors = len({each.error for each in valued} - {""}) > 1
        heads = ["measure", "set", f">{a}", f">{b}", f">{b} - {a}", ">p", *["error"] * errors]
        print_table(out, heads, [[*_cells(each), *[each.error] * errors] for each in valued])
    for line in _legend(found, names):
        say(out, line, style="dim")


def _verdict(changes: Sequence[Change], a: str, b: str) -> Iterator[str]:
    """What helped and what got worse, as far as the measures say so."""
    useful = [change for change in changes if (known := all_measures.get(change.measure)) is not None and known.better]
    for effect, begin in (("better", f"better in {b} than in {a}"), ("worse", f"worse in {b} than in {a}")):
        some = []
        for each in (change for change in useful if change.effect == effect):
            values = " → ".join(number(float(record["value"])) for record in (each.before, each.after) if record)
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


def _name(change: Change) -> str:
    return change.measure if change.place in ("both", "") else f"{change.measure} {change.place}"


def _has_value(record: Record | None) -> bool:
    return record is not None and record.value is not None


def _cells(change: Change) -> list[str]:
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
    return number(float(record["value"])) if error is None else to_error(record["value"], error).replace("−", "-")


def _legend(found: Comparison, names: Sequence[str]) -> Iterator[str]:
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


def _lengths(found: Comparison, names: Sequence[str]) -> Iterator[str]:
    """Which measures see that one column has unit rows and another has not, as far as the pipelines tell."""
    last = [(column.origin.get("pipeline") or [""])[-1] for column in found.columns]
    unit = [name for name, step in zip(names, last, strict=True) if step == "normalize"]
    others = [name for name in names if name not in unit]
    changed = {each.measure for changes in found.changes for each in changes if each.verdict in ("higher", "lower")}
    known = [all_measures.get(each) for each in dict.fromkeys(row["measure"] for row in found.rows())]
    scaled = [each.name for each in known if each and each.name in changed and "scale" not in each.invariances]
    if unit and others and scaled:
        yield (
            f"rows of {' and '.join(unit)} have unit length, those of {' and '.join(others)} need not: end each "
            f"pipeline with normalize, or read the change of length in {', '.join(scaled)}"
        )


def _latex(found: Comparison) -> Iterator[str]:
    """A table for each column but the first: both values with their errors, the change and p."""
    legend = [line for line in _legend(found, ["A", "B"]) if line.startswith(("±", "[ ]", "p ", "tie"))]
    for k, (column, changes) in enumerate(zip(found.columns[1:], found.changes, strict=True), 1):
        valued = [each for each in changes if each.value is not None]
        rows = [
            [measure_title(each.measure), each.place, *map(_own_error, (each.before, each.after)), *_cells(each)[4:]]
            for each in valued
        ]
        yield table(
            ["measure", "set", "A", "B", "B − A", "p"],
            [rows],
            numbers=[False, False, True, True, True, True],
            title=f"{found.columns[0].name} (A) and {column.name} (B), each with its own standard error or the 95% "
            f"interval of a share. B − A: {'. '.join(legend)}.",
            label=f"tab:compare-a-{letter(k).lower()}",
            names=dict.fromkeys(each.measure for each in valued),
        )


def _own_error(record: Record | None) -> str:
    if record is None:
        return MISSING
    return plus_minus(record.value, record["sd"]) if record.get("sd") is not None else with_error(record)
