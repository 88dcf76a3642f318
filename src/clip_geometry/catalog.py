"""Catalogs: what a reader needs to know about measures, transforms, …, read without importing torch or what they name.

The catalog of each kind is catalog.yaml in its folder. The entry of a measure, in geometry/, is a `Description`. A
variant or a number of an evaluator has the fields of its family unless it has its own:
`retrieval[mixed].image.r_at_1` those of `retrieval`, then of `retrieval[mixed]`.
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

LABELS = ("labels",)  # arguments with one value per row; all others are rows
Bound: TypeAlias = int | float | str


@dataclass(frozen=True)
class MeasureInputs:
    """What the function of a measure takes.

    Args:
        arguments: Their names.
        needs: What rows must come with, besides rows.
        across: Whether they are the image and the text rows of one collection.
        whole: Arguments whose rows are no sample of items: the jackknife leaves none of them out.
        permuted: How `permutation_test` breaks the relation of the two arguments: "rows" permutes rows across both
            sets, "order" shuffles the second. None where there is none to break.
    """

    arguments: tuple[str, ...]
    needs: str | None = None
    across: bool = False
    whole: tuple[str, ...] = ()
    permuted: Literal["rows", "order"] | None = None


def read_yaml(file: Path) -> Any:
    """A YAML file of ours, ten times as fast as `config.read_yaml`, which checks what users write."""
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
        takes: What the function takes, of `TAKES`.
        summary: What it measures, in one sentence.
        reading: What a high and a low value mean.
        caveat: What misleads those who trust the number alone.
        formula: Its formula.
        range: Lower and upper bound; a bound may be "d", the dimension.
        direction: What higher or lower means.
        reference: The paper that defines it.
        better: Which direction serves a use of the embeddings, such as retrieval; None where the number describes
            them and neither direction is better.
        depends_on_n: Whether the expected value changes with the number of rows, so that only equal n compare.
        at_gaussian: Its value on an isotropic Gaussian of unit rows as n grows; None where it depends on more than d
            (`null_value` computes it).
        invariances: Those of `INVARIANCES` that hold. The others do not hold; tests show both.
        unit: Its unit, e.g. "degrees".
        brief: What it or its evaluator measures, in at most 55 characters, for `clip-geometry list`; by default the
            title.
        least_n: Smallest number of rows of each set.
        least_d: Smallest dimension.
        quadratic: Whether time grows with n².
        smooth: False for extremes, arbitrary bases and distances to near neighbors, whose error the jackknife gets
            wrong (for two_nn and hubness twice the true one).
        by_default: False where it is taken only if it is named.
        one_space: False where the two sets may have different dimensions and come from different models.
        evaluator: The evaluator whose number this is, which stands for all of its numbers: of `a.b` it is `a`.
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
        """What `takes` stands for."""
        return TAKES[self.takes]

    @property
    def needs(self) -> tuple[str, ...]:
        """What the rows must come with: "pairs", "labels", "rows of one scale" (multiply all rows and the
        value changes, so that only rows of one scale compare; unit rows are)."""
        unit = () if "scale" in self.invariances else ("rows of one scale",)
        return (*filter(None, (self.inputs.needs,)), *unit)


# `name` is none of them: a measure has its own, which finds the others
FIELDS = frozenset(field.name for field in fields(Description)) - {"name"} | {"inputs", "needs"}
_entries: dict[str, Mapping[str, Any]] = {}  # of measures, families and evaluators
descriptions: dict[str, Description] = {}  # of measures, group by group


@functools.cache
def read(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """The entries of the catalog.yaml in a folder."""
    return read_yaml(folder / "catalog.yaml")


def add_entries(entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Adds descriptions, of another package's measures too: name → fields of `Description` besides the name.

    An entry without a title is that of a family or of an evaluator, whose variants and numbers have titles.
    """
    for name, entry in instance(entries, Mapping, "entries", "a mapping of name → fields").items():
        instance(entry, Mapping, f"entries[{name!r}]", "a mapping of fields")
    _entries.update(entries)
    describe.cache_clear()
    descriptions.update({name: describe(name) for name in entries if "title" in _merged(name)})


def names() -> list[str]:
    """The names of all measures, group by group."""
    return list(descriptions)


@functools.cache
def describe(name: str) -> Description:
    """The description of a measure; of a variant without an entry that of its family.

    Raises InputError where the catalog has none.
    """
    merged = _merged(name)
    if "title" not in merged:
        raise InputError(f"the catalog describes no measure {name!r}; give add_measure its entries")
    evaluator: dict[str, Any] = {"evaluator": name.partition(".")[0]} if "." in name else {}
    return Description(name, **evaluator | _with_tuples(merged))


def _merged(name: str) -> dict[str, Any]:
    """The fields of the family, of the variant and its own: of a, a[b] and a[b].c."""
    families = re.split(r"[.\[]", name)[0], name.partition(".")[0], name
    return {key: value for family in families for key, value in _entries.get(family, {}).items()}


add_entries(read(PACKAGE / "geometry"))
