"""Turns embeddings into records: each requested measure in every place where it can be computed."""

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
from clip_geometry.registry import InputError, instance, names_in, unknown
from clip_geometry.results import Record, Row
from clip_geometry.rows.arguments import RowError, flag, seed_number, whole_number
from clip_geometry.rows.threads import side_by_side
from clip_geometry.steps import Step, parse_pipeline

if TYPE_CHECKING:
    from clip_geometry.embedding.engines import Engine

DEFAULT_STEPS = "normalize"
ALL = "all"  # selects the core and all default measures
# limit of multiplications, over all couples, in one O(n²) measure: about a minute for the core on two cores
MOST_WORK = 2e11


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
    """Measure the geometry of one or several sets of embeddings, as `clip-geometry measure` does.

    A set is a matrix (n, d) of floats (a NumPy array, a torch tensor, a pandas table or a list of lists), `Embeddings`,
    or a path as for `read`. Rows of two sets are paired if their ids agree. Sets of equal length without ids are paired
    by position; the index of a pandas table is ignored.

    Args:
        image: The first set; or all sets, as a mapping of modality → set or as a folder with several sets.
        text: The second set. The modality stated by `Embeddings` and files takes precedence over the order of the
            arguments. A single array is called "rows".
        more: Further sets, each of which must state its modality. Use a mapping to name arrays.
        labels: Class of each row, as a sequence or a path. A single sequence applies to all sets of its length; a
            mapping of modality → labels assigns labels to sets.
        ids: Id of the item of each row, as a sequence or a path. A single sequence applies to all sets; a mapping of
            modality → ids assigns ids to sets.
        pipeline: The steps before measuring, such as "normalize,center[each]". By default rows are scaled to unit
            length. "" or None measures the rows as given.
        measures: Names of measures and evaluators, as a list or comma-separated. None: the core, a dozen numbers with a
            verdict. "all": the core and all default measures.
        by: "label" or a metadata column of the sets. The rows of each of its values are then measured separately.
        seed: Seed of the null values and of the jackknife.
        blocks: Number of jackknife blocks for the standard errors; 0 computes none. The default is 20 if there are at
            least as many items.
        engine: An engine from `open_engine`, to read large sets on a cluster.
        scaling: Also compute measures that depend on n on random halves, quarters and eighths of the items. The values
            become columns of `frame`, and `scaling` of each record. The pipeline is not fitted again.
        full_size: Number of items in the full data of which the given items are a sample; implies `scaling`. Numbers
            that depend on n then include a prediction for the full size, if the trend supports one.
        progress: Reports the progress over measures, such as `clip_geometry.progress.progress`.

    Returns:
        A `Measurement`, which is displayed as a table: for each measure and set the value, its standard error, and its
        null value, the value on isotropic Gaussian noise of the same shape.

    Raises:
        InputError: A set, a column, a step or a name is not as described, or a measure requested by name cannot be
            computed.

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
    seed = seed_number(seed)
    blocks = None if blocks is None else whole_number(blocks, "blocks", least=0)
    full_size = None if full_size is None else whole_number(full_size, "full_size")
    instance(by, str | None, "by", '"label" or the name of a column')
    instance(progress, Callable, "progress", "a function")
    flag(scaling, "scaling")
    steps = parse_pipeline("" if pipeline is None else pipeline)
    names, optional = names_to_measure(measures)
    sets = given_sets(image, text, *more, labels=labels, ids=ids)
    if full_size is not None and by is not None:
        raise InputError("a full size and groups of rows were both given; measure each group as a set of its own")
    jackknife_blocks = BLOCKS if blocks is None else blocks
    groups = [({}, sets)] if by is None else [({by: value}, subset) for value, subset in split_by(sets, by)]
    records = []
    with naming_files(sets), progress("measures", len(groups) * len(names)) as advance:
        for at, subset in groups:
            try:
                measured = MeasuredSets(subset, steps, seed=seed, blocks=jackknife_blocks, engine=engine)
                # an error, rather than a table without standard errors
                if blocks and not 2 <= blocks <= len(measured.items):
                    limit = f"the number of items, which is {len(measured.items)}"
                    raise InputError(f"blocks is {blocks}; expected 0 or from 2 to {limit}")
                shared = measured.context()
                remarks = measured.remarks()
                rows = list(measure_sets(measured, names, advance, optional=optional))
                if scaling or full_size is not None:
                    add_scaling(measured, rows, full_size)
            except InputError as error:
                # the message of a RowError already counts the row within its file
                if not at or isinstance(error, RowError):
                    raise
                (value,) = at.values()
                raise InputError(f"in the group of {by} {value}: {error}") from None
            shared |= {"remarks": remarks} if remarks else {}
            for row in rows:
                records.append(Record.of({**shared, **row, "at": {**at, **row["at"]}}))
    return Measurement(records)


def names_to_measure(names: Sequence[str] | str | None) -> tuple[list[str], bool]:
    """Return the measures to compute, and whether measures that cannot be computed become notes instead of errors.

    `names` holds names of measures, or of evaluators for all of their numbers. None selects the core; `ALL` selects the
    core and all default measures.
    """
    if names is None:
        return list(CORE), True
    if isinstance(names, str) and names == ALL:
        return list(dict.fromkeys([*(measure.name for measure in by_group()), *CORE])), True
    requested = names_in(names, "measures")
    if not requested:
        raise InputError("measures is empty; give names, comma-separated, or leave it out for the core")
    return [measure.name for measure in named(requested)], False


def named(names: Iterable[str]) -> list[Measure]:
    """Return the measures with these names; the name of an evaluator selects all of its numbers."""
    numbers: dict[str, list[Measure]] = {}
    for measure in known_measures.values():
        numbers.setdefault(measure.evaluator or measure.name, []).append(measure)
    chosen: dict[str, Measure] = {}
    for name in names:
        if name not in known_measures and name not in numbers:
            of_evaluator = [measure.name for measure in numbers.get(name.partition(".")[0], ())]
            if of_evaluator:
                raise unknown("measure", name, of_evaluator, "clip-geometry list evaluators")
            raise unknown("measure", name, [*known_measures, *numbers], "clip-geometry list measures")
        for measure in numbers.get(name) or [known_measures[name]]:
            chosen[measure.name] = measure
    return list(chosen.values())


def measure_sets(
    sets: MeasuredSets,
    names: Sequence[str] | None,
    advance: Callable[[int], object] = lambda done: None,
    *,
    optional: bool = False,
) -> Iterator[Row]:
    """Compute measures of prepared sets, for every modality or pair of modalities for which they are defined.

    Args:
        sets: The sets after their pipeline.
        names: Names of measures and evaluators, or None for all default measures.
        advance: Called with the number of measures that have just been computed.
        optional: What happens if a measure in `names` cannot be computed: False raises InputError; True returns a
            record without a value, whose `note` says why. Measures that were not named always give such a record.

    Returns:
        An iterator over records with measure, value, standard_error, null_value, n, d and at.

    Raises:
        InputError: A name is unknown, or a named measure cannot be computed.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> sets = {"image": cg.Embeddings(image, "image"), "text": cg.Embeddings(text + 1, "text")}
        >>> measured = cg.MeasuredSets(sets, cg.transforms.parse_pipeline("normalize"))
        >>> [(row["at"], round(row["value"], 3)) for row in cg.measure_sets(measured, ["isoscore"])]
        [({'modality': 'image'}, 0.919), ({'modality': 'text'}, 0.889)]
    """
    chosen = by_group() if names is None else named(names)
    groups: dict[Any, list[Measure]] = {}  # groups of measures that share a statistic or a call
    for measure in chosen:
        shared = (measure.statistic, measure.takes) if measure.statistic else call_of(measure)
        groups.setdefault(shared, []).append(measure)

    def rows_of(group: Sequence[Measure]) -> dict[str, list[Row]]:
        rows = {}
        for measure in group:
            rows[measure.name] = rows_or_notes(sets, measure, named=names is not None and not optional)
        sets.forget(group[0].statistic)
        return rows

    if sets.small:
        # computed here once, because several threads might compute them at the same time
        _ = sets.null
        if sets.items.has_blocks:
            _ = sets.items.block_of
    rows: dict[str, list[Row]] = {}
    map_groups = side_by_side if sets.small else map
    with keeping_lists():
        for of_group in map_groups(rows_of, list(groups.values())):
            rows |= of_group
            advance(len(of_group))
    for measure in chosen:
        yield from rows[measure.name]


def rows_or_notes(sets: MeasuredSets, measure: Measure, *, named: bool) -> list[Row]:
    """Return the rows of the measure; if it cannot be computed and was not named, return a row with a note instead."""
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
            # one couple of several may fail, and so may one number of an evaluator that was selected by its name
            if named and not isinstance(error, NoSuchNumber) and len(sets.rows) < 3:
                raise InputError(f"{measure.name}, {place}: {note['note']}") from None
            rows.append(note)
    if named and len(sets.rows) > 2 and all(row["value"] is None for row in rows):
        raise InputError(f"{measure.name}, {rows[0]['at']['modality']}: {rows[0]['note']}")
    return rows


def _require_affordable(sets: MeasuredSets, measure: Measure) -> None:
    """Raise InputError for measures that run only if named: they take minutes, or an engine cannot run them."""
    if sets.engine is not None and not (measure.aggregated or measure.statistic is Moments):
        raise InputError(
            "not a function of moments and class sums, which are all that the engine computes; leave out --engine to "
            "compute it on this machine"
        )
    if not measure.quadratic:
        return
    advice = "name it in --measures to compute it anyway"
    if sets.streamed and measure.streams:
        raise InputError(f"its time grows with n² and the rows are streamed; {advice}")
    work = 0
    couples = sets.couples.values()
    for one, other in couples if measure.inputs.across else ():
        work += len(sets.embeddings[one]) * len(sets.embeddings[other]) * sets.embeddings[one].dim
    if work > MOST_WORK:
        size = f"{len(couples)} couples of these sizes" if len(couples) > 1 else "sets of these sizes"
        raise InputError(f"its time grows with n² and is minutes for {size}; {advice}")


def _note(measure: Measure, at: Mapping[str, Any], error: InputError) -> Row:
    note = str(error).removeprefix(f"{measure.name} ")
    return {"measure": measure.name, "value": None, "note": note, "at": dict(at)}
