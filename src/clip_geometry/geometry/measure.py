"""The `Measure` class and `measures`, the registry of all measures."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from clip_geometry.catalog import FIELDS, GROUPS, add_entries, describe
from clip_geometry.geometry.kinds import Value, as_given
from clip_geometry.geometry.statistics.statistic import BlockedRows, Statistic
from clip_geometry.registry import InputError, Registry, instance, shown
from clip_geometry.rows.arguments import flag

T = TypeVar("T")


@dataclass(frozen=True)
class Measure:
    """A measure: a function of embeddings that returns a single number, with its name and its options.

    `measures` holds all of them. Calling a measure with the sets returns its number. What a reader needs to know about
    it, such as title, range and caveat, is in the catalog (geometry/catalog.yaml); these fields are also attributes,
    such as `measure.title`.

    Args:
        name: Name in `measures` and in the catalog, with a variant in brackets, as in `silhouette[cosine]`.
        function: Takes the sets and returns the number, or a result that contains it.
        attribute: Field (possibly dotted) or key of the function's result that holds the number; None if the result
            itself is the number.
        options: Keyword arguments for the function.
        remark: Function of the same arguments that returns a sentence about rows that the number leaves out, or None.
        statistic: Class of the intermediate result, such as `Moments`, that the function accepts in place of the rows;
            None if it takes rows only. It is computed once for all measures that use it, also without each block of
            rows for the jackknife.
        streams: Whether the function can read rows from disk block by block (`StreamedRows`). Otherwise all rows must
            fit in memory.
        aggregated: Whether each pass over streamed rows is a sum over blocks (`StreamedRows.aggregate`), which an
            engine can compute in parallel.
        shares: For evaluators whose numbers are shares of queries, such as recall: a function that returns a `Share`
            with standard error and interval for each number. It takes the arguments of `function`, and `items`, the
            item of each row of each set. Without it, the standard error comes from the jackknife.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> measure = cg.geometry.measures["isoscore"]
        >>> measure.title, measure.range, measure.takes
        ('IsoScore', (0, 1), 'rows')
        >>> round(measure(x), 3)
        0.894
    """

    name: str
    function: Callable[..., Any]
    attribute: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    remark: Callable[..., str | None] | None = None
    statistic: type[Statistic] | None = None
    streams: bool = False
    aggregated: bool = False
    shares: Callable[..., Mapping[str, Any]] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in FIELDS:
            return getattr(describe(self.name), name)
        raise AttributeError(name)

    def __call__(self, *sets) -> Value:
        """Return the number: a 0-d float64 tensor for tensor input, a float for arrays.

        Raises InputError if the sets are too small for the number to exist, in addition to the errors of the function.
        """
        result = self.function(*sets, **self.options)
        try:
            return as_given(self.pick(result), sets)
        except KeyError:
            raise InputError(
                f"{self.name} does not exist for sets as small as these; expected more classes or relevant items"
            ) from None

    def without_each(self, *sets: Any) -> Iterator[Any] | None:
        """Yield the function's result without each block in turn; return None if computing them one by one is best.

        Args:
            sets: The arguments of the measure, with `BlockedRows` in place of each set of rows.
        """
        fewest = min(blocked.fewest for blocked in sets if isinstance(blocked, BlockedRows))
        if self.statistic is None or fewest < self.least_n:
            return None
        statistics = self.statistic.without_each(*sets)
        return None if statistics is None else (self.function(statistic, **self.options) for statistic in statistics)

    def pick(self, result: Any) -> Value:
        """Return the number from the function's result. Raises KeyError if the result does not contain it."""
        if self.attribute is None:
            return result
        getter = itemgetter if isinstance(result, Mapping) else attrgetter
        return getter(self.attribute)(result)


# complete regardless of imports: the modules in `more`, which add measures, are imported on demand
measures: Registry[Measure] = Registry(
    "measure",
    "clip-geometry list measures",
    more=("clip_geometry.evaluate", "clip_geometry.references"),
)


def add_measure(measure: Measure, *variants: Measure, entries: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Register a measure and its variants, so that `measure`, `clip-geometry measure` and reports know them by name.

    Args:
        measure: The measure. Its name must be new.
        variants: Variants of the measure, made by `variant`.
        entries: Name → fields of the `Description` of the measure (title, range, …), if it is not in
            geometry/catalog.yaml.

    Raises:
        ValueError: A name is registered already.

    Example:
        >>> import clip_geometry as cg
        >>> cg.geometry.add_measure(cg.geometry.measures["modality_gap"])  # a name can be taken once
        Traceback (most recent call last):
            ...
        ValueError: measure 'modality_gap' is registered twice
    """
    if entries is not None:
        add_entries(entries)
    for member in (measure, *variants):
        instance(member, Measure, "measure", "a Measure")
        measures.add(member.name, member)


def variant(measure: Measure, name: str, **changes: Any) -> Measure:
    """Create a variant of a measure, such as `silhouette[cosine]`, which is computed with other options.

    Args:
        measure: The measure.
        name: Name of the variant, without brackets.
        changes: Fields of `Measure` that differ, such as `options`. A variant with another function cannot read
            streamed rows unless `streams` is set.

    Returns:
        The variant as a `Measure`. It is not registered yet.

    Example:
        >>> import clip_geometry as cg
        >>> cg.geometry.variant(cg.geometry.measures["two_nn"], "all", options={"discard": 0.0}).name
        'two_nn[all]'
    """
    if "function" in changes:
        changes = {"statistic": None, "streams": False, "aggregated": False, **changes}
    instance(measure, Measure, "measure", "a Measure")
    return replace(measure, name=f"{measure.name}[{name}]", **changes)


def by_group(*, all: bool = False) -> list[Measure]:
    """Return the measures as a list, sorted by their group in the catalog, such as "isotropy" or "rank".

    The numbers of evaluators, such as recall, are not included.

    Args:
        all: Whether to return all measures instead of only those that `measures="all"` of `cg.measure` computes by
            default.

    Returns:
        A list of `Measure`.

    Example:
        >>> import clip_geometry as cg
        >>> measures = cg.geometry.by_group()
        >>> measures[0].name, measures[0].group
        ('average_cosine', 'cone')
    """
    flag(all, "all")
    members = [measure for measure in measures.values() if (all or measure.by_default) and not measure.evaluator]
    return sorted(members, key=lambda measure: GROUPS.index(measure.group))


def as_measure(measure: str | T) -> Measure | T:
    """Return the measure with the given name. A Measure or a function is returned unchanged.

    Raises InputError for unknown names.
    """
    if isinstance(measure, str):
        return measures[measure]
    if not callable(measure):
        raise InputError(f"measure = {shown(measure)}; expected a name, a Measure or a function")
    return measure


def as_registered(measure: str | Measure) -> Measure:
    """Like `as_measure`, but reject plain functions, whose arguments are unknown."""
    registered = as_measure(measure)
    if not isinstance(registered, Measure):
        raise InputError(f"measure = {shown(measure)}; expected a name or a Measure, whose arguments are known")
    return registered
