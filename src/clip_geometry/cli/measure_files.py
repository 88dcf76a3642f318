"""`clip-geometry measure`: files in, a table out."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from clip_geometry.cli.new_files import is_device
from clip_geometry.cli.tables import bound, console, number, print_table, say, value_and_error
from clip_geometry.config import digest
from clip_geometry.embedding.engines import Engine, open_engine
from clip_geometry.embeddings import Embeddings
from clip_geometry.files import write_atomically
from clip_geometry.formats import read_any, read_labels, read_sides, with_labels
from clip_geometry.formats.vectors import UNNAMED
from clip_geometry.geometry import by_group
from clip_geometry.geometry.uncertainty import BLOCKS
from clip_geometry.measuring.sets import QUADRATIC_ROWS, MeasuredSets, measure_sets, named
from clip_geometry.measuring.splitting import split_by
from clip_geometry.paths import expanded
from clip_geometry.progress import Advance, note, progress, quiet
from clip_geometry.registry import InputError, listed, shown
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
    """Measures what lies in the files, prints the table and writes the rows where asked to, over what is there.

    steps, names, blocks: None for the pipeline, the measures and the blocks of the jackknife that nobody asked for.
    engine, address: who makes the passes over the rows (`engines`).
    """
    pipeline = parse_pipeline(DEFAULT_STEPS if steps is None else steps)
    chosen = None if names is None else [each.name for each in named(name.strip() for name in _split_names(names))]
    sets = read_sets(image, text)
    if labels is not None:
        values = read_labels(labels)
        sets = with_labels(sets, values)
        for modality, rows in sets.items():
            if len(rows) != len(values):
                note(f"the {len(values)} labels are not those of the {len(rows)} {modality} rows, which get none")
    _require_labels(chosen or (), sets, image)
    parts = [({}, sets)] if by is None else [({by: value}, part) for value, part in split_by(sets, by)]
    count = len(parts) * len(by_group() if chosen is None else chosen)
    bar = progress("measures", count) if sys.stderr.isatty() else quiet("measures", count)
    with open_engine(engine, address) as opened, bar as advance:
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
        if remarks := measured.remarks():
            shared["remarks"] = remarks
        return [{**shared, **row, "at": {**at, **row["at"]}} for row in measure_sets(measured, names, advance)]
    except InputError as error:
        if not at:
            raise
        group = ", ".join(f"{key} {value}" for key, value in at.items())
        raise InputError(f"in the group of {group}: {error}") from None


def read_sets(image: Path, text: Path | None) -> dict[str, Embeddings]:
    """The sets in one or two files or folders. A folder may hold both; of two paths the second is the text.

    What files, folders and their names say of the modality goes before the order of the paths: two that are exchanged
    are put right, two of one modality are compared as they were given, and one alone that contradicts is an InputError.
    """
    if text is None:
        return dict(read_any(image))
    first, second = read_sides(image), read_sides(text)
    if set(first) == {"text"} and set(second) == {"image"}:
        note(f"{shown(image)} holds texts and {shown(text)} images: they are taken as such, whatever their order")
        image, text, first, second = text, image, second, first
    alike = set(first) == set(second) and len(first) == 1
    found = {}
    for modality, sides, path in (("image", first, image), ("text", second, text)):
        own = modality if modality in sides else next(iter(sides))
        if own not in (modality, UNNAMED):
            if not alike:
                raise InputError(f"{shown(path)} holds {own} rows and was given as {modality}: give IMAGE, then TEXT")
            note(f"both paths hold {own} rows: those of {shown(path)} stand in the place of {modality} rows")
        found[modality] = replace(sides[own], modality=modality)
    return found


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
        image = expanded(image)
        folder = image if image.is_dir() else image.parent
        beside = "".join(f"; {shown(path)} lies beside" for path in sorted(folder.glob("labels.*"))[:1])
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
    taken = [row for row in rows if row["value"] is not None]
    heads = ("measure", *columns, "set", ">n", ">value", ">null", "range", "direction")
    print_table(out, heads, [_cells(row, columns) for row in taken], spare=("range", "direction"))
    for line in (*_legend(taken, unasked), *_remarks(rows)):
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
        engine, large = first.get("engine"), "in float64 they take more than 1 GB or a twelfth of the memory"
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


def _remarks(rows: list[Row]) -> Iterator[str]:
    """Those on the sets, each once with the groups that it is about."""
    groups: dict[str, dict[str, None]] = {}
    for row in rows:
        group = " ".join(str(value) for key, value in row["at"].items() if key != "modality")
        for remark in row.get("remarks", ()):
            groups.setdefault(remark, {})[group] = None
    for remark, names in groups.items():
        yield f"remark{f' on {listed(names)}' if any(names) else ''}: {remark}"


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
    text = lines_of(digest(rows), rows)
    if is_device(path):
        sys.stdout.flush()  # it may be the same one
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    else:
        write_atomically(path.resolve(), text.encode())
