"""`clip-geometry measure`: files in, a table out."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from clip_geometry.cli.tables import bound, console, number, print_table, say, value_and_error
from clip_geometry.config import digest
from clip_geometry.embedding.engines import Engine, open_engine
from clip_geometry.embeddings import Embeddings
from clip_geometry.files import is_device, write_atomically
from clip_geometry.formats import read_labels, read_sides, with_labels
from clip_geometry.formats.vectors import UNNAMED
from clip_geometry.geometry import by_group
from clip_geometry.geometry.uncertainty import BLOCKS
from clip_geometry.measuring.sets import CORE, QUADRATIC_ROWS, MeasuredSets, measure_sets, named
from clip_geometry.measuring.splitting import split_by
from clip_geometry.paths import expanded
from clip_geometry.progress import Advance, note, progress, quiet
from clip_geometry.registry import InputError, listed, shown
from clip_geometry.report.verdict import verdict
from clip_geometry.report.words import listed as listed_words
from clip_geometry.results import Record, lines_of
from clip_geometry.transforms import Step, parse_pipeline

DEFAULT_STEPS = "normalize"


def measure_files(
    image: Path,
    text: Path | None,
    *,
    labels: Path | None,
    steps: str | None,
    names: str | None,
    everything: bool,
    by: str | None,
    json_file: Path | None,
    seed: int,
    blocks: int | None,
    engine: str = "local",
    address: str | None = None,
) -> None:
    """Measures embeddings in files, prints the table and writes the records to `json_file`, replacing what is there.

    None of steps and blocks means the default pipeline and number of jackknife blocks; without names the core is
    measured, or everything: it and all default measures.
    """
    pipeline = parse_pipeline(DEFAULT_STEPS if steps is None else steps)
    chosen = None
    if names is not None:
        chosen = [each.name for each in named(name.strip() for name in names.split(",") if name.strip())]
        if not chosen:
            raise InputError("--measures is empty; give names, comma-separated, or leave it out for all")
    sets = read_sets(image, text)
    called = expanded(image).stem if UNNAMED in sets else None
    if called is not None:
        sets = {"image": replace(sets[UNNAMED], modality="image")}
    default = [*(each.name for each in by_group()), *CORE] if everything else CORE
    left_out = [] if everything or chosen else [each.name for each in by_group() if each.name not in CORE]
    if labels is not None:
        values = read_labels(labels)
        sets = with_labels(sets, values)
        for modality, rows in sets.items():
            if len(rows) != len(values):
                note(f"the {len(values)} labels are not those of the {len(rows)} {modality} rows, which get none")
    needing = [each.name for each in named(chosen or ()) if each.takes == "labeled rows"]
    if needing and all(each.labels is None for each in sets.values()):
        folder = expanded(image)
        folder = folder if folder.is_dir() else folder.parent
        beside = "".join(f"; {shown(path)} lies beside" for path in sorted(folder.glob("labels.*"))[:1])
        raise InputError(f"{needing[0]} needs labels: add --labels FILE with one label per row{beside}")
    parts = [({}, sets)] if by is None else [({by: value}, part) for value, part in split_by(sets, by)]
    count = len(parts) * len(dict.fromkeys(default) if chosen is None else chosen)
    bar = progress("measures", count) if sys.stderr.isatty() else quiet("measures", count)
    with open_engine(engine, address) as opened, bar as advance:
        passes = None if engine == "local" else opened  # in this process what fits is kept in memory
        records = [
            record
            for at, part in parts
            for record in _records(part, at, pipeline, chosen or default, chosen is None, seed, blocks, advance, passes)
        ]
    shown_as = {"image": called} if called is not None else {}
    printed = [_at(record, shown_as) for record in records]
    print_records(printed, by_default=steps is None, say_verdict=chosen is None, left_out=left_out)
    layers = {layer for each in sets.values() if "layer" in each.metadata for layer in each.metadata["layer"].tolist()}
    if by != "layer" and len(layers) > 1:
        say(console(), f"{len(layers)} layers together; --by layer measures each", style="dim")
    if json_file is not None:
        _write(json_file, records)


def _at(record: Record, names: Mapping[str, str]) -> Record:
    """The record with the modality of another name."""
    place = record.at.get("modality")
    return record if place not in names else Record.of({**record, "at": {**record.at, "modality": names[place]}})


def _records(
    sets: Mapping[str, Embeddings],
    at: Mapping[str, Any],
    pipeline: Sequence[Step],
    names: Sequence[str],
    optional: bool,
    seed: int,
    blocks: int | None,
    advance: Advance,
    engine: Engine | None,
) -> list[Record]:
    """The records of one group; `at` says which, empty for all. optional: whether names may be left out with a note."""
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
        found = measure_sets(measured, names, advance, optional=optional)
        return [Record.of({**shared, **each, "at": {**at, **each["at"]}}) for each in found]
    except InputError as error:
        if not at:
            raise
        group = ", ".join(f"{key} {value}" for key, value in at.items())
        raise InputError(f"in the group of {group}: {error}") from None


def read_sets(image: Path, text: Path | None) -> dict[str, Embeddings]:
    """The sets in one or two files or folders. A folder may hold both; of two paths the second is the text.

    What files, folders and their names say of the modality takes precedence over the order of the paths: two swapped
    paths are put right, two of one modality are compared as given, and a single contradiction is an InputError. A single
    file that names no modality is UNNAMED.
    """
    if text is None:
        return read_sides(image)
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


def print_records(
    records: list[Record],
    *,
    by_default: bool = False,
    say_verdict: bool = False,
    left_out: Sequence[str] = (),
) -> None:
    """Prints what the numbers say and the table, a line per measure and set and a block per value of --by; then what
    was left out and why.

    by_default: whether the pipeline is the default one. left_out: measures of --all that were not asked for.
    """
    out = console()
    first = records[0]
    say(out, str(first.dataset))
    if first.maps:
        say(out, f"transformed before by: {first.maps}")
    columns = [key for key in first.at if key != "modality"]
    computed = [record for record in records if record.value is not None]
    sizes = [] if columns else _sizes(computed)
    steps = " → ".join(first.pipeline or ()) or "raw (rows as they are)"
    say(out, "; ".join([f"pipeline: {steps}", *sizes]))
    if say_verdict and not columns and (text := verdict(computed)):
        say(out, text, style="bold")
    cells = []
    for record in computed:
        (measure,) = named([record.measure])
        places = (*(str(record.at[key]) for key in columns), str(record.at["modality"]), str(record.n))
        limits = f"{bound(measure.range[0])} … {bound(measure.range[1])}"
        numbers = value_and_error(record), number(record["null_value"])
        cells.append([record.measure, *places, *numbers, _arrow(measure.direction), limits])
    heads = ("measure", *columns, "set", ">n", ">value", ">null", "direction", "range")
    print_table(out, heads, cells, spare=("range", *([">n"] if sizes else []), "direction"))
    for line in (*_legend(computed, by_default), *_remarks_and_notes(records)):
        say(out, line, style="dim")
    if left_out:
        bases = dict.fromkeys(name.partition("[")[0] for name in left_out)
        say(out, f"--all takes {len(left_out)} more measures: {', '.join(bases)}", style="dim")


def _sizes(records: list[Record]) -> list[str]:
    """1000 image and 5000 text rows; 512 dimensions, where the records tell all of it."""
    alone = [record for record in records if named([record.measure])[0].takes == "rows"]
    counts = {str(record.at["modality"]): record.n for record in alone}
    dimensions = {record.d for record in alone}
    if not counts or len(dimensions) > 1:
        return []
    rows = [f"{n} {modality}" for modality, n in counts.items()]
    return [f"{listed_words(rows)} rows in {dimensions.pop()} dimensions"]


def _arrow(direction: str) -> str:
    """ "lower is more isotropic" as "↓ isotropic"."""
    words = {"lower": "↓", "higher": "↑", "is": "", "more": "", "better": ""}
    return " ".join(filter(None, (words.get(word, word) for word in direction.split())))


def _legend(records: list[Record], by_default: bool) -> Iterator[str]:
    """What the columns mean, and what they do not say."""
    if not records:
        return
    first, maps = records[0], any(record.maps for record in records)
    if first.get("streamed"):
        engine, large = first.get("engine"), "in float64 they take more than 1 GB or a twelfth of the memory"
        yield f"rows were streamed: {large if engine is None else f'engine {engine}'}"
    yield "null: the same on an isotropic Gaussian of this n and d, through this pipeline"
    yield "direction: ↓ isotropic means that lower is more isotropic, ↑ that higher is"
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
