"""Embeddings in, records out: the measures that were asked for, each in every place where it can be taken."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clip_geometry.embeddings import naming_files
from clip_geometry.geometry import Measure, by_group
from clip_geometry.geometry import measures as known_measures
from clip_geometry.geometry.distances.nearest import keeping_lists
from clip_geometry.geometry.statistics import Moments
from clip_geometry.geometry.uncertainty import BLOCKS
from clip_geometry.measuring.given import given_sets, split_by
from clip_geometry.measuring.measurement import Measurement
from clip_geometry.measuring.scaling import add_scaling
from clip_geometry.measuring.sets import MeasuredSets, NoSuchNumber, call_of
from clip_geometry.measuring.table import CORE
from clip_geometry.progress import Progress, quiet
from clip_geometry.registry import InputError, instance, parts, unknown
from clip_geometry.results import Record, Row
from clip_geometry.rows.arguments import RowError, flag, seed_number, whole_number
from clip_geometry.rows.threads import side_by_side
from clip_geometry.steps import Step, parse_pipeline

if TYPE_CHECKING:
    from clip_geometry.embedding.engines import Engine

DEFAULT_STEPS = "normalize"
ALL = "all"  # in place of names: the core and all default measures
MOST_WORK = 2e11  # multiplications of all couples in one O(n²) measure: about a minute for the core on two cores


def measure(
    image: Any,
    text: Any = None,
    *more: Any,
    labels: Any = None,
    ids: Any = None,
    pipeline: str | Sequence[str | Step] | None = DEFAULT_STEPS,
    measures: str | Sequence[str] | None = None,
    by: str | None = None,
    seed: int = 0,
    blocks: int | None = None,
    engine: "Engine | None" = None,
    scaling: bool = False,
    full_size: int | None = None,
    progress: Progress = quiet,
) -> Measurement:
    """Measures one or several sets of embeddings, as `clip-geometry measure` does.

    A set is a matrix (n, d) of floats (a NumPy array, a torch tensor, a pandas table, a list of lists), `Embeddings`,
    or a path as for `read`. Rows of two sets belong together where their ids agree; sets of equal length without
    ids pair by position, whatever the index of a pandas table.

    Args:
        image: The first set; or all sets, as a mapping of modality → set, or as a folder with several.
        text: The second set. What `Embeddings` and files say of their modality takes precedence over the order. A
            single array is called "rows".
        more: Further sets, each of which says its modality. A mapping is the way to name arrays.
        labels: One label per row, or a path to them. A single sequence goes to all sets of its length; a mapping of
            modality → labels tells sets apart.
        ids: The item of each row, or a path as for labels. A single sequence goes to all sets; a mapping of modality →
            ids tells sets apart.
        pipeline: The steps before measuring, such as "normalize,center[each]"; by default rows are made unit length.
            "" or None measures them as given.
        measures: Names of measures and evaluators, as a list or comma-separated. None for the core: a dozen numbers and
            a verdict on them; "all" for it and all default measures.
        by: "label" or a metadata column of the sets; each of its values is measured separately.
        seed: Seed of the null values and of the jackknife.
        blocks: Number of jackknife blocks behind the standard errors, 0 for none; default: 20 where there are as many
            items.
        engine: Of `open_engine`, to read large sets on a cluster.
        scaling: Take the measures that depend on n at n/2, n/4 and n/8 items, too: columns of `frame`, and
            `scaling` of each record. The pipeline stays as it was fitted on all items.
        full_size: Number of items of the set that these are a sample of, which implies `scaling`. The numbers that
            depend on n then say what to expect there, where a fit of the trend supports it.
        progress: Shows the progress over measures, such as `clip_geometry.progress.progress`.

    Returns:
        A `Measurement`: a number for each measure and set, with its standard error and its null value.

    Raises:
        InputError: A set, a column, a step or a name is not as described, or a named measure cannot be taken.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> result = cg.measure(image, text + 1, measures=["isoscore", "modality_gap"])
        >>> value, error, null = result["isoscore", "image"]
        >>> round(value, 3), round(error, 3), round(null, 3)
        (0.919, 0.024, 0.901)
        >>> result.frame[["measure", "set", "value", "n", "d"]].round(3)
                measure    set  value    n  d
        0      isoscore  image  0.919  100  8
        1      isoscore   text  0.889  100  8
        2  modality_gap   both  0.759  200  8
        >>> list(cg.measure({"audio": image, "text": text, "video": text + 1}, measures="cka").frame["set"])
        ['audio+text', 'audio+video', 'text+video']
    """
    seed, blocks = seed_number(seed), None if blocks is None else whole_number(blocks, "blocks", least=0)
    full_size = None if full_size is None else whole_number(full_size, "full_size")
    instance(by, str | None, "by", '"label" or the name of a column')
    instance(progress, Callable, "progress", "a function")
    flag(scaling, "scaling")
    steps = parse_pipeline("" if pipeline is None else pipeline)
    names, optional = names_to_measure(measures)
    sets = given_sets(image, text, *more, labels=labels, ids=ids)
    if full_size is not None and by is not None:
        raise InputError("a full size and groups of rows were both given; measure each group as a set of its own")
    dealt = BLOCKS if blocks is None else blocks
    groups = [({}, sets)] if by is None else [({by: value}, part) for value, part in split_by(sets, by)]
    records = []
    with naming_files(sets), progress("measures", len(groups) * len(names)) as advance:
        for at, part in groups:
            try:
                measured = MeasuredSets(part, steps, seed=seed, blocks=dealt, engine=engine)
                if blocks and not 2 <= blocks <= len(measured.items):  # rather than a table without standard errors
                    most = f"the number of items, which is {len(measured.items)}"
                    raise InputError(f"blocks is {blocks}; expected 0 or from 2 to {most}")
                shared, remarks = measured.context(), measured.remarks()
                rows = list(measure_sets(measured, names, advance, optional=optional))
                if scaling or full_size is not None:
                    add_scaling(measured, rows, full_size)
            except InputError as error:
                if not at or isinstance(error, RowError):  # a row is named by its file, in which rows are counted
                    raise
                (value,) = at.values()
                raise InputError(f"in the group of {by} {value}: {error}") from None
            shared |= {"remarks": remarks} if remarks else {}
            for row in rows:
                records.append(Record.of({**shared, **row, "at": {**at, **row["at"]}}))
    return Measurement(records)


def names_to_measure(names: Sequence[str] | str | None) -> tuple[list[str], bool]:
    """The measures to take, and whether what cannot be measured is left out with a note.

    names: of measures, or of evaluators for all of their numbers; None for the core, `ALL` for it and all default
    measures.
    """
    if names is None:
        return list(CORE), True
    if isinstance(names, str) and names == ALL:
        return list(dict.fromkeys([*(each.name for each in by_group()), *CORE])), True
    several = [names] if isinstance(names, str) else [*instance(names, Iterable, "measures", "names of measures")]
    given = [part for name in several for part in parts(instance(name, str, "a name in measures", "text"))]
    if not given:
        raise InputError("measures is empty; give names, comma-separated, or leave it out for the core")
    return [each.name for each in named(given)], False


def named(names: Iterable[str]) -> list[Measure]:
    """Measures and numbers of evaluators; the name of an evaluator stands for all of its numbers."""
    numbers: dict[str, list[Measure]] = {}
    for measure in known_measures.values():
        numbers.setdefault(measure.evaluator or measure.name, []).append(measure)
    found: dict[str, Measure] = {}
    for name in names:
        if name not in known_measures and name not in numbers:
            evaluator = [each.name for each in numbers.get(name.partition(".")[0], ())]
            known, what = (evaluator, "evaluators") if evaluator else ([*known_measures, *numbers], "measures")
            raise unknown("measure", name, known, f"clip-geometry list {what}")
        for each in numbers.get(name) or [known_measures[name]]:
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
        >>> measured = cg.MeasuredSets(sets, cg.transforms.parse_pipeline("normalize"))
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
