"""Catalogs that describe measures, transforms, …, read without importing torch or the functions they name.

Each kind has a catalog.yaml in its folder. The entry of a measure, in geometry/, becomes a `Description`. A variant,
or a number of an evaluator, inherits the fields of its family unless it sets them itself:
`retrieval[mixed].image.r_at_1` inherits those of `retrieval`, then those of `retrieval[mixed]`.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml

from clip_geometry.registry import InputError, instance

PACKAGE = Path(__file__).parent

LABELS = ("labels",)  # arguments that hold one value per row; all other arguments are rows
Bound: TypeAlias = int | float | str


@dataclass(frozen=True)
class MeasureInputs:
    """Inputs of the function that computes a measure.

    Args:
        arguments: Names of the arguments.
        needs: What must be given besides the rows, such as pairs or labels; None if nothing.
        across: Whether the arguments are the image rows and the text rows of one collection.
        whole: Arguments whose rows are not a sample of items, so that the jackknife leaves none of them out.
        permuted: How `permutation_test` breaks the relation between the two arguments: "rows" permutes rows across
            both sets, "order" shuffles the second set. None if there is no relation to break.
    """

    arguments: tuple[str, ...]
    needs: str | None = None
    across: bool = False
    whole: tuple[str, ...] = ()
    permuted: Literal["rows", "order"] | None = None


def read_yaml(file: Path) -> Any:
    """Read a YAML file of this package, 10x faster than `config.read_yaml`, which validates files from users."""
    return yaml.load(file.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _with_tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


_TERMS = read_yaml(PACKAGE / "geometry" / "terms.yaml")
INVARIANCES: Mapping[str, str] = _TERMS["invariances"]
GROUPS = tuple(_TERMS["groups"])
TAKES = {name: MeasureInputs(**_with_tuples(entry)) for name, entry in _TERMS["takes"].items()}


@dataclass(frozen=True)
class Description:
    """The catalog entry of a measure.

    Args:
        name: Name of the measure in `measures`, with a variant in brackets.
        title: A short title.
        group: One of `GROUPS`.
        takes: Key in `TAKES` of the inputs of its function.
        summary: What it measures, in one sentence.
        reading: What a high and a low value mean.
        caveat: How the number can mislead if it is read alone.
        formula: Its formula.
        range: Lower and upper bound; a bound may be "d", the dimension.
        direction: What higher or lower means.
        reference: The paper that defines it.
        better: Which direction is better for a use of the embeddings, such as retrieval; None if the measure only
            describes the embeddings and neither direction is better.
        depends_on_n: Whether the expected value changes with the number of rows, so that values are comparable only
            at equal n.
        at_gaussian: The limit of its value as n grows, for unit rows drawn from an isotropic Gaussian; None if the
            limit depends on more than d (`null_value` computes it).
        invariances: The entries of `INVARIANCES` that hold. The others do not hold; tests verify both.
        unit: Its unit, e.g. "degrees".
        brief: What the measure or its evaluator measures, in at most 55 characters, for `clip-geometry list`. Default:
            the title.
        least_n: Smallest number of rows per set.
        least_d: Smallest dimension.
        quadratic: Whether its time grows with n².
        smooth: False for measures based on extremes, arbitrary bases or nearest-neighbor distances, for which the
            jackknife standard error is wrong (for two_nn and hubness, twice the true one).
        by_default: False if the measure is computed only when it is named.
        one_space: False if the two sets may have different dimensions and come from different models.
        evaluator: The evaluator that computes this number together with its other numbers: `a` for a measure `a.b`.
    """

    name: str
    title: str
    group: str
    takes: str
    summary: str
    reading: str
    caveat: str
    formula: str
    range: tuple[Bound, Bound]
    direction: str
    reference: str
    better: Literal["higher", "lower"] | None = None
    depends_on_n: bool = False
    at_gaussian: Bound | None = None
    invariances: tuple[str, ...] = ()
    unit: str = ""
    brief: str = ""
    least_n: int = 2
    least_d: int = 1
    quadratic: bool = False
    smooth: bool = True
    by_default: bool = True
    one_space: bool = True
    evaluator: str | None = None

    @property
    def inputs(self) -> MeasureInputs:
        """The inputs of its function, which `takes` names."""
        return TAKES[self.takes]

    @property
    def needs(self) -> tuple[str, ...]:
        """The requirements on the rows: "pairs", "labels", "rows of one scale".

        "rows of one scale" means that multiplying all rows by a constant changes the value, so that values are
        comparable only between rows of the same scale, such as unit rows.
        """
        unit = () if "scale" in self.invariances else ("rows of one scale",)
        return (*filter(None, (self.inputs.needs,)), *unit)


# without `name`, which is the key of an entry and not one of its fields
FIELDS = frozenset(field.name for field in fields(Description)) - {"name"} | {"inputs", "needs"}
_entries: dict[str, Mapping[str, Any]] = {}  # entries of measures, families and evaluators
descriptions: dict[str, Description] = {}  # descriptions of measures, ordered by group


@functools.cache
def read(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the entries of the catalog.yaml in a folder."""
    return read_yaml(folder / "catalog.yaml")


def add_entries(entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Add descriptions to the catalog, including those of measures from other packages.

    Args:
        entries: Name → fields of `Description` other than the name. An entry without a title describes a family or
            an evaluator, whose variants and numbers have their own titles.
    """
    for name, entry in instance(entries, Mapping, "entries", "a mapping of name → fields").items():
        instance(entry, Mapping, f"entries[{name!r}]", "a mapping of fields")
    _entries.update(entries)
    describe.cache_clear()
    descriptions.update({name: describe(name) for name in entries if "title" in _merged(name)})


def names() -> list[str]:
    """Return the names of all measures, ordered by group."""
    return list(descriptions)


@functools.cache
def describe(name: str) -> Description:
    """Return the description of a measure. A variant without an entry has the description of its family.

    Raises:
        InputError: The catalog does not describe the measure.
    """
    merged = _merged(name)
    if "title" not in merged:
        raise InputError(f"the catalog does not describe the measure {name!r}; give add_measure its entries")
    evaluator: dict[str, Any] = {"evaluator": name.partition(".")[0]} if "." in name else {}
    return Description(name, **evaluator | _with_tuples(merged))


def _merged(name: str) -> dict[str, Any]:
    """Return the fields of a[b].c merged with those that it inherits: of the family a and of the variant a[b]."""
    families = re.split(r"[.\[]", name)[0], name.partition(".")[0], name
    return {key: value for family in families for key, value in _entries.get(family, {}).items()}


add_entries(read(PACKAGE / "geometry"))
