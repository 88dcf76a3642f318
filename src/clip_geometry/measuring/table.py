"""The table of a measurement: its numbers, what they say, and what its columns mean."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from clip_geometry.catalog import descriptions
from clip_geometry.display.explained import Explanation, about, explain, group_order, title_of, values_of
from clip_geometry.display.numbers import as_number, bound, number, to_error, with_error
from clip_geometry.display.origin import Row, data_words, model_words, pipeline_words, places, roles_of, runs, words
from clip_geometry.display.table import Cell, Table, TableColumn
from clip_geometry.display.words import Words, listed
from clip_geometry.embeddings import LARGE
from clip_geometry.measuring.records import CORE
from clip_geometry.measuring.sets import QUADRATIC_ROWS

WORDS = Words(Path(__file__).with_name("verdict.j2"))
CONE = 0.2  # average cosine from which rows that are no sphere are called a cone
FAR, NEAR = 0.5, 0.95  # IsoScore relative to its null value: below, far from isotropic; above, as good as isotropic
SEPARATED = 0.9  # share of the own modality among ten neighbors
ROUNDING = 1e-9  # values that differ by less are the same
CLEAR = 2.0  # standard errors of a difference, from which it is claimed
Found = Mapping[str, Mapping[str, Row]]


def verdict(rows: Sequence[Row]) -> str:
    """What the numbers say together. A difference of less than two standard errors is called none, and nothing is
    claimed of a number without a standard error.

    Args:
        rows: Records of one table, those without a value included.

    Returns:
        Sentences on cones and isotropy, on the gap, and on pairs, each where there are numbers for it. Empty where the
        core was not measured, or in groups.
    """
    if not set(CORE) <= {row["measure"] for row in rows} or any(row["at"].keys() - {"modality"} for row in rows):
        return ""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.get("value") is not None and row.get("null_value") is not None:
            found.setdefault(row["measure"], {})[row["at"]["modality"]] = row
    parts = ("; ".join(part) for part in (_sets(found), _gap(found), _pairs(found)))
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in parts if part)


def _sets(found: Found) -> Iterator[str]:
    for measure, kind in (("average_cosine", _cone), ("isoscore[unbiased]", _isotropy)):
        places = found.get(measure, {})
        groups: dict[str, list[str]] = {}
        for place, row in places.items():
            if _has_error(row):
                groups.setdefault(kind(row), []).append(place)
        for name, members in groups.items():
            yield WORDS(name, members, [places[each]["value"] for each in members], len(places) == 1)


def _cone(row: Row) -> str:
    if row["value"] <= 0 or _from_null(row) != 1:
        return "no_cone"
    return "cone" if row["value"] >= CONE else "weak"


def _isotropy(row: Row) -> str:
    if row["value"] >= NEAR * row["null_value"] or _from_null(row) != -1:
        return "isotropic"
    return "far" if row["value"] < FAR * row["null_value"] else "uneven"


def _gap(found: Found) -> Iterator[str]:
    gaps = {place: _beside_chance(place, row, found) for place, row in found.get("modality_gap", {}).items()}
    if len(gaps) > 1:
        ends = (end(gaps, key=lambda place: gaps[place]["value"]) for end in (min, max))
        without = [_names(place, found) for place, row in gaps.items() if _has_error(row) and _from_null(row) != 1]
        every = len(without) == len(gaps)
        yield WORDS("gaps", *((gaps[place]["value"], _names(place, found)) for place in ends), without, every)
    if len(gaps) != 1:
        return
    ((place, gap),) = gaps.items()
    names, apart = _names(place, found), _from_null(gap) == 1
    kind = "means" if not _has_error(gap) else "gap" if apart else "no_gap"
    yield WORDS(kind, gap["value"], gap["null_value"], [] if place == "both" else names)
    own = (found.get(f"retrieval[mixed].{role}.same_modality_at_10", {}) for role in ("image", "text"))
    shares = [rows[place] for rows in own if place in rows]
    if len(shares) == 2:
        kind = "mixed"
        if apart and all(each["value"] >= SEPARATED > each["null_value"] for each in shares):
            kind = "separated"
        elif all(_has_error(each) and _from_null(each) == 0 for each in shares):
            kind = "even"
        yield WORDS(kind, *(each["value"] for each in shares), names)


def _beside_chance(place: str, gap: Row, found: Found) -> Row:
    """The gap with what chance gives two samples of these rows about one mean: the null value, which is that of rows
    without a common direction, times √(1 − average cosine)."""
    cosines = [row["value"] for name in _names(place, found) if (row := found.get("average_cosine", {}).get(name))]
    spread = 1 - max(0.0, sum(cosines) / len(cosines)) if cosines else 1.0
    return {**gap, "null_value": gap["null_value"] * math.sqrt(spread)}


def _pairs(found: Found) -> Iterator[str]:
    cosines = [found.get(name, {}) for name in ("matching_cosine", "random_cosine")]
    if any(len(rows) != 1 for rows in cosines):
        return
    (place,) = cosines[0]
    matching, random = (rows[place] for rows in cosines)
    if not (_has_error(matching) and _has_error(random)):
        yield WORDS("cosines", matching["value"], random["value"])
        return
    error = math.hypot(matching["standard_error"], random["standard_error"])
    closer = matching["value"] - random["value"] > max(CLEAR * error, ROUNDING)
    text = WORDS("pairs" if closer else "no_pairs", matching["value"], random["value"])
    first = [found.get(f"retrieval.{way}.r_at_1", {}) for way in ("image_to_text", "text_to_image")]
    if closer and all(place in rows for rows in first):
        text += " " + WORDS("found", *(rows[place]["value"] for rows in first), _names(place, found))
    yield text


def _names(place: str, found: Found) -> list[str]:
    """The modalities of a couple, in the order in which a measure takes them."""
    return sorted(found.get("average_cosine", ("image", "text"))) if place == "both" else place.split("+")


def _from_null(row: Row) -> int:
    """1 where the value is clearly above its null value, −1 below: this is one draw, with an error as large."""
    difference = row["value"] - row["null_value"]
    clear = _has_error(row) and abs(difference) > max(CLEAR * math.sqrt(2) * row["standard_error"], ROUNDING)
    return (1 if difference > 0 else -1) if clear else 0


def _has_error(row: Row) -> bool:
    return row.get("standard_error") is not None


SETS = ("image", "text", "both")
SIZE_FIELDS = ("n", "d")
MODEL = "CLIP ViT-B/16 on COCO"  # that values are compared with below the table
ARROWS = {"lower": "↓", "higher": "↑"}

R = TypeVar("R", bound=Row)


def measurement_table(records: Sequence[Row], *, crossed: bool = True) -> Table:
    """The table of the records of a measurement.

    crossed: whether couples of three modalities or more are tables of modality × modality, rather than rows.
    """
    computed = [record for record in records if record["value"] is not None]
    of_couples = couples(computed) if crossed else []
    sizes = _sizes(computed)
    listing = numbers_table([record for record in computed if record not in of_couples], spare_n=bool(sizes))
    first: Row = records[0] if records else {}
    heading = [
        ", ".join(filter(None, (model_words(first), data_words(first)))),
        f"transformed before by: {first['maps']}" if first.get("maps") else "",
        "; ".join([f"pipeline: {pipeline_words(first.get('pipeline') or ())}", *sizes]),
        *listing.heading,
    ]
    scaled = [record for record in computed if record.get("scaling")]
    return Table(
        listing.columns,
        listing.groups,
        verdict=list(filter(None, [verdict(records)])),
        heading=list(filter(None, heading)),
        legend=list(_legend(computed)) if computed else ["no numbers"],
        notes=[*_notes_on_errors(computed), *_remarks_and_notes(records)],
        more=[*matrices(of_couples), *([_scaling_table(scaled)] if scaled else [])],
    )


def numbers_table(
    rows: Sequence[Row], explanations: Mapping[str, Explanation] = descriptions, *, spare_n: bool = False
) -> Table:
    """A row per number: groups of measures in their order, measures in that of the rows, then image, text, both.

    Several runs get a column of labels, which the heading explains. Each key of `at` that varies, n and d get a column.

    Args:
        rows: The records. Those without a value have an empty cell of it.
        explanations: Measure → its explanation.
        spare_n: Whether n may be left out on a narrow terminal.
    """
    found = runs(rows)
    several = len(found) > 1
    # a row that lacks a field does not make it vary
    varying_sizes = [name for name in SIZE_FIELDS if len({text for row in rows if (text := words(row, name))}) > 1]
    varying = [*places(rows), *varying_sizes]
    by_measure: dict[str, list[tuple[Row, list[str]]]] = {}
    for run in found:
        for row in run.rows:
            cells = [*([run.label] if several else []), *(words(row, name) for name in varying)]
            by_measure.setdefault(row["measure"], []).append((row, cells))
    groups: dict[str, list[list[str]]] = {}
    for name, members in by_measure.items():
        explanation = explain(name, explanations)
        group = "other" if explanation is None else explanation.group
        groups.setdefault(group, []).extend(_rows_of(name, members, explanation))
    sizes = {name: TableColumn(name, "number", spare=2 if spare_n and name == "n" else 0) for name in SIZE_FIELDS}
    columns = [
        TableColumn("measure", shared=True),
        TableColumn("set"),
        *([TableColumn("run")] if several else []),
        *(sizes.get(name, TableColumn(name)) for name in varying),
        TableColumn("value", "number"),
        TableColumn("null", "number"),
        TableColumn("", shared=True),
        TableColumn("direction", shared=True, spare=3),
        TableColumn("range", shared=True, spare=1),
    ]
    labels = [f"{run.label} = {run.heading}" for run in found] if several else []
    return Table(columns, {group: groups[group] for group in sorted(groups, key=group_order)}, heading=labels)


def _rows_of(name: str, members: Sequence[tuple[Row, list[str]]], explanation: Explanation | None) -> Iterator[list]:
    order = {modality: place for place, modality in enumerate(SETS)}
    near = [row.get(key) for row, _ in members for key in ("value", "null_value")]  # read beside each other
    unit = f" ({explanation.unit})" if explanation is not None and explanation.unit else ""
    hint = "" if explanation is None else about(explanation)
    measure = Cell(name + unit, full=title_of(name, explanation) + unit, hint=hint, of=explanation)
    arrow = direction = limits = ""
    if explanation is not None:
        first, _, rest = explanation.direction.partition(" ")  # "lower is more isotropic" as "↓" and "isotropic"
        arrow = ARROWS.get(first, "")
        direction = rest.removeprefix("is ").removeprefix("more ") if arrow else explanation.direction
        limits = " … ".join(map(bound, explanation.range))
    # sorting is stable: within a set, runs keep their order
    for row, cells in sorted(members, key=lambda member: order.get(_modality(member[0]), len(SETS))):
        value = "" if as_number(row.get("value")) is None else with_error(row, *near)
        null = to_error(row.get("null_value"), row.get("standard_error"), *near)
        yield [measure, _modality(row), *cells, Cell(value, of=row), null, arrow, direction, limits]


def _modality(row: Row) -> str:
    return str((row.get("at") or {}).get("modality") or "")


def couples(rows: Iterable[R]) -> list[R]:
    """The numbers of two of three modalities or more, where they are those of all rows."""
    at = ((row, row.get("at") or {}) for row in rows if row.get("value") is not None)
    return [row for row, place in at if place.keys() == {"modality"} and "+" in str(place["modality"])]


def names_of(rows: Iterable[Row]) -> list[str]:
    """The modalities of couples, in the order of their matrices."""
    return sorted({name for row in rows for name in row["at"]["modality"].split("+")})


def matrices(rows: Sequence[Row]) -> list[Table]:
    """A table of modality × modality for each measure: the value above the diagonal, the null value below it."""
    tables = []
    for measure in dict.fromkeys(row["measure"] for row in rows):
        members = [row for row in rows if row["measure"] == measure]
        names, cells = names_of(members), {}
        for row in members:
            first, second = sorted(row["at"]["modality"].split("+"))
            cells[first, second] = with_error(row, row.get("null_value"))
            cells[second, first] = to_error(row.get("null_value"), row.get("standard_error"), row["value"])
        lines = [[one, *(cells.get((one, other), "") for other in names)] for one in names]
        tables.append(Table([TableColumn(""), *(TableColumn(name, "number") for name in names)], {"": lines}, measure))
    return tables


def _scaling_table(records: Sequence[Row]) -> Table:
    """The values at n/8, n/4, n/2 and n items, and what to expect at full size."""
    full = next((record["expected"]["n"] for record in records if record.get("expected")), None)
    groups = dict.fromkeys(key for record in records for key in record["at"] if key != "modality")
    rows, unexpected = [], {}
    for record in records:
        sizes = [number(size["value"]) for size in record["scaling"]][-4:]
        expected = record.get("expected") or {}
        interval = [number(expected[key]) for key in ("value", "low", "high") if key in expected]
        text = "{} [{}, {}]".format(*interval) if interval else "-"
        at = [*(str(record["at"][key]) for key in groups), _modality(record)]
        rows.append([record["measure"], *at, *[""] * (4 - len(sizes)), *sizes, *([text] if full else [])])
        if "note" in expected:
            unexpected.setdefault(expected["note"], {})[record["measure"]] = None
    items = {record["scaling"][-1]["n"] for record in records}
    n = f"n = {items.pop()} items; " if len(items) == 1 else ""
    legend = [f"value by size: {n}below n the mean over random subsets, through the pipeline of all items"]
    if full:
        held = "an interval meant to hold 95%, which held 93% at 4 n and 88% at 8 n in trials (docs/null_value.md)"
        legend.append(f"at {full}: what a fit of the trend predicts, with {held}")
    notes = [f"at {full}, nothing is expected of {', '.join(each)}: {note}" for note, each in unexpected.items()]
    ends = ["n/8", "n/4", "n/2", "n", *([f"at {full}"] if full else [])]
    columns = [
        *map(TableColumn, ("measure", *groups, "set")),
        *(TableColumn(end, "number", spare=int(end == "n/8")) for end in ends),
    ]
    return Table(columns, {"": rows}, legend=legend, notes=notes)


def _sizes(records: Sequence[Row]) -> list[str]:
    """1000 image and 5000 text rows in 512 dimensions, where the records tell all of it; else the n and d of all."""
    alone = [record for record in records if "+" not in _modality(record) and _modality(record) != "both"]
    alone = [record for record in alone if getattr(explain(record["measure"]), "takes", "") == "rows"]
    counts = {_modality(record): record.get("n") for record in alone}
    dimensions = {record.get("d") for record in alone}
    whole = all(record["at"].keys() == {"modality"} for record in alone)
    if counts and whole and len(dimensions) == 1:
        rows = [f"{n} {modality}".removesuffix(" rows") for modality, n in counts.items()]
        return [f"{listed(rows)} rows in {dimensions.pop()} dimensions"]
    shared = {name: {record.get(name) for record in records} for name in SIZE_FIELDS}
    return [f"{name} = {values.pop()}" for name, values in shared.items() if len(values) == 1]


def _legend(records: Sequence[Row]) -> Iterator[str]:
    """What the columns and signs mean."""
    blocks = {record.get("jackknife_blocks") for record in records} - {None, 0}
    many = f", jackknife over {blocks.pop()} blocks of items; not shown where it is 0" if len(blocks) == 1 else ""
    if any(record.get("standard_error") is not None and record.get("low") is None for record in records):
        yield f"±: standard error{many}"
    if any(record.get("low") is not None for record in records):
        yield "[ ]: 95% interval of a share, over queries and items, with the pipeline as it was fitted"
    if any(record.get("null_value") is not None for record in records):
        yield "null: the same measure on an isotropic Gaussian of this n and d, through this pipeline"
    yield "↓ lower, ↑ higher is more isotropic, closer, … (clip-geometry list measures NAME says which)"
    if couples(records):
        yield "above the diagonal: the value of the couple; below it: its null value"
    if roles := roles_of(records):
        yield roles


def _notes_on_errors(records: Sequence[Row]) -> Iterator[str]:
    """How the numbers were made, which have no standard error and why, and those of a known model."""
    if not records:
        return
    first = records[0]
    if first.get("streamed"):
        engine = first.get("engine")
        yield "rows were streamed: " + (
            f"engine {engine}" if engine else f"in float64 they take more than {LARGE / 1e6:.3g} MB"
        )
    by_default, maps = first.get("pipeline") == ["normalize"], any(record.get("maps") for record in records)
    if by_default and not maps and (known := values_of(MODEL, [record["measure"] for record in records])):
        yield f"for comparison, {MODEL} (500 pairs): {known} (the page of measures has other models)"
    reasons = (_without_error(record) for record in records if record.get("standard_error") is None)
    yield from (f"no ± where {reason}" for reason in dict.fromkeys(filter(None, reasons)))
    if maps:
        yield (
            "null and ±: the map is taken as given; if it was fitted on these rows, measure --pipeline tells what "
            "fitting alone gives"
        )
    if maps and by_default:
        yield "rows were made unit length after the map; --raw takes them as it left them"


def _without_error(record: Row) -> str:
    """Why a number has no standard error; "" where none was asked for."""
    blocks, measure = record.get("jackknife_blocks"), explain(record["measure"])
    if not blocks or measure is None:
        return ""
    if not measure.smooth:
        return "no standard error of the measure can be trusted (list measures says why)"
    if record.get("streamed"):
        return "rows are streamed: measures of moments and sums have it, after steps that learn nothing"
    if measure.quadratic and (record.get("n") or 0) > QUADRATIC_ROWS:
        return f"time grows with n² and there are more than {QUADRATIC_ROWS} rows"
    return f"the rows are too few for {blocks} blocks; --blocks takes fewer"


def _remarks_and_notes(records: Sequence[Row]) -> Iterator[str]:
    """Remarks on the sets, each once with its groups; then notes on numbers, each once with its measures."""
    groups: dict[str, dict[str, None]] = {}
    notes: dict[tuple[str, str], dict[str, None]] = {}
    for record in records:
        group = " ".join(str(value) for key, value in record["at"].items() if key != "modality")
        for remark in record.get("remarks", ()):
            groups.setdefault(remark, {})[group] = None
        if record.get("note"):
            missing = record["value"] is None
            place = f" of {' '.join(map(str, record['at'].values()))}" if record["at"] else ""
            key = "not computed: " if missing else "", f"{place}: {record['note']}"
            notes.setdefault(key, {})[record["measure"]] = None
    for remark, names in groups.items():
        yield f"remark{f' on {listed(names)}' if any(names) else ''}: {remark}"
    for (begin, end), names in notes.items():
        yield f"{begin}{', '.join(names)}{end}"
