"""`clip-geometry measure`: files in, a table out."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from clip_geometry.cli.new_files import require_new_file
from clip_geometry.cli.tables import bound, console, number, print_table, say, value_and_error
from clip_geometry.config import digest
from clip_geometry.embeddings import Embeddings
from clip_geometry.engines import Engine, open_engine
from clip_geometry.experiments.measuring import QUADRATIC_ROWS, MeasuredSets, measure_sets, named
from clip_geometry.experiments.splitting import split_by
from clip_geometry.files import write_atomically
from clip_geometry.formats import read_any, read_embeddings, read_labels, with_labels
from clip_geometry.geometry import by_group
from clip_geometry.geometry.uncertainty import BLOCKS
from clip_geometry.progress import Advance, progress, quiet
from clip_geometry.registry import InputError
from clip_geometry.results import Row, lines_of
from clip_geometry.transforms import Step, parse_pipeline

DEFAULT_STEPS = "normalize"


def measure_files(
    image: Path,
    text: Path | None,
    *,
    labels: Path | None,
    steps: str | None,
    names: str | None,
    by: str | None,
    json_file: Path | None,
    seed: int,
    blocks: int | None,
    engine: str = "local",
    address: str | None = None,
) -> None:
    """Measures what lies in the files, prints the table and writes the rows where asked to.

    steps, names, blocks: None for the pipeline, the measures and the blocks of the jackknife that nobody asked for.
    engine, address: who makes the passes over the rows (`engines`).
    """
    if json_file is not None:
        json_file = require_new_file(json_file)
    pipeline = parse_pipeline(DEFAULT_STEPS if steps is None else steps)
    chosen = None if names is None else [each.name for each in named(name.strip() for name in _split_names(names))]
    sets = read_sets(image, text)
    if labels is not None:
        sets = with_labels(sets, read_labels(labels))
    _require_labels(chosen or (), sets, image)
    parts = [({}, sets)] if by is None else [({by: value}, part) for value, part in split_by(sets, by)]
    count = len(parts) * len(by_group() if chosen is None else chosen)
    shown = progress("measures", count) if sys.stderr.isatty() else quiet("measures", count)
    with open_engine(engine, address) as opened, shown as advance:
        passes = None if engine == "local" else opened  # in this process what fits is kept in memory
        rows = [row for at, part in parts for row in _rows(part, at, pipeline, chosen, seed, blocks, advance, passes)]
    print_rows(rows, unasked=steps is None)
    _print_layers(sets, by)
    if json_file is not None:
        write_rows(json_file, rows)


def _rows(
    sets: Mapping[str, Embeddings],
    at: Mapping[str, Any],
    pipeline: Sequence[Step],
    names: list[str] | None,
    seed: int,
    blocks: int | None,
    advance: Advance,
    engine: Engine | None,
) -> list[Row]:
    """The rows of one group; `at` says which, empty for all."""
    try:
        given = BLOCKS if blocks is None else blocks
        measured = MeasuredSets(sets, pipeline, seed=seed, blocks=given, engine=engine)
        if blocks is not None:
            _require_items(sets, blocks)
        shared = measured.context()
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


def _split_names(names: str) -> list[str]:
    found = [name for name in names.split(",") if name.strip()]
    if not found:
        raise InputError("--measures is empty; give names, comma-separated, or leave it out for all")
    return found


def _require_items(sets: Mapping[str, Embeddings], blocks: int) -> None:
    """A jackknife that cannot be is no reason to leave out every ± in silence."""
    keys = (range(len(each)) if each.item_id is None else each.item_id.tolist() for each in sets.values())
    items = len(set(chain.from_iterable(keys)))
    if blocks and not 2 <= blocks <= items:
        raise InputError(f"--blocks is {blocks}; expected 0 or from 2 to the number of items, which is {items}")


def _require_labels(names: Sequence[str], sets: Mapping[str, Embeddings], image: Path) -> None:
    """Says how to give the labels that a named measure needs, and where some lie."""
    needing = [each.name for each in named(names) if each.takes == "labelled rows"]
    if needing and all(each.labels is None for each in sets.values()):
        folder = image.expanduser() if image.expanduser().is_dir() else image.expanduser().parent
        beside = "".join(f"; {path} lies beside" for path in sorted(folder.glob("labels.*"))[:1])
        raise InputError(f"{needing[0]} needs labels: add --labels FILE with one label per row{beside}")


def print_rows(rows: list[Row], *, unasked: bool = False) -> None:
    """The table: a row per measure and set, in a block per value of --by; then what was left out and why.

    unasked: whether the pipeline is the one that is used where none was given.
    """
    out = console()
    first = rows[0]
    say(out, first["dataset"])
    if first.get("maps"):
        say(out, f"moved before by: {first['maps']}")
    say(out, f"pipeline: {' → '.join(first['pipeline']) or 'raw (rows as they are)'}")
    columns = [key for key in first["at"] if key != "modality"]
    shown = [row for row in rows if row["value"] is not None]
    heads = ("measure", *columns, "set", ">n", ">value", ">null", "range", "direction")
    print_table(out, heads, [_cells(row, columns) for row in shown], spare=("range", "direction"))
    for line in _legend(shown, unasked):
        say(out, line, style="dim")
    _print_notes(out, rows)


def _cells(row: Row, columns: Sequence[str]) -> list[str]:
    (measure,) = named([row["measure"]])
    places = (*(str(row["at"][key]) for key in columns), row["at"]["modality"], str(row["n"]))
    limits = f"{bound(measure.range[0])} … {bound(measure.range[1])}"
    return [row["measure"], *places, value_and_error(row), number(row["null_value"]), limits, measure.direction]


def _legend(rows: list[Row], unasked: bool) -> Iterator[str]:
    """What the columns mean, and what they do not say."""
    if not rows:
        return
    first, maps = rows[0], any(row.get("maps") for row in rows)
    if first.get("streamed"):
        engine, large = first.get("engine"), "in float64 they take more than a twelfth of the memory"
        yield f"rows were streamed: {large if engine is None else f'engine {engine}'}"
    yield "null: the same on an isotropic Gaussian of this n and d, through this pipeline"
    if first["jackknife_blocks"]:
        yield from _errors_explained(rows, first["jackknife_blocks"])
    if maps:
        yield (
            "null and ±: the map is taken as given; if it was fitted on these rows, measure --pipeline tells what "
            "fitting alone gives"
        )
    if maps and unasked:
        yield "rows were made unit length after the map; --raw takes them as it left them"


def _errors_explained(rows: list[Row], blocks: int) -> Iterator[str]:
    without = [row for row in rows if row.get("standard_error") is None]
    if len(without) < len(rows):
        yield f"±: standard error, jackknife over {blocks} blocks of items; not shown where it is 0"
    for reason in dict.fromkeys(_why_no_error(row, blocks) for row in without):
        yield f"no ± where {reason}"


def _why_no_error(row: Row, blocks: int) -> str:
    (measure,) = named([row["measure"]])
    if not measure.smooth:
        return "the jackknife does not fit the measure (list measures says so)"
    if row.get("streamed"):
        return "one pass over streamed rows cannot tell it: measures of moments have it, after steps that learn nothing"
    if measure.quadratic and row["n"] > QUADRATIC_ROWS:
        return f"time grows with n² and there are more than {QUADRATIC_ROWS} rows"
    return f"the rows are too few for {blocks} blocks; --blocks takes fewer"


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
        say(out, f"{before}{', '.join(names)}{after}", style="dim")


def _print_layers(sets: Mapping[str, Embeddings], by: str | None) -> None:
    """Rows of several layers make one cloud unless they are told apart."""
    layers = {layer for each in sets.values() if "layer" in each.metadata for layer in each.metadata["layer"].tolist()}
    if by != "layer" and len(layers) > 1:
        say(console(), f"{len(layers)} layers together; --by layer measures each", style="dim")


def write_rows(path: Path, rows: list[Row]) -> None:
    """The rows as a results file of their own, replacing an older one; a link is followed, a device written to."""
    path, text = path.resolve(), lines_of(digest(rows), rows)
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
    else:
        write_atomically(path, text.encode())
