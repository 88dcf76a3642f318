"""`clip-geometry measure`: files in, a table out."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from clip_geometry.cli.tables import bound, console, number, print_table, say, value_and_error
from clip_geometry.config import digest
from clip_geometry.embedding.engines import Engine, open_engine
from clip_geometry.embeddings import Embeddings
from clip_geometry.files import is_device, write_atomically
from clip_geometry.formats import own_name, read_any, read_labels, read_sides, with_labels
from clip_geometry.formats.vectors import UNNAMED
from clip_geometry.geometry import by_group
from clip_geometry.geometry.uncertainty import BLOCKS
from clip_geometry.measuring.sets import QUADRATIC_ROWS, MeasuredSets, measure_sets, named
from clip_geometry.measuring.splitting import split_by
from clip_geometry.paths import expanded
from clip_geometry.progress import Advance, note, progress, quiet
from clip_geometry.registry import InputError, listed, shown
from clip_geometry.results import Record, lines_of
from clip_geometry.transforms import Step, parse_pipeline

DEFAULT_STEPS = "normalize"


def measure_files(
    paths: Sequence[Path],
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
    """Measures embeddings in files, prints the table and writes the records to `json_file`, replacing what is there.

    None of steps, names and blocks means the default pipeline, measures and number of jackknife blocks.
    """
    pipeline = parse_pipeline(DEFAULT_STEPS if steps is None else steps)
    chosen = None
    if names is not None:
        chosen = [each.name for each in named(name.strip() for name in names.split(",") if name.strip())]
        if not chosen:
            raise InputError("--measures is empty; give names, comma-separated, or leave it out for all")
    sets = read_sets(paths)
    if labels is not None:
        values = read_labels(labels)
        sets = with_labels(sets, values)
        for modality, rows in sets.items():
            if len(rows) != len(values):
                note(f"the {len(values)} labels are not those of the {len(rows)} {modality} rows, which get none")
    needing = [each.name for each in named(chosen or ()) if each.takes == "labeled rows"]
    if needing and all(each.labels is None for each in sets.values()):
        folder = expanded(paths[0])
        folder = folder if folder.is_dir() else folder.parent
        beside = "".join(f"; {shown(path)} lies beside" for path in sorted(folder.glob("labels.*"))[:1])
        raise InputError(f"{needing[0]} needs labels: add --labels FILE with one label per row{beside}")
    parts = [({}, sets)] if by is None else [({by: value}, part) for value, part in split_by(sets, by)]
    count = len(parts) * len(by_group() if chosen is None else chosen)
    bar = progress("measures", count) if sys.stderr.isatty() else quiet("measures", count)
    with open_engine(engine, address) as opened, bar as advance:
        passes = None if engine == "local" else opened  # in this process what fits is kept in memory
        records = [
            record
            for at, part in parts
            for record in _records(part, at, pipeline, chosen, seed, blocks, advance, passes)
        ]
    print_records(records, by_default=steps is None)
    layers = {layer for each in sets.values() if "layer" in each.metadata for layer in each.metadata["layer"].tolist()}
    if by != "layer" and len(layers) > 1:
        say(console(), f"{len(layers)} layers together; --by layer measures each", style="dim")
    if json_file is not None:
        _write(json_file, records)


def _records(
    sets: Mapping[str, Embeddings],
    at: Mapping[str, Any],
    pipeline: Sequence[Step],
    names: list[str] | None,
    seed: int,
    blocks: int | None,
    advance: Advance,
    engine: Engine | None,
) -> list[Record]:
    """The records of one group; `at` says which, empty for all."""
    try:
        given = BLOCKS if blocks is None else blocks
        measured = MeasuredSets(sets, pipeline, seed=seed, blocks=given, engine=engine)
        if blocks:  # an impossible jackknife is an error, rather than a table without standard errors
            keys = (range(len(each)) if each.item_id is None else each.item_id.tolist() for each in sets.values())
            items = len(set(chain.from_iterable(keys)))
            if not 2 <= blocks <= items:
                raise InputError(f"--blocks is {blocks}; expected 0 or from 2 to the number of items, which is {items}")
        remarks = measured.remarks()
        shared = {**measured.context(), **({"remarks": remarks} if remarks else {})}
        found = measure_sets(measured, names, advance)
        return [Record.of({**shared, **each, "at": {**at, **each["at"]}}) for each in found]
    except InputError as error:
        if not at:
            raise
        group = ", ".join(f"{key} {value}" for key, value in at.items())
        raise InputError(f"in the group of {group}: {error}") from None


def read_sets(paths: Sequence[Path]) -> dict[str, Embeddings]:
    """The sets in files or folders, each of which may hold several. Of two paths that name no other modality, the first
    is the images and the second the texts; otherwise every set is called what its file says or what it is called.

    Raises InputError where two paths hold one modality.
    """
    if len(paths) == 1:
        return dict(read_any(paths[0]))
    sides = [read_sides(path) for path in paths]
    if len(paths) == 2 and set().union(*sides) <= {"image", "text", UNNAMED}:
        return _image_and_text(paths, sides)
    found: dict[str, Embeddings] = {}
    for path, each in zip(paths, sides, strict=True):
        for name, side in each.items():
            modality = name or own_name(path)
            if modality in found:
                raise InputError(f"{shown(path)} holds {modality} rows, and so does a path before it; give one of them")
            found[modality] = replace(side, modality=modality)
    return found


def _image_and_text(paths: Sequence[Path], sides: Sequence[Mapping[str, Embeddings]]) -> dict[str, Embeddings]:
    """What files, folders and their names say of the modality takes precedence over the order of the paths: two swapped
    paths are put right, two of one modality are compared as given, and a single contradiction is an InputError."""
    (image, text), (first, second) = paths, sides
    if set(first) == {"text"} and set(second) == {"image"}:
        note(f"{shown(image)} holds texts and {shown(text)} images: they are taken as such, whatever their order")
        image, text, first, second = text, image, second, first
    alike = set(first) == set(second) and len(first) == 1
    found = {}
    for modality, sides_here, path in (("image", first, image), ("text", second, text)):
        own = modality if modality in sides_here else next(iter(sides_here))
        if own not in (modality, UNNAMED):
            if not alike:
                raise InputError(f"{shown(path)} holds {own} rows and was given as {modality}: give IMAGE, then TEXT")
            note(f"both paths hold {own} rows: those of {shown(path)} stand in the place of {modality} rows")
        found[modality] = replace(sides_here[own], modality=modality)
    return found


def print_records(records: list[Record], *, by_default: bool = False) -> None:
    """Prints the table, a line per measure and set and a block per value of --by, then what was left out and why.

    by_default: whether the pipeline is the default one.
    """
    out = console()
    first = records[0]
    say(out, str(first.dataset))
    if first.maps:
        say(out, f"transformed before by: {first.maps}")
    say(out, f"pipeline: {' → '.join(first.pipeline or ()) or 'raw (rows as they are)'}")
    columns = [key for key in first.at if key != "modality"]
    computed = [record for record in records if record.value is not None]
    # with three modalities or more, and one group of rows, couples are shown by modality × modality
    couples = [] if columns else [record for record in computed if "+" in str(record.at["modality"])]
    cells = []
    for record in computed:
        if record in couples:
            continue
        (measure,) = named([record.measure])
        places = (*(str(record.at[key]) for key in columns), str(record.at["modality"]), str(record.n))
        limits = f"{bound(measure.range[0])} … {bound(measure.range[1])}"
        numbers = value_and_error(record), number(record["null_value"])
        cells.append([record.measure, *places, *numbers, limits, measure.direction])
    heads = ("measure", *columns, "set", ">n", ">value", ">null", "range", "direction")
    if cells:
        print_table(out, heads, cells, spare=("range", "direction"))
    if couples:
        _print_couples(out, couples)
    for line in (*_legend(computed, by_default), *_remarks_and_notes(records)):
        say(out, line, style="dim")


def _print_couples(out: Console, records: list[Record]) -> None:
    """A table of modality × modality for each measure: the value above the diagonal, the null value below it."""
    tables: dict[str, dict[frozenset[str], Record]] = {}
    for record in records:
        tables.setdefault(record.measure, {})[frozenset(str(record.at["modality"]).split("+"))] = record
    modalities = sorted(set().union(*(couple for table in tables.values() for couple in table)))
    for measure, table in tables.items():
        rows = []
        for k, one in enumerate(modalities):
            rows.append([one])
            for m, other in enumerate(modalities):
                record = table.get(frozenset((one, other)))
                cell = (
                    ""
                    if k == m or record is None
                    else value_and_error(record)
                    if k < m
                    else number(record["null_value"])
                )
                rows[-1].append(cell)
        out.print()
        print_table(out, (measure, *(f">{name}" for name in modalities)), rows)
    say(out, "above the diagonal: the value of the couple; below it: its null value", style="dim")


def _legend(records: list[Record], by_default: bool) -> Iterator[str]:
    """What the columns mean, and what they do not say."""
    if not records:
        return
    first, maps = records[0], any(record.maps for record in records)
    if first.get("streamed"):
        engine, large = first.get("engine"), "in float64 they take more than 1 GB or a twelfth of the memory"
        yield f"rows were streamed: {large if engine is None else f'engine {engine}'}"
    yield "null: the same on an isotropic Gaussian of this n and d, through this pipeline"
    if blocks := first["jackknife_blocks"]:
        without = [record for record in records if record.standard_error is None]
        if len(without) < len(records):
            yield f"±: standard error, jackknife over {blocks} blocks of items; not shown where it is 0"
        reasons: dict[str, None] = {}  # in their order
        for record in without:
            (measure,) = named([record.measure])
            if not measure.smooth:
                reason = "the jackknife does not fit the measure (list measures says so)"
            elif record.get("streamed"):
                reason = "one pass over streamed rows cannot tell it: measures of moments have it, after steps that "
                reason += "learn nothing"
            elif measure.quadratic and (record.n or 0) > QUADRATIC_ROWS:
                reason = f"time grows with n² and there are more than {QUADRATIC_ROWS} rows"
            else:
                reason = f"the rows are too few for {blocks} blocks; --blocks takes fewer"
            reasons[reason] = None
        yield from (f"no ± where {reason}" for reason in reasons)
    if maps:
        yield (
            "null and ±: the map is taken as given; if it was fitted on these rows, measure --pipeline tells what "
            "fitting alone gives"
        )
    if maps and by_default:
        yield "rows were made unit length after the map; --raw takes them as it left them"


def _remarks_and_notes(records: list[Record]) -> Iterator[str]:
    """Remarks on the sets, each once with its groups; then notes on numbers, each once with its measures."""
    groups: dict[str, dict[str, None]] = {}
    notes: dict[tuple[str, str], dict[str, None]] = {}
    for record in records:
        group = " ".join(str(value) for key, value in record.at.items() if key != "modality")
        for remark in record.get("remarks", ()):
            groups.setdefault(remark, {})[group] = None
        if record.note:
            begin = "not computed: " if record.value is None else ""
            end = f": {record.note}" if record.value is None else f" of {record.at['modality']}: {record.note}"
            notes.setdefault((begin, end), {})[record.measure] = None
    for remark, names in groups.items():
        yield f"remark{f' on {listed(names)}' if any(names) else ''}: {remark}"
    for (begin, end), names in notes.items():
        yield f"{begin}{', '.join(names)}{end}"


def _write(path: Path, records: list[Record]) -> None:
    """As a results file of their own, replacing an older one; a link is followed, a device written to."""
    text = lines_of(digest([dict(record) for record in records]), records)
    if is_device(path):
        sys.stdout.flush()  # it may be the same one
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    else:
        write_atomically(path.resolve(), text.encode())
