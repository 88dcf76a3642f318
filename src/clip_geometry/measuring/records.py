"""Records of sets: the measures that were asked for, each in every place where it can be taken."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from clip_geometry.geometry import Measure, by_group, measures
from clip_geometry.geometry.distances.nearest import keeping_lists
from clip_geometry.geometry.statistics import Moments
from clip_geometry.measuring.sets import MeasuredSets, NoSuchNumber, call_of
from clip_geometry.registry import InputError, parts, unknown
from clip_geometry.results import Row
from clip_geometry.rows.threads import side_by_side

# what a first look needs, as it is read; all but retrieval in O(n)
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
ALL = "all"  # in place of names: the core and all default measures
MOST_WORK = 2e11  # multiplications of all couples in one O(n²) measure: about a minute for the core on two cores


def names_to_measure(names: Sequence[str] | str | None) -> tuple[list[str], bool]:
    """The measures to take, and whether what cannot be measured is left out with a note.

    names: of measures, or of evaluators for all of their numbers; None for the core, `ALL` for it and all default
    measures.
    """
    if names is None:
        return list(CORE), True
    if names == ALL:
        return list(dict.fromkeys([*(each.name for each in by_group()), *CORE])), True
    given = parts(names) if isinstance(names, str) else [*filter(None, map(str.strip, names))]
    if not given:
        raise InputError("measures is empty; give names, comma-separated, or leave it out for the core")
    return [each.name for each in named(given)], False


def named(names: Iterable[str]) -> list[Measure]:
    """Measures and numbers of evaluators; the name of an evaluator stands for all of its numbers."""
    numbers: dict[str, list[Measure]] = {}
    for measure in measures.values():
        numbers.setdefault(measure.evaluator or measure.name, []).append(measure)
    found: dict[str, Measure] = {}
    for name in names:
        if name not in measures and name not in numbers:
            evaluator = [each.name for each in numbers.get(name.partition(".")[0], ())]
            known, what = (evaluator, "evaluators") if evaluator else ([*measures, *numbers], "measures")
            raise unknown("measure", name, known, f"clip-geometry list {what}")
        for each in numbers.get(name) or [measures[name]]:
            found[each.name] = each
    return list(found.values())


def measure_sets(
    sets: MeasuredSets,
    names: Sequence[str] | None,
    advance: Callable[[int], object] = lambda done: None,
    *,
    optional: bool = False,
) -> Iterator[Row]:
    """Measures sets, each measure in every place where it can be taken.

    Args:
        sets: The sets after their pipeline.
        names: Names of measures and evaluators, or None for all default measures. A named one that cannot be taken
            raises InputError; an unnamed one gives a record without a value, whose `note` says why.
        advance: Called with the number of measures that were just taken.
        optional: Whether measures of `names` count as unnamed, as the `CORE` does.

    Returns:
        An iterator over records with measure, value, standard_error, null_value, n, d and at.

    Raises:
        InputError: A name is unknown, or a named measure cannot be taken.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> sets = {"image": cg.Embeddings(image, "image"), "text": cg.Embeddings(text + 1, "text")}
        >>> measured = cg.MeasuredSets(sets, cg.parse_pipeline("normalize"))
        >>> [(row["at"], round(row["value"], 3)) for row in cg.measure_sets(measured, ["isoscore"])]
        [({'modality': 'image'}, 0.919), ({'modality': 'text'}, 0.889)]
    """
    chosen = by_group() if names is None else named(names)
    groups: dict[Any, list[Measure]] = {}  # that share a statistic, or a call
    for measure in chosen:
        shared = (measure.statistic, measure.takes) if measure.statistic else call_of(measure)
        groups.setdefault(shared, []).append(measure)

    def rows_of(group: Sequence[Measure]) -> dict[str, list[Row]]:
        found = {}
        for measure in group:
            found[measure.name] = rows_or_notes(sets, measure, named=names is not None and not optional)
        sets.forget(group[0].statistic)
        return found

    if sets.small:
        _ = sets.null, sets.items.can_be_dealt and sets.items.block_of  # once, before threads would do so twice
    rows: dict[str, list[Row]] = {}
    with keeping_lists():
        for found in (side_by_side if sets.small else map)(rows_of, list(groups.values())):
            rows |= found
            advance(len(found))
    for measure in chosen:
        yield from rows[measure.name]


def rows_or_notes(sets: MeasuredSets, measure: Measure, *, named: bool) -> list[Row]:
    """The measure's rows; where it cannot be taken, a row with a note instead of a value, unless it was named."""
    try:
        if not named:
            _require_affordable(sets, measure)
        places = sets.places(measure)
    except InputError as error:
        if named:
            raise
        return [_note(measure, {}, error)]
    rows = []
    for place in places:
        try:
            rows.append(sets.row(measure, place))
        except InputError as error:
            note = _note(measure, {"modality": place}, error)
            # one couple of several may fail, and so may one number of an evaluator that was named for all of them
            if named and not isinstance(error, NoSuchNumber) and len(sets.rows) < 3:
                raise InputError(f"{measure.name}, {place}: {note['note']}") from None
            rows.append(note)
    if named and len(sets.rows) > 2 and all(row["value"] is None for row in rows):
        raise InputError(f"{measure.name}, {rows[0]['at']['modality']}: {rows[0]['note']}")
    return rows


def _require_affordable(sets: MeasuredSets, measure: Measure) -> None:
    """Raises InputError where a measure is taken only if it is named: it takes minutes, or an engine cannot run it."""
    if sets.engine is not None and not (measure.aggregated or measure.statistic is Moments):
        needs = "no function of moments and class sums, which the engine takes"
        raise InputError(f"{needs}; without --engine it is taken here")
    if not measure.quadratic:
        return
    anyway = "named in --measures it is taken all the same"
    if sets.streamed and measure.streams:
        raise InputError(f"time grows with n² and the rows are streamed; {anyway}")
    work, couples = 0, sets.couples.values()
    for one, other in couples if measure.inputs.across else ():
        work += len(sets.embeddings[one]) * len(sets.embeddings[other]) * sets.embeddings[one].dim
    if work > MOST_WORK:
        rows_of = f"{len(couples)} couples of these sizes" if len(couples) > 1 else "sets of these sizes"
        raise InputError(f"time grows with n², and is minutes for {rows_of}; {anyway}")


def _note(measure: Measure, at: Mapping[str, Any], error: InputError) -> Row:
    note = str(error).removeprefix(f"{measure.name} ")
    return {"measure": measure.name, "value": None, "note": note, "at": dict(at)}
