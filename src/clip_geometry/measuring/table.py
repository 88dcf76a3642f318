"""The table of a measurement: its numbers, a verdict, and the meaning of its columns."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from clip_geometry.catalog import descriptions
from clip_geometry.display.explained import Explanation, explain, group_order, title_of, values_of
from clip_geometry.display.numbers import as_number, bound, brief, number, percent, to_error, with_error
from clip_geometry.display.origin import Row, data_words, model_words, pipeline_words, places, runs, words
from clip_geometry.display.table import Cell, Table, TableColumn
from clip_geometry.display.words import listed
from clip_geometry.embeddings import LARGE
from clip_geometry.measuring.sets import QUADRATIC_ROWS
from clip_geometry.modalities import plural

# measures for a first look, in reading order; all but retrieval are O(n)
CORE = (
    "average_cosine",
    "isoscore[unbiased]",
    "modality_gap",
    "relative_modality_gap",
    "modality_silhouette[cosine]",
    "matching_cosine",
    "random_cosine",
    "retrieval.image_to_text.r_at_1",
    "retrieval.text_to_image.r_at_1",
    "retrieval[mixed].image.same_modality_at_10",
    "retrieval[mixed].text.same_modality_at_10",
    "retrieval[mixed].image_to_text.r_at_1",
    "retrieval[mixed].text_to_image.r_at_1",
    "silhouette[cosine]",
)
SETS = ("image", "text", "both")
SIZE_FIELDS = ("n", "d")
MODEL = "CLIP ViT-B/16 on COCO"  # its values are shown below the table for comparison
ARROWS = {"lower": "↓", "higher": "↑"}

RowType = TypeVar("RowType", bound=Row)


def measurement_table(records: Sequence[Row], *, crossed: bool = True) -> Table:
    """Return the table of the records of a measurement.

    With `crossed`, couples of three modalities or more become tables of modality × modality instead of rows.
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
    """Return a table with one row per number.

    Groups of measures are in the order of the catalog, measures in the order of the rows, and sets in the order image,
    text, both. Several runs get a column of labels, which the heading explains. Keys of `at` that vary get a column,
    and so do n and d if they vary.

    Args:
        rows: The records. The value cell of records without a value is empty.
        explanations: Maps measures to their explanations.
        spare_n: Whether n may be left out on a narrow terminal.
    """
    all_runs = runs(rows)
    varying = places(rows)
    for name in SIZE_FIELDS:
        if len({words(row, name) for row in rows} - {""}) > 1:  # rows that lack a field do not make it vary
            varying.append(name)
    by_measure: dict[str, list[tuple[Row, list[str]]]] = {}
    for run in all_runs:
        for row in run.rows:
            cells = [run.label] if len(all_runs) > 1 else []
            cells += [words(row, name) for name in varying]
            by_measure.setdefault(row["measure"], []).append((row, cells))
    groups: dict[str, list[list[str]]] = {}
    for name, members in by_measure.items():
        explanation = explain(name, explanations)
        group = "other" if explanation is None else explanation.group
        groups.setdefault(group, []).extend(_rows_of(name, members, explanation))
    columns = [TableColumn("measure", shared=True), TableColumn("set")]
    columns += [TableColumn("run")] if len(all_runs) > 1 else []
    for name in varying:
        size = TableColumn(name, "number", spare=2 if spare_n and name == "n" else 0)
        columns.append(size if name in SIZE_FIELDS else TableColumn(name))
    columns += [
        TableColumn("value", "number"),
        TableColumn("null", "number"),
        TableColumn("", shared=True),
        TableColumn("direction", shared=True, spare=3),
        TableColumn("range", shared=True, spare=1),
    ]
    labels = [f"{run.label} = {run.heading}" for run in all_runs] if len(all_runs) > 1 else []
    return Table(columns, {group: groups[group] for group in sorted(groups, key=group_order)}, heading=labels)


def _rows_of(name: str, members: Sequence[tuple[Row, list[str]]], explanation: Explanation | None) -> Iterator[list]:
    """Yield the table rows of one measure: name, set, other columns, value, null value, direction and range."""
    near = []  # numbers that are shown next to each other
    for row, _ in members:
        near += [row.get("value"), row.get("null_value")]
    unit = hint = arrow = direction = limits = ""
    if explanation is not None:
        unit = f" ({explanation.unit})" if explanation.unit else ""
        hint = f"{explanation.title}: {explanation.summary} {explanation.reading}"
        # splits "lower is more isotropic" into "↓" and "isotropic"
        first, _, rest = explanation.direction.partition(" ")
        arrow = ARROWS.get(first, "")
        direction = rest.removeprefix("is ").removeprefix("more ") if arrow else explanation.direction
        limits = " … ".join(map(bound, explanation.range))
    measure = Cell(name + unit, full=title_of(name, explanation) + unit, hint=hint, of=explanation)
    # sorting is stable, so runs keep their order within a set
    for row, cells in sorted(members, key=lambda member: (*SETS, set_of(member[0])).index(set_of(member[0]))):
        value = "" if as_number(row.get("value")) is None else with_error(row, *near)
        null = to_error(row.get("null_value"), row.get("standard_error"), *near)
        yield [measure, set_of(row), *cells, Cell(value, of=row), null, arrow, direction, limits]


def set_of(row: Row) -> str:
    """Return the set or the couple of sets that a number belongs to."""
    return str((row.get("at") or {}).get("modality") or "")


def couples(rows: Iterable[RowType]) -> list[RowType]:
    """Return the numbers of couples among three modalities or more, if they are not of groups."""
    of_couples = []
    for row in rows:
        ungrouped = (row.get("at") or {}).keys() == {"modality"}
        if ungrouped and "+" in set_of(row) and row.get("value") is not None:
            of_couples.append(row)
    return of_couples


def names_of(rows: Iterable[Row]) -> list[str]:
    """Return the modalities of couples, in the order of the axes of their matrices."""
    return sorted({name for row in rows for name in set_of(row).split("+")})


def matrices(rows: Sequence[Row]) -> list[Table]:
    """Return a table of modality × modality per measure, with values above the diagonal and null values below it."""
    tables = []
    for measure in dict.fromkeys(row["measure"] for row in rows):
        members = [row for row in rows if row["measure"] == measure]
        names = names_of(members)
        cells = {}
        for row in members:
            first, second = sorted(set_of(row).split("+"))
            cells[first, second] = with_error(row, row.get("null_value"))
            cells[second, first] = to_error(row.get("null_value"), row.get("standard_error"), row["value"])
        lines = [[one, *(cells.get((one, other), "") for other in names)] for one in names]
        tables.append(Table([TableColumn(""), *(TableColumn(name, "number") for name in names)], {"": lines}, measure))
    return tables


def _scaling_table(records: Sequence[Row]) -> Table:
    """Return the values at n/8, n/4, n/2 and n items, and the values to expect at full size."""
    full = next((record["expected"]["n"] for record in records if record.get("expected")), None)
    groups = list(dict.fromkeys(key for record in records for key in record["at"] if key != "modality"))
    rows = []
    unexpected: dict[str, dict[str, None]] = {}  # why no value can be expected → measures
    for record in records:
        sizes = [number(size["value"]) for size in record["scaling"]][-4:]
        expected = record.get("expected") or {}
        row = [record["measure"], *(str(record["at"][key]) for key in groups), set_of(record)]
        row += [""] * (4 - len(sizes)) + sizes
        if "value" in expected:
            row.append("{} [{}, {}]".format(*(number(expected[key]) for key in ("value", "low", "high"))))
        elif full:
            row.append("-")
            unexpected.setdefault(expected["note"], {})[record["measure"]] = None
        rows.append(row)
    items = {record["scaling"][-1]["n"] for record in records}
    n = f"n = {items.pop()} items; " if len(items) == 1 else ""
    legend = [f"value by size: {n}below n, the mean over random subsets, with the pipeline fitted on all items"]
    if full:
        interval = "an interval meant to cover 95%, which covered 93% at 4 n and 88% at 8 n in trials"
        legend.append(f"at {full}: the prediction of a fit of the trend, with {interval} (docs/null_value.md)")
    notes = [f"at {full}, no value is expected for {', '.join(names)}: {note}" for note, names in unexpected.items()]
    columns = list(map(TableColumn, ("measure", *groups, "set")))
    for end in ("n/8", "n/4", "n/2", "n", *([f"at {full}"] if full else [])):
        columns.append(TableColumn(end, "number", spare=int(end == "n/8")))
    return Table(columns, {"": rows}, legend=legend, notes=notes)


def _sizes(records: Sequence[Row]) -> list[str]:
    """Return "1000 image and 5000 text rows in 512 dimensions" if the records say all of it, else the n and d they
    share."""
    counts, dimensions = {}, set()
    grouped = False
    for record in records:
        if getattr(explain(record["measure"]), "takes", "") == "rows" and set_of(record) != "both":
            counts[set_of(record)] = record.get("n")
            dimensions.add(record.get("d"))
            grouped = grouped or record["at"].keys() != {"modality"}
    if not grouped and len(dimensions) == 1:
        rows = [f"{n} {modality}".removesuffix(" rows") for modality, n in counts.items()]
        return [f"{listed(rows)} rows in {dimensions.pop()} dimensions"]
    shared = {name: {record.get(name) for record in records} for name in SIZE_FIELDS}
    return [f"{name} = {values.pop()}" for name, values in shared.items() if len(values) == 1]


# --- below the table


def _legend(records: Sequence[Row]) -> Iterator[str]:
    """Explain the columns and signs."""
    blocks = {record.get("jackknife_blocks") for record in records} - {None, 0}
    jackknife = f", jackknife over {blocks.pop()} blocks of items; not shown where it is 0" if len(blocks) == 1 else ""
    if any(record.get("standard_error") is not None and record.get("low") is None for record in records):
        yield f"±: standard error{jackknife}"
    if any(record.get("low") is not None for record in records):
        yield "[ ]: 95% interval of a share, over queries and items, with the pipeline as it was fitted"
    if any(record.get("null_value") is not None for record in records):
        yield "null: the same measure on an isotropic Gaussian of this n and d, through this pipeline"
    yield "↓ lower, ↑ higher is more isotropic, closer, … (clip-geometry list measures NAME says which)"
    if couples(records):
        yield "above the diagonal: the value of the couple; below it: its null value"
    # explain "image" and "text" in the name of a measure if the sets have other names
    across = {set_of(record) for record in records if "image" in record["measure"] or "text" in record["measure"]}
    named = sorted(place.split("+") for place in across if "+" in place)
    named += [sorted({set_of(record) for record in records} - {"both", ""})] if "both" in across else []
    others = [couple for couple in named if len(couple) == 2 and couple != ["image", "text"]]
    if others:
        first, second = others[0]
        yield (
            "image and text in the name of a measure mean the first and the second set: "
            f"for {first}+{second}, {first} and {second}"
        )


def _notes_on_errors(records: Sequence[Row]) -> Iterator[str]:
    """Say how the numbers were computed, which have no standard error and why, and what a known model has."""
    if not records:
        return
    first = records[0]
    if first.get("streamed"):
        reason = f"in float64 they take more than {LARGE / 1e6:.3g} MB"
        yield f"rows were streamed: {'engine ' + first['engine'] if first.get('engine') else reason}"
    default_pipeline = first.get("pipeline") == ["normalize"]
    maps = any(record.get("maps") for record in records)
    if default_pipeline and not maps:
        of_model = values_of(MODEL, [record["measure"] for record in records])
        if of_model:
            yield f"for comparison, {MODEL} (500 pairs): {of_model} (the page of measures has other models)"
    reasons = (_without_error(record) for record in records if record.get("standard_error") is None)
    yield from (f"no ± where {reason}" for reason in dict.fromkeys(filter(None, reasons)))
    if maps:
        yield (
            "null and ±: the map is taken as given; if it was fitted on these rows, measure --pipeline shows the "
            "effect of fitting alone"
        )
    if maps and default_pipeline:
        yield "rows were made unit length after the map; --raw measures them as the map left them"


def _without_error(record: Row) -> str:
    """Return why a number has no standard error; "" if none was requested."""
    blocks = record.get("jackknife_blocks")
    measure = explain(record["measure"])
    if not blocks or measure is None:
        return ""
    if not measure.smooth:
        return "no standard error of the measure can be trusted (list measures says why)"
    if record.get("streamed"):
        return "rows are streamed: only measures of moments and sums have it, after steps that fit nothing"
    if measure.quadratic and (record.get("n") or 0) > QUADRATIC_ROWS:
        return f"time grows with n² and there are more than {QUADRATIC_ROWS} rows"
    return f"there are too few rows for {blocks} blocks; give fewer with --blocks"


def _remarks_and_notes(records: Sequence[Row]) -> Iterator[str]:
    """Yield remarks on the sets, each once with its groups, then notes on numbers, each once with its measures."""
    groups: dict[str, dict[str, None]] = {}
    notes: dict[tuple[str, str], dict[str, None]] = {}
    for record in records:
        group = " ".join(str(value) for key, value in record["at"].items() if key != "modality")
        for remark in record.get("remarks", ()):
            groups.setdefault(remark, {})[group] = None
        if record.get("note"):
            prefix = "not computed: " if record["value"] is None else ""
            place = f" of {' '.join(map(str, record['at'].values()))}" if record["at"] else ""
            notes.setdefault((prefix, f"{place}: {record['note']}"), {})[record["measure"]] = None
    for remark, names in groups.items():
        yield f"remark{f' on {listed(names)}' if any(names) else ''}: {remark}"
    for (prefix, suffix), names in notes.items():
        yield f"{prefix}{', '.join(names)}{suffix}"


# --- the verdict above it

CONE = 0.2  # average cosine above which rows are said to sit in a cone
NO_CONE = 0.8  # 1 − average cosine; below this, the gap expected by chance is clearly smaller than the null value
# IsoScore relative to its null value: below FAR it is far from isotropic, above NEAR practically isotropic
FAR, NEAR = 0.5, 0.95
SEPARATED = 0.9  # share of a query's own modality among its ten nearest neighbors
ROUNDING = 1e-9  # values that differ by less count as equal
CLEAR = 2.0  # standard errors above which a difference is claimed
RowsByMeasure = Mapping[str, Mapping[str, Row]]  # measure → place → row


def verdict(rows: Sequence[Row]) -> str:
    """Return what the numbers say together.

    Differences of less than two standard errors are called none, and nothing is claimed about numbers without a
    standard error.

    Args:
        rows: Records of one table, including those without a value.

    Returns:
        Sentences on cones and isotropy, on the gap, and on pairs, as far as there are numbers for them. Empty if the
        core was not measured, or for groups.
    """
    if not set(CORE) <= {row["measure"] for row in rows} or any(row["at"].keys() - {"modality"} for row in rows):
        return ""
    by_measure: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.get("value") is not None and row.get("null_value") is not None:
            by_measure.setdefault(row["measure"], {})[set_of(row)] = row
    sentences = filter(
        None, (_sentence_on_sets(by_measure), _sentence_on_gaps(by_measure), _sentence_on_pairs(by_measure))
    )
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences)


def _sentence_on_sets(by_measure: RowsByMeasure) -> str:
    """Say whether the rows of each set lie in a cone and how isotropic they are."""
    sentences = []
    for measure in ("average_cosine", "isoscore[unbiased]"):
        shapes: dict[str, list[str]] = {}
        for place, row in by_measure.get(measure, {}).items():
            value, null = row["value"], row["null_value"]
            direction = _from_null(row)
            if measure == "average_cosine":
                if value <= 0 or direction != 1:
                    shape = "sit in no cone"
                else:
                    shape = "lean slightly to one side" if value < CONE else "sit in a cone"
            elif value >= NEAR * null or direction != -1:
                shape = "as even as that of isotropic rows, or nearly so"
            else:
                shape = "far from isotropic" if value < FAR * null else "not isotropic"
            if direction is not None:
                shapes.setdefault(shape, []).append(place)
        for shape, names in shapes.items():
            rows = "the rows" if len(by_measure[measure]) == 1 else f"{listed(names)} rows"
            values = listed(brief(by_measure[measure][name]["value"]) for name in names)
            if measure == "average_cosine":
                predicate = shape.replace("a cone", "cones") if len(names) > 1 else shape
                sentences.append(f"{rows} {predicate} (average cosine {values}; isotropic rows have 0)")
            else:
                sentences.append(f"the variance of {rows} is {shape} (IsoScore {values} of 1)")
    return "; ".join(sentences)


def _sentence_on_gaps(by_measure: RowsByMeasure) -> str:
    """Say how far apart the means of the modalities are, compared with chance."""
    gaps: dict[str, Row] = {}
    for place, row in by_measure.get("modality_gap", {}).items():
        # the gap that chance gives two samples of these rows with a common mean: the null value, which assumes rows
        # without a common direction, times √(1 − average cosine)
        cosines = [by_measure.get("average_cosine", {}).get(name) for name in _modalities(place, by_measure)]
        values = [cosine["value"] for cosine in cosines if cosine is not None]
        spread = 1 - max(0.0, sum(values) / len(values)) if values else 1.0
        chance = "by chance" if spread > NO_CONE else "by chance in such cones"
        gaps[place] = {**row, "null_value": row["null_value"] * math.sqrt(spread), "chance": chance}
    if len(gaps) < 2:
        return "; ".join(_sentence_on_one_gap(place, gap, by_measure) for place, gap in gaps.items())
    ends = []
    for end in (min, max):
        place = end(gaps, key=lambda place: gaps[place]["value"])
        ends.append(f"{brief(gaps[place]['value'])} ({listed(_modalities(place, by_measure))})")
    summary = f"The means of the modalities are {ends[0]} to {ends[1]} apart"
    unclear = [listed(_modalities(place, by_measure)) for place, gap in gaps.items() if _from_null(gap) in (0, -1)]
    if not unclear:
        return summary
    if len(unclear) == len(gaps):
        return f"{summary}, none clearly further than by chance"
    return f"{summary}; the gap between {', or '.join(unclear)} is not clearly larger than by chance"


def _sentence_on_one_gap(place: str, gap: Row, by_measure: RowsByMeasure) -> str:
    """Describe the gap between two modalities, and how often a query's neighbors are of its own modality."""
    names = _modalities(place, by_measure)
    direction = _from_null(gap)
    modalities = "the modalities" if place == "both" else listed(names)
    value, null = brief(gap["value"]), brief(gap["null_value"])
    chance = f"{gap['chance']}: {null}"
    sentence = f"A gap lies between {modalities}: their means are {value} apart ({chance})"
    if direction is None:
        sentence = f"The means of {modalities} are {value} apart ({chance})"
    elif direction != 1:
        sentence = (
            f"No gap shows: the means of {modalities} are no further apart than by chance ({value} against {null})"
        )
    shares = []
    for role in ("image", "text"):
        row = by_measure.get(f"retrieval[mixed].{role}.same_modality_at_10", {}).get(place)
        if row is not None:
            shares.append(row)
    if len(shares) < 2:
        return sentence
    texts = [percent(row["value"]) for row in shares]
    share = " and ".join(f"{text} ({name} queries)" for text, name in zip(texts, names, strict=True))
    ten = f"{texts[0] if texts[0] == texts[1] else share} of a query's 10 nearest rows are of its own modality"
    if direction == 1 and all(row["value"] >= SEPARATED > row["null_value"] for row in shares):
        return f"{sentence}; it separates them in a mixed index, where {ten}"
    if all(_from_null(row) == 0 for row in shares):
        return f"{sentence}; a mixed index is about even: {ten}"
    return f"{sentence}; in a mixed index {ten}"


def _sentence_on_pairs(by_measure: RowsByMeasure) -> str:
    """Say whether pairs are closer than random pairs; "" if there is not exactly one couple of modalities."""
    matching, random = (list(by_measure.get(name, {}).items()) for name in ("matching_cosine", "random_cosine"))
    if len(matching) != 1 or len(random) != 1:
        return ""
    place, of_pairs = matching[0]
    _, of_random = random[0]
    cosine, random_cosine = brief(of_pairs["value"]), brief(of_random["value"])
    errors = [row["standard_error"] for row in (of_pairs, of_random) if row.get("standard_error") is not None]
    if len(errors) < 2:
        return f"Pairs have cosine {cosine} and random ones {random_cosine}"
    cosines = f"(cosine {cosine} against {random_cosine})"
    if of_pairs["value"] - of_random["value"] <= max(CLEAR * math.hypot(*errors), ROUNDING):
        return f"Pairs are not closer than random ones by two standard errors {cosines}"
    sentence = f"Pairs are closer than random ones {cosines}"
    ways = [by_measure.get(f"retrieval.{way}.r_at_1", {}).get(place) for way in ("image_to_text", "text_to_image")]
    shares = [percent(row["value"]) for row in ways if row is not None]
    if len(shares) < 2:
        return sentence
    first, second = map(plural, _modalities(place, by_measure))
    return f"{sentence} and come first for {shares[0]} of {first} and {shares[1]} of {second}"


def _modalities(place: str, by_measure: RowsByMeasure) -> list[str]:
    """Return the modalities of a couple, in the order in which measures take them."""
    return sorted(by_measure.get("average_cosine", ("image", "text"))) if place == "both" else place.split("+")


def _from_null(row: Row) -> int | None:
    """Return 1 if the value is clearly above its null value, −1 if clearly below it, and 0 otherwise.

    The null value is a single draw, which is assumed to have the same standard error. Without a standard error, return
    None.
    """
    difference = row["value"] - row["null_value"]
    error = row.get("standard_error")
    if error is None:
        return None
    if abs(difference) <= max(CLEAR * math.sqrt(2) * error, ROUNDING):
        return 0
    return 1 if difference > 0 else -1
