"""The `Measure` class and `measures`, the registry of all measures."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from clip_geometry.catalog import FIELDS, GROUPS, add_entries, describe
from clip_geometry.geometry.kinds import Value, as_given
from clip_geometry.geometry.statistics.statistic import Dealt, Statistic
from clip_geometry.registry import InputError, Registry, instance, shown
from clip_geometry.rows.arguments import flag

T = TypeVar("T")


@dataclass(frozen=True)
class Measure:
    """A measure: a single number and the function that computes it.

    Its documentation is its catalog entry. The fields of the entry are also attributes: `measure.title`,
    `measure.caveat` and all other fields of `Description`.

    Args:
        name: Name in `measures` and in the catalog, with a variant in brackets, as in `silhouette[cosine]`.
        function: Takes the sets and returns the number, or a result that contains it.
        attribute: Field (possibly dotted) or key of the function's result that holds the number, or None if the result
            itself is the number.
        options: Keyword arguments for the function.
        remark: Function of the same arguments that returns a remark on what the number leaves out, or None.
        statistic: The `Statistic` that the function accepts in place of all sets, or None if it takes rows only. It is
            computed once for all measures that share it. For the jackknife, the statistic without each block of rows is
            computed from intermediate results that all blocks share.
        streams: Whether the function accepts `StreamedRows`, which it reads in a bounded number of blocks. Otherwise
            all rows must fit in memory.
        aggregated: Whether each pass over the rows is an aggregation (`StreamedRows.aggregate`), which an engine can
            run.
        shares: For evaluators whose numbers are shares of queries, such as recall: a function that returns, for each
            number, a `Share` with its standard error and interval. It takes the arguments of `function` and `items`,
            which has the item of each row, for each set. Numbers without a `Share` use the jackknife over blocks.

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
            sets: The arguments of the measure, with `Dealt` in place of each set of rows.
        """
        fewest = min(dealt.fewest for dealt in sets if isinstance(dealt, Dealt))
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
    """Register a measure and its variants in `measures`.

    Args:
        measure: The measure. Its name must be new.
        variants: Its variants, made by `variant`.
        entries: Maps names to the fields of their `Description`, for measures that are not in geometry/catalog.yaml.

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
    """Create the variant `measure[name]`.

    Args:
        measure: The measure.
        name: Name of the variant, without brackets.
        changes: Fields of `Measure` that differ. A variant with another function does not stream unless `streams` is
            set.

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
    """Return the default measures, or all measures, sorted by group.

    The numbers of evaluators are not included.

    Args:
        all: Whether to return all measures instead of the default ones.

    Returns:
        The measures.
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
