"""Evaluators: functions of embeddings that return several numbers, each described like a measure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clip_geometry.geometry import Measure
from clip_geometry.registry import Registry

evaluators: Registry[Measure] = Registry("evaluator", "clip-geometry list evaluators")


def add_evaluator(shared: Measure, numbers: Mapping[str, Mapping[str, Any]]) -> None:
    """Register each number that the function of `shared` returns, as `shared.name.number`.

    Args:
        shared: The function and what its numbers have in common.
        numbers: Name of the number → fields of its own: title, summary, reading, range, direction, ….
    """
    for number, own in numbers.items():
        name = f"{shared.name}.{number}"
        evaluators.add(name, replace(shared, name=name, attribute=number, **own))
