"""`clip-geometry compare`: embeddings, runs or measurements side by side, and whether the change helped."""

import json
from collections.abc import Iterator
from pathlib import Path

from clip_geometry.cli.tables import console, print_table, say
from clip_geometry.display.latex import SOFTWARE, bibtex, measure_title, table
from clip_geometry.display.numbers import MISSING, plus_minus, with_error
from clip_geometry.files import write_atomically
from clip_geometry.measurement.compared import cells_of, legend, letter, names, tables
from clip_geometry.measurement.comparison import Comparison
from clip_geometry.registry import InputError, shown
from clip_geometry.results import Record

BIBLIOGRAPHY = f"@misc{{{SOFTWARE},".encode()  # the beginning of the files that are written here


def bibliography_of(latex: Path) -> Path:
    """The .bib file beside a table; InputError where it has entries of somebody else."""
    found = latex.resolve().with_suffix(".bib")
    if found.exists() and not found.read_bytes().startswith(BIBLIOGRAPHY):
        raise InputError(f"{shown(found)}, where the BibTeX entries of the table go, has others; rename --latex")
    return found


def write_comparison(
    found: Comparison, csv: Path | None, json_file: Path | None, latex: Path | None, bibliography: Path | None
) -> None:
    """Writes the files that were asked for."""
    if csv is not None:
        write_atomically(csv.resolve(), found.frame.to_csv(index=False).encode())
    if json_file is not None:
        content = {"flips": found.flips, "seed": found.seed, "changes": list(found.rows())}
        write_atomically(json_file.resolve(), (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
    if latex is not None and bibliography is not None:
        measured = dict.fromkeys(change.measure for changes in found.changes for change in changes)
        write_atomically(latex.resolve(), "\n".join(_latex(found)).encode())
        write_atomically(bibliography, bibtex(measured).encode())


def print_comparison(found: Comparison) -> None:
    """Prints what is compared, what the change means, and a table for each column but the first."""
    out = console()
    for line in names(found):
        say(out, line)
    for said, heads, rows in tables(found):
        out.print()
        for line in said:
            say(out, line)
        print_table(out, heads, rows)
    for line in legend(found):
        say(out, line, style="dim")


def _latex(found: Comparison) -> Iterator[str]:
    """A table for each column but the first: both values with their errors, the change and p."""
    said = [line for line in legend(found) if line.startswith(("±", "[ ]", "p ", "tie"))]
    for k, (column, changes) in enumerate(zip(found.columns[1:], found.changes, strict=True), 1):
        valued = [each for each in changes if each.value is not None]
        rows = [
            [measure_title(each.measure), each.place, *map(_own_error, (each.before, each.after)), *cells_of(each)[4:]]
            for each in valued
        ]
        yield table(
            ["measure", "set", "A", "B", "B − A", "p"],
            [rows],
            numbers=[False, False, True, True, True, True],
            title=f"{found.columns[0].name} (A) and {column.name} (B), each with its own standard error or the 95% "
            f"interval of a share. B − A: {'. '.join(said)}.",
            label=f"tab:compare-a-{letter(k).lower()}",
            names=dict.fromkeys(each.measure for each in valued),
        )


def _own_error(record: Record | None) -> str:
    if record is None:
        return MISSING
    return plus_minus(record.value, record["sd"]) if record.get("sd") is not None else with_error(record)
