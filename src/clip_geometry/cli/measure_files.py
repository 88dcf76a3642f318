"""`clip-geometry measure`: files in, a table out."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from clip_geometry.cli.tables import bound, console, number, plain_table, value_and_error
from clip_geometry.config import digest
from clip_geometry.embeddings import Embeddings
from clip_geometry.experiments.measuring import MeasuredSets, measure_sets, split_by
from clip_geometry.experiments.provenance import context
from clip_geometry.files import write_atomically
from clip_geometry.formats import read_any, read_embeddings, read_labels
from clip_geometry.geometry import by_group, measures
from clip_geometry.geometry.rows import as_codes
from clip_geometry.progress import Advance, progress, quiet
from clip_geometry.registry import InputError
from clip_geometry.results import Row, lines_of
from clip_geometry.transforms import Step, parse_pipeline

WIDE = 100  # columns of a terminal that has room for range and direction


def measure_files(
    image: Path,
    text: Path | None,
    *,
    labels: Path | None,
    steps: str,
    names: str | None,
    by: str | None,
    json_file: Path | None,
    seed: int,
    blocks: int,
) -> None:
    """Measures what lies in the files, prints the table and writes the rows where asked to."""
    if json_file is not None:
        check_writable(json_file)
    pipeline = parse_pipeline(steps)
    chosen = None if names is None else [measures[name.strip()].name for name in _split_names(names)]
    sets = read_sets(image, text)
    if labels is not None:
        sets = with_labels(sets, read_labels(labels))
    parts = [({}, sets)] if by is None else [({by: value}, part) for value, part in split_by(sets, by)]
    count = len(parts) * len(by_group() if chosen is None else chosen)
    with progress("measures", count) if sys.stderr.isatty() else quiet("measures", count) as advance:
        rows = [row for at, part in parts for row in _rows(part, at, pipeline, chosen, seed, blocks, advance)]
    print_rows(rows)
    if json_file is not None:
        write_rows(json_file, rows)


def _rows(
    sets: Mapping[str, Embeddings],
    at: Mapping[str, Any],
    pipeline: Sequence[Step],
    names: list[str] | None,
    seed: int,
    blocks: int,
    advance: Advance,
) -> list[Row]:
    """The rows of one group; `at` says which, empty for all."""
    try:
        measured = MeasuredSets(sets, pipeline, seed=seed, blocks=blocks)
        shared = context(measured)
        return [{**shared, **row, "at": {**at, **row["at"]}} for row in measure_sets(measured, names, advance)]
    except InputError as error:
        if not at:
            raise
        group = ", ".join(f"{key} {value}" for key, value in at.items())
        raise InputError(f"in the group of {group}: {error}") from None


def read_sets(image: Path, text: Path | None) -> dict[str, Embeddings]:
    """The sets in one or two files or folders. A folder may hold both; of two paths the second is the text."""
    if text is None:
        return dict(read_any(image))
    return {"image": _side(image, "image"), "text": _side(text, "text")}


def _side(path: Path, modality: str) -> Embeddings:
    """The set of the modality where a folder has both, otherwise the one that is there, taken as the modality."""
    if not path.is_dir():
        return read_embeddings(path, modality=modality)
    found = read_any(path)
    if modality in found:
        return found[modality]
    return replace(next(iter(found.values())), modality=modality)


def with_labels(sets: Mapping[str, Embeddings], labels: np.ndarray) -> dict[str, Embeddings]:
    """The labels on every set that has as many rows; at least one has to."""
    fitting = {modality for modality, each in sets.items() if len(each) == len(labels)}
    if not fitting:
        counts = " and ".join(f"{len(each)} {modality} rows" for modality, each in sets.items())
        raise InputError(f"{len(labels)} labels were given for {counts}; expected one label per row")
    as_codes(labels, len(labels))  # one label only is an error here, where labels were asked for
    return {modality: replace(each, labels=labels) if modality in fitting else each for modality, each in sets.items()}


def _split_names(names: str) -> list[str]:
    found = [name for name in names.split(",") if name.strip()]
    if not found:
        raise InputError("--measures is empty; give names, comma-separated, or leave it out for all")
    return found


def print_rows(rows: list[Row]) -> None:
    """The table: a row per measure and set, in a block per value of --by; then what was left out and why."""
    out = console()
    first = rows[0]
    out.print(first["dataset"])
    if first.get("maps"):
        out.print(f"moved before by: {first['maps']}")
    out.print(f"pipeline: {' → '.join(first['pipeline']) or 'raw (rows as they are)'}")
    columns = [key for key in first["at"] if key != "modality"]
    explained = ("range", "direction") if out.width >= WIDE else ()
    table = plain_table("measure", *columns, "set", ">n", ">value", ">null", *explained)
    for row in rows:
        if row["value"] is None:
            continue
        measure = measures[row["measure"]]
        cells = [row["measure"], *(str(row["at"][key]) for key in columns), row["at"]["modality"], str(row["n"])]
        limits = f"{bound(measure.range[0])} … {bound(measure.range[1])}"
        explained = (limits, measure.direction) if out.width >= WIDE else ()
        table.add_row(*cells, value_and_error(row), number(row["null_value"]), *explained)
    out.print(table)
    out.print("null: the same on an isotropic Gaussian of this n and d, through this pipeline", style="dim")
    if any(row.get("standard_error") is not None for row in rows):
        blocks = first["jackknife_blocks"]
        out.print(f"±: standard error, jackknife over {blocks} blocks of items; none of extremes", style="dim")
    _print_notes(out, rows)


def _print_notes(out: Console, rows: list[Row]) -> None:
    notes: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.get("note"):
            missing = row["value"] is None
            key = (
                ("not computed: ", f": {row['note']}")
                if missing
                else ("", f" of {row['at']['modality']}: {row['note']}")
            )
            names = notes.setdefault(key, [])
            names += [row["measure"]] if row["measure"] not in names else []
    for (before, after), names in notes.items():
        out.print(f"{before}{', '.join(names)}{after}", style="dim")


def write_rows(path: Path, rows: list[Row]) -> None:
    """The rows as a results file of their own, replacing an older one; a link is followed, a device written to."""
    path, text = path.resolve(), lines_of(digest(rows), rows)
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
    else:
        write_atomically(path, text.encode())


def check_writable(path: Path) -> None:
    """Complains before anything is computed."""
    if path.is_dir():
        raise InputError(f"{path} is a directory; --json needs the name of a file")
    if not path.parent.exists():
        raise InputError(f"the folder {path.parent} does not exist; --json writes into existing folders")
