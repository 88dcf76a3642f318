"""Predictions of the theory of wide random networks for a traced tower, operation by operation."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from clip_geometry.encoders.trace import Affine, Norm, Operation, Trace
from clip_geometry.geometry import random_network as theory
from clip_geometry.registry import InputError


class State(NamedTuple):
    """kernel: (n, n) of n rows. mean: (n,) of each over its coordinates, which only layer norm looks at."""

    kernel: Tensor
    mean: Tensor


def predicted_cosines(trace: Trace, *, from_start: bool = False) -> list[float | None]:
    """The average cosine after each operation by the kernel recursion; None where the theory does not apply.

    Weights and biases enter by their mean squares.

    Args:
        trace: The operations of a tower and the rows after each.
        from_start: Start each operation from the prediction before it rather than from the measured rows, so that
            errors accumulate and only embedding and attention are measured.
    """
    states: list[State] = []
    cosines: list[float | None] = []
    for operation, rows in zip(trace.operations, trace.rows, strict=True):
        measured = State(theory.kernel(rows), rows.double().mean(1))
        if not operation.sources:
            states.append(measured)
            cosines.append(None)
            continue
        expected = after(operation, [states[k] for k in operation.sources])
        states.append(expected if from_start else measured)
        cosines.append(average_cosine_of(expected))
    return cosines


def average_cosine_of(state: State) -> float | None:
    """None if a row is zero."""
    try:
        return float(theory.kernel_average_cosine(state.kernel))
    except InputError:
        return None


def after(operation: Operation, sources: list[State]) -> State:
    """The predicted state after an operation on the sum of its sources."""
    kernel, mean = sources[0]
    for source in sources[1:]:
        kernel, mean = theory.residual(kernel, source.kernel), mean + source.mean
    for step in operation.steps:
        if isinstance(step, Norm):
            kernel = theory.layer_norm(kernel, mean, eps=step.eps)
        elif isinstance(step, Affine):
            kernel = theory.linear(kernel, fan_in=step.fan_in, weight=step.weight, bias=step.bias)
        else:
            kernel = theory.relu(kernel) if isinstance(step, nn.ReLU) else theory.activation(kernel, step)
        mean = torch.zeros_like(mean)  # weights have mean zero
    return State(kernel, mean)
