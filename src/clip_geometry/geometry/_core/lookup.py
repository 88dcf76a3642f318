"""A measure by its name, or as it is."""

from typing import TypeVar

from clip_geometry.geometry.measure import Measure, measures
from clip_geometry.registry import InputError, shown

T = TypeVar("T")


def as_measure(measure: str | T) -> Measure | T:
    """The measure of that name; a Measure or a function is returned as it is.

    Raises InputError for unknown names. Those of an evaluator's numbers are unknown here, as no measure depends on
    evaluators; all of them, and no measure's, have a dot.
    """
    if not isinstance(measure, str):
        if not callable(measure):
            raise InputError(f"measure = {shown(measure)}; expected a name, a Measure or a function")
        return measure
    if "." in measure:
        raise InputError(
            f"{measure!r} is no name of a measure; of a number of an evaluator hand over its Measure, "
            f"clip_geometry.evaluators.evaluators[{measure!r}]"
        )
    return measures[measure]


def as_registered(measure: str | Measure) -> Measure:
    """The same, but no function, of which it is unknown what it takes."""
    found = as_measure(measure)
    if not isinstance(found, Measure):
        raise InputError(f"measure = {shown(measure)}; expected a name or a Measure, which says what it takes")
    return found
