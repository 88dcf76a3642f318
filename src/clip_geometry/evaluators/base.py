"""What an evaluator is: a function of embeddings with several numbers, each explained like a measure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clip_geometry.geometry import Measure
from clip_geometry.registry import Registry

evaluators: Registry[Measure] = Registry("evaluator", "clip-geometry list evaluators")


def add_evaluator(shared: Measure, numbers: Mapping[str, Mapping[str, Any]]) -> None:
    """Registers each number that the function of `shared` returns, as `shared.name.number`.

    numbers: name of the number → what is its own: title, summary, reading, range, direction, … The rest is shared.
    """
    for number, own in numbers.items():
        name = f"{shared.name}.{number}"
        evaluators.add(name, replace(shared, name=name, attribute=number, **own))
