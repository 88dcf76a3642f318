"""What is known about a measure, and the table of all measures."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from clip_geometry.catalog import FIELDS, GROUPS, add_entries, describe
from clip_geometry.geometry.kinds import Value, as_given
from clip_geometry.geometry.statistics.statistic import Dealt, Statistic
from clip_geometry.registry import InputError, Registry, instance, shown

T = TypeVar("T")


@dataclass(frozen=True)
class Measure:
    """A measure: one number and the function that computes it.

    What a reader has to know about it is its catalog entry, whose fields are attributes, too: `measure.title`,
    `measure.caveat` and the others of `Description`.

    Args:
        name: Its name in `measures`, with a variant in brackets, and in the catalog.
        function: Takes the sets and returns the number, or a result that has it as an attribute.
        attribute: The field (it may be dotted) or key of the function's result that is this measure, or None where the
            result is.
        options: Keyword arguments of the function.
        remark: Function of the same arguments: what the number leaves out, or None.
        statistic: The `Statistic` that its function takes in place of all sets, or None where that takes rows only. It
            is computed once for all measures that share it, and of the rows without each block from shared work.
        streams: Whether it takes `StreamedRows`, in a bounded number of blocks. Otherwise it needs all rows in memory.
        aggregated: Whether each of its passes is an aggregation (`StreamedRows.aggregate`), which an engine can run.
        shares: Returns, for each number of the evaluator that is a mean over queries of values from 0 to 1, a `Share`,
            which has its standard error and its interval. Takes what the function takes, and `items`, the items of the
            rows of each sampled set. The jackknife over blocks serves the numbers without one.

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
        """The number: a 0-d float64 tensor for tensors, a float for arrays. Raises InputError for sets too small to
        have it, besides what its function raises."""
        result = self.function(*sets, **self.options)
        try:
            return as_given(self.pick(result), sets)
        except KeyError:
            raise InputError(
                f"{self.name} does not exist for sets as small as these; give more classes or relevant items"
            ) from None

    def without_each(self, *sets: Any) -> Iterator[Any] | None:
        """What the function returns without each block in turn; None where that is best found one by one.

        Args:
            sets: What the measure takes, `Dealt` in place of each set of rows.
        """
        fewest = min(each.fewest for each in sets if isinstance(each, Dealt))
        found = None if self.statistic is None or fewest < self.least_n else self.statistic.without_each(*sets)
        return None if found is None else (self.function(each, **self.options) for each in found)

    def pick(self, result: Any) -> Value:
        """The number out of what the function returned. Raises KeyError where it has no such number."""
        if self.attribute is None:
            return result
        of = itemgetter if isinstance(result, Mapping) else attrgetter
        return of(self.attribute)(result)


# all of them, whatever is imported: what other layers add is imported when it is asked for
measures: Registry[Measure] = Registry(
    "measure",
    "clip-geometry list measures",
    more=("clip_geometry.evaluate", "clip_geometry.references"),
)


def add_measure(measure: Measure, *variants: Measure, entries: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Registers a measure and its variants in `measures`.

    Args:
        measure: The measure. Its name must be new.
        variants: Its variants, made by `variant`.
        entries: Name → the fields of its `Description`, of measures that geometry/catalog.yaml does not have.

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
    """Makes the variant `measure[name]`.

    Args:
        measure: The measure.
        name: Name of the variant, without brackets.
        changes: Fields of `Measure` that differ. A variant with another function streams only if it says so.

    Returns:
        The variant, which is not registered yet.

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
    """The measures taken by default, or all, group by group, without the numbers of evaluators."""
    members = [measure for measure in measures.values() if (all or measure.by_default) and not measure.evaluator]
    return sorted(members, key=lambda measure: GROUPS.index(measure.group))


def as_measure(measure: str | T) -> Measure | T:
    """The measure of that name; a Measure or a function is returned as it is. Raises InputError for unknown names."""
    if isinstance(measure, str):
        return measures[measure]
    if not callable(measure):
        raise InputError(f"measure = {shown(measure)}; expected a name, a Measure or a function")
    return measure


def as_registered(measure: str | Measure) -> Measure:
    """The same, but no function, of which it is unknown what it takes."""
    found = as_measure(measure)
    if not isinstance(found, Measure):
        raise InputError(f"measure = {shown(measure)}; expected a name or a Measure, which says what it takes")
    return found
