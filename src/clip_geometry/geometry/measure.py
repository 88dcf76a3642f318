"""What is known about a measure, and the table of all measures."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import Any, Literal, TypeAlias, TypeVar

from clip_geometry.geometry._core.kinds import Value, as_given
from clip_geometry.geometry._core.left_out import LeftOut
from clip_geometry.geometry._core.streamed import StreamedRows
from clip_geometry.registry import InputError, Registry, shown

INVARIANCES = {
    "rotation": "one orthogonal map applied to all rows",
    "translation": "one vector added to all rows",
    "scale": "all rows multiplied by one positive number",
    "row scale": "each row multiplied by a positive number of its own",
    "swap": "the two sets exchanged",
}

T = TypeVar("T")
Bound: TypeAlias = int | float | str

# as they are read; the last ones are those of evaluators
GROUPS = (
    *("cone", "modality gap", "matching", "isotropy", "spread", "clusters", "neighbors"),
    *("retrieval", "classification", "contrastive loss"),
)


@dataclass(frozen=True)
class Inputs:
    """What the function of a measure takes.

    Args:
        arguments: Their names.
        needs: What rows must come with, besides rows.
        across: Whether they are the image and the text rows of one collection.
        whole: Arguments whose rows are no sample of items: the jackknife leaves none of them out.
        permuted: How `permutation_test` breaks the relation of the two arguments: "rows" deals the rows of both sets
            anew, "order" shuffles the second. None where there is none to break.
    """

    arguments: tuple[str, ...]
    needs: str | None = None
    across: bool = False
    whole: tuple[str, ...] = ()
    permuted: Literal["rows", "order"] | None = None


Takes: TypeAlias = Literal[
    "rows",
    "labeled rows",
    "two sets",
    "pairs",
    "distinct pairs",
    "matched sets",
    "relevant sets",
    "classes",
    "train and test",
]
_PAIRS = Inputs(("image", "text"), needs="pairs", across=True, permuted="order")
TAKES: Mapping[Takes, Inputs] = {
    "rows": Inputs(("x",)),
    "labeled rows": Inputs(("x", "labels"), needs="labels", permuted="order"),
    "two sets": Inputs(("image", "text"), across=True, permuted="rows"),
    "pairs": _PAIRS,
    "distinct pairs": _PAIRS,
    "matched sets": _PAIRS,
    "relevant sets": Inputs(
        ("image", "text"), needs="pairs, or labels in both modalities", across=True, permuted="order"
    ),
    "classes": Inputs(
        ("image", "labels", "class_text"), needs="labels and class prompts", across=True, whole=("class_text",)
    ),
    "train and test": Inputs(("train_x", "train_y", "test_x", "test_y"), needs="train and test sets"),
}


@dataclass(frozen=True)
class Measure:
    """A measure: one number, its function and what a reader has to know about it.

    Args:
        name: Its name in `measures`, with a variant in brackets.
        title: A short title.
        group: One of `GROUPS`.
        function: Takes the sets and returns the number, or a result that has it as an attribute.
        takes: What the function takes. "rows": one set. "labeled rows": a set and its labels. "two sets": image and
            text, of any number of rows. "pairs": aligned rows, every match of an image and a text. "distinct pairs":
            aligned rows, no row twice, because the measure takes different rows for different items. "matched sets":
            image and text rows, and which belong together where that is not row i with row i. "relevant sets": image
            and text rows, all of them, and a `Relevance` of their items. "classes": images, the class of each, and one
            text per class. "train and test": rows and labels of both.
        summary: What it measures, in one sentence.
        reading: What a high and a low value mean.
        caveat: What misleads those who trust the number alone.
        formula: Its formula.
        range: Lower and upper bound; a bound may be "d", the dimension.
        direction: What higher or lower means.
        better: Which direction serves a use of the embeddings, such as retrieval; None where the number describes
            them and neither direction is better.
        depends_on_n: Whether the expected value changes with the number of rows, so that only equal n compare.
        at_gaussian: Its value on an isotropic Gaussian of unit rows as n grows; None where it depends on more than d
            (`null_value` computes it).
        reference: The paper that defines it.
        invariances: Those of `INVARIANCES` that hold. The others do not hold; tests show both.
        unit: Its unit, e.g. "degrees".
        attribute: The field (it may be dotted) or key of the function's result that is this measure, or None where the
            result is.
        options: Keyword arguments of the function.
        least_n: Smallest number of rows of each set.
        least_d: Smallest dimension.
        remark: Function of the same arguments: what the number leaves out, or None.
        quadratic: Whether time grows with n².
        smooth: False for extremes, arbitrary bases and distances to near neighbors, whose error the jackknife gets
            wrong (for two_nn and hubness twice the true one).
        by_default: False where it is taken only if it is named.
        brief: What it or its evaluator measures, in at most 55 characters, for `clip-geometry list`; by default the
            title.
        evaluator: The evaluator whose number this is, if it is one; its name stands for all of its numbers.
        streams: Whether it takes `StreamedRows`, in a bounded number of blocks. Otherwise it needs all rows in memory.
        aggregated: Whether each of its passes is an aggregation (`StreamedRows.aggregate`), which an engine can run.
        from_moments: Whether it takes `Moments` in place of rows. It is then aggregated, too, and one pass gives its
            standard error.
        left_out: Yields what the function returns without each block of rows in turn, from work that these subsets
            share. Takes a `LeftOut` in place of each set of rows, otherwise what the function takes. None where there
            is no work to share.
        shares: Returns, for each number of the evaluator that is a mean over queries of values from 0 to 1, a `Share`,
            which has its standard error and its interval. Takes what the function takes, and `items`, the items of the
            rows of each sampled set. The jackknife over blocks serves the numbers without one.
        from_sums: The same from sums over the blocks, which may differ in the last digits: taken of a `LeftOut` that
            allows it.
        one_space: False where the two sets may have different dimensions and come from different models.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> measure = cg.measures["isoscore"]
        >>> measure.title, measure.range, measure.takes
        ('IsoScore', (0, 1), 'rows')
        >>> round(measure(x), 3)
        0.894
    """

    name: str
    title: str
    group: str  # one of GROUPS
    function: Callable[..., Any]
    takes: Takes
    summary: str
    reading: str
    caveat: str
    formula: str
    range: tuple[Bound, Bound]
    direction: str
    at_gaussian: Bound | None
    reference: str
    invariances: tuple[str, ...] = ()
    unit: str = ""
    attribute: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    least_n: int = 2
    least_d: int = 1
    remark: Callable[..., str | None] | None = None
    quadratic: bool = False
    smooth: bool = True
    by_default: bool = True
    brief: str = ""
    evaluator: str | None = None
    streams: bool = False
    aggregated: bool = False
    from_moments: bool = False
    left_out: Callable[..., Iterator[Any]] | None = None
    from_sums: Callable[..., Iterable[Any]] | None = None
    shares: Callable[..., Mapping[str, Any]] | None = None
    one_space: bool = True
    better: Literal["higher", "lower"] | None = None
    depends_on_n: bool = False

    @property
    def inputs(self) -> Inputs:
        """What `takes` stands for."""
        return TAKES[self.takes]

    @property
    def needs(self) -> tuple[str, ...]:
        """What the rows must come with: "pairs", "labels", "rows of one scale" (multiply all rows and the
        value changes, so that only rows of one scale compare; unit rows are)."""
        unit = () if "scale" in self.invariances else ("rows of one scale",)
        return (*filter(None, (self.inputs.needs,)), *unit)

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
            sets: What the measure takes, a `LeftOut` in place of each set of rows.
        """
        rows = [each for each in sets if isinstance(each, LeftOut)]
        if min(each.fewest for each in rows) < self.least_n:
            return None
        if self.from_moments and rows[0].has_moments:
            return (self.function(moments, **self.options) for moments in rows[0].moments)
        if self.from_sums is not None and all(each.sums for each in rows):
            return iter(self.from_sums(*sets))
        if self.left_out is None or any(isinstance(each.rows, StreamedRows) for each in rows):
            return None
        return self.left_out(*sets, **self.options)

    def pick(self, result: Any) -> Value:
        """The number out of what the function returned. Raises KeyError where it has no such number."""
        if self.attribute is None:
            return result
        of = itemgetter if isinstance(result, Mapping) else attrgetter
        return of(self.attribute)(result)


# all of them, whatever is imported: what other layers add is imported when it is asked for
measures: Registry[Measure] = Registry(
    "measure", "clip-geometry list measures", more=("clip_geometry.evaluators", "clip_geometry.references")
)


def add_measure(measure: Measure, *variants: Measure) -> None:
    """Registers a measure and its variants in `measures`.

    Args:
        measure: The measure. Its name must be new.
        variants: Its variants, made by `variant`.

    Raises:
        ValueError: A name is registered already.

    Example:
        >>> import clip_geometry as cg
        >>> cg.add_measure(cg.measures["modality_gap"])  # a name can be taken once
        Traceback (most recent call last):
            ...
        ValueError: measure 'modality_gap' is registered twice
    """
    for member in (measure, *variants):
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
        >>> cg.variant(cg.measures["two_nn"], "all", options={"discard": 0.0}).name
        'two_nn[all]'
    """
    if "options" in changes:
        changes = {"from_sums": None, **changes}  # it is that of other options
    if "function" in changes:
        changes = {
            "streams": False,
            "aggregated": False,
            "from_moments": False,
            "left_out": None,
            "from_sums": None,
            **changes,
        }
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
