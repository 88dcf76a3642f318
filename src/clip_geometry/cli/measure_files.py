"""`clip-geometry measure`: files in, a table out; the command calls these."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from clip_geometry.cli.tables import bound, console, number, print_table, say, value_and_error
from clip_geometry.display.couples import names_of
from clip_geometry.display.known_models import values_of
from clip_geometry.display.origin import roles_of
from clip_geometry.display.verdict import verdict
from clip_geometry.display.words import listed as listed_words
from clip_geometry.embeddings import LARGE, Embeddings
from clip_geometry.files import is_device, write_atomically
from clip_geometry.io.labels import read_labels, with_labels
from clip_geometry.io.sources import read_sets
from clip_geometry.measuring.names import named
from clip_geometry.measuring.records import as_lines
from clip_geometry.measuring.sets import QUADRATIC_ROWS
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, listed, shown
from clip_geometry.results import Record

MODEL = "CLIP ViT-B/16 on COCO"  # that values are compared with below the table
ARROWS = {"lower": "↓", "higher": "↑"}


def labeled_sets(paths: Sequence[Path], labels: Path | None, *, needing: Sequence[str]) -> dict[str, Embeddings]:
    """The sets at the paths with their labels; InputError where there are none and one of these measures needs them."""
    sets = read_sets(*paths)
    if labels is not None:
        sets = with_labels(sets, read_labels(labels))
    lacking = [each.name for each in named(needing) if each.takes == "labeled rows"]
    if lacking and all(each.labels is None for each in sets.values()):
        folder = expanded(paths[0])
        folder = folder if folder.is_dir() else folder.parent
        beside = "".join(f"; {shown(path)} lies beside" for path in sorted(folder.glob("labels.*"))[:1])
        raise InputError(f"{lacking[0]} needs labels: add --labels FILE with one label per row{beside}")
    return sets


def print_records(records: list[Record], *, by_default: bool = False) -> None:
    """Prints what the numbers say and the table, a line per measure and set and a block per value of --by; then what
    was left out and why.

    by_default: whether the pipeline is the default one.
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
    if text := verdict(records):
        say(out, text, style="bold")
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
        first_word, _, rest = measure.direction.partition(" ")  # "lower is more isotropic" as "↓" and "isotropic"
        known = first_word in ARROWS
        direction = rest.removeprefix("is ").removeprefix("more ") if known else measure.direction
        cells.append([record.measure, *places, *numbers, ARROWS.get(first_word, ""), direction, limits])
    heads = ("measure", *columns, "set", ">n", ">value", ">null", "", "direction", "range")
    if cells:
        print_table(out, heads, cells, spare=("range", *([">n"] if sizes else []), "direction"))
    if couples:
        _print_couples(out, couples)
    if scaled := [record for record in computed if record.scaling]:
        _print_sizes(out, scaled, columns)
    for line in (*_legend(computed, by_default), *_remarks_and_notes(records)):
        say(out, line, style="dim")


def print_layers(sets: Mapping[str, Embeddings]) -> None:
    """Says that the rows are of several layers, where they are."""
    layers = {layer for each in sets.values() if "layer" in each.metadata for layer in each.metadata["layer"].tolist()}
    if len(layers) > 1:
        say(console(), f"{len(layers)} layers together; --by layer measures each", style="dim")


def _sizes(records: list[Record]) -> list[str]:
    """1000 image and 5000 text rows in 512 dimensions, where the records tell all of it."""
    alone = [record for record in records if named([record.measure])[0].takes == "rows"]
    counts = {str(record.at["modality"]): record.n for record in alone}
    dimensions = {record.d for record in alone}
    if not counts or len(dimensions) > 1:
        return []
    rows = [f"{n} {modality}" for modality, n in counts.items()]
    return [f"{listed_words(rows)} rows in {dimensions.pop()} dimensions"]


def _print_couples(out: Console, records: list[Record]) -> None:
    """A table of modality × modality for each measure: the value above the diagonal, the null value below it."""
    modalities = names_of(records)
    for measure in dict.fromkeys(record.measure for record in records):
        cells = {}
        for record in (each for each in records if each.measure == measure):
            one, other = sorted(str(record.at["modality"]).split("+"))
            cells |= {(one, other): value_and_error(record), (other, one): number(record["null_value"])}
        out.print()
        say(out, measure, style="bold")
        rows = [[one, *(cells.get((one, other), "") for other in modalities)] for one in modalities]
        print_table(out, ("", *(f">{name}" for name in modalities)), rows)
    say(out, "above the diagonal: the value of the couple; below it: its null value", style="dim")


def _print_sizes(out: Console, records: list[Record], columns: Sequence[str]) -> None:
    """A table of the values at n/8, n/4, n/2 and n items, and what to expect at full size."""
    ends = [f"n/{2**k}" for k in range(3, 0, -1)] + ["n"]
    full = next((record.expected["n"] for record in records if record.expected), None)
    cells, notes = [], {}
    for record in records:
        sizes = [number(size["value"]) for size in record.scaling or ()][-4:]
        places = (*(str(record.at[key]) for key in columns), str(record.at["modality"]))
        expected = record.expected or {}
        interval = [number(expected[key]) for key in ("value", "low", "high") if key in expected]
        text = "{} [{}, {}]".format(*interval) if interval else "-" if expected else ""
        cells.append([record.measure, *places, *[""] * (4 - len(sizes)), *sizes, text])
        if "note" in expected:
            notes.setdefault(expected["note"], {})[record.measure] = None
    out.print()
    heads = ("measure", *columns, "set", *(f">{end}" for end in ends), f">at {full}")
    print_table(out, heads if full else heads[:-1], cells if full else [row[:-1] for row in cells], spare=(">n/8",))
    items = {record.scaling[-1]["n"] for record in records if record.scaling}
    n = f"n = {items.pop()} items; " if len(items) == 1 else ""
    say(out, f"value by size: {n}below n the mean over random subsets, through the pipeline of all items", style="dim")
    if full:
        held = "an interval meant to hold 95%, which held 93% at 4 n and 88% at 8 n in trials (docs/null_value.md)"
        say(out, f"at {full}: what a fit of the trend predicts, with {held}", style="dim")
    for note, names in notes.items():
        say(out, f"at {full}, nothing is expected of {', '.join(names)}: {note}", style="dim")


def _legend(records: list[Record], by_default: bool) -> Iterator[str]:
    """What the columns mean, and what they do not say."""
    if not records:
        return
    first, maps = records[0], any(record.maps for record in records)
    if first.get("streamed"):
        engine, large = first.get("engine"), f"in float64 they take more than {LARGE / 1e6:.3g} MB"
        yield f"rows were streamed: {large if engine is None else f'engine {engine}'}"
    yield "null: the same on one draw of an isotropic Gaussian of this n and d, through this pipeline"
    if by_default and not maps and (known := values_of(MODEL, [record.measure for record in records])):
        yield f"for comparison, {MODEL} (500 pairs): {known} (the page of measures has other models)"
    if roles := roles_of(records):
        yield roles
    yield "↓ lower, ↑ higher is more isotropic, closer, …, as the direction of the measure says (list measures NAME)"
    if blocks := first["jackknife_blocks"]:
        without = [record for record in records if record.standard_error is None]
        if any(record.without for record in records):
            yield f"±: standard error, jackknife over {blocks} blocks of items; not shown where it is 0"
        if any(record.low is not None for record in records):
            yield "[ ]: 95% interval of a share, over queries and items, with the pipeline as it was fitted"
        reasons: dict[str, None] = {}  # in their order
        for record in without:
            (measure,) = named([record.measure])
            if not measure.smooth:
                reason = "no standard error of the measure can be trusted (list measures says why)"
            elif record.get("streamed"):
                reason = "rows are streamed: measures of moments and sums have it, after steps that learn nothing"
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


def write_records(path: Path, records: list[Record]) -> None:
    """As a results file of their own, replacing an older one; a link is followed, a device written to."""
    text = as_lines(records)
    if is_device(path):
        sys.stdout.flush()  # it may be the same one
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    else:
        write_atomically(path.resolve(), text.encode())
