"""The operations of a tower: where each is found in the model, and what it does to rows, as far as theory knows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor, nn


@dataclass(frozen=True)
class Norm:
    """Layer normalisation without its gain and bias, which follow as an `Affine`."""

    eps: float


@dataclass(frozen=True)
class Affine:
    """x ↦ W x + b by the mean squares of the entries of W and b: all of a fresh layer that wide networks depend on."""

    fan_in: int
    weight: float
    bias: float = 0.0

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, *, fan_in: int, gain: Tensor | None = None) -> "Affine":
        """gain: (width,) factors that follow on the result."""
        factor = 1.0 if gain is None else _mean_square(gain)
        return cls(fan_in, factor * _mean_square(weight), 0.0 if bias is None else factor * _mean_square(bias))


def _mean_square(values: Tensor) -> float:
    return float(values.detach().double().square().mean())


Step = Norm | Affine | Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation; its rows are the input or the output of `module` (None: the tower's result).

    layer: 0 before the first block, then the number of the block, one more after the last. sources: indices of the
    operations whose sum it starts from; steps: what happens to the sum. Without sources theory says nothing of it.
    """

    layer: int
    name: str
    module: nn.Module | None
    side: Literal["input", "output"] = "output"
    sources: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, eq=False)
class Tower:
    """operations in their order. last: what leads from them to the embeddings, None where nothing does.

    pooling: from a batch to the function that takes one row of each input from a hidden state.
    """

    operations: tuple[Operation, ...]
    pooling: Callable[[Any], Callable[[Tensor], Tensor]]
    last: Operation | None = None


@dataclass(frozen=True, eq=False)
class Block:
    """Modules of one transformer block. attention, mlp: the two branches as they are added to the stream."""

    norms: tuple[Any, Any]
    attention: nn.Module
    mlp: nn.Module
    steps: tuple[Step, ...]
    end: nn.Module


def pre_norm(start: list[Operation], blocks: list[Block]) -> list[Operation]:
    """x + f(norm(x)), twice a block; `start` ends with the stream x."""
    found = list(start)
    for layer, block in enumerate(blocks, start=1):
        n = len(found)
        found += [
            Operation(layer, "attention normalisation", block.norms[0], "output", (n - 1,), norm_steps(block.norms[0])),
            Operation(layer, "attention", block.attention),
            Operation(layer, "attention residual", block.norms[1], "input", (n - 1, n + 1)),
            Operation(layer, "mlp normalisation", block.norms[1], "output", (n + 2,), norm_steps(block.norms[1])),
            Operation(layer, "mlp", block.mlp, "output", (n + 3,) if block.steps else (), block.steps),
            Operation(layer, "mlp residual", block.end, "output", (n + 2, n + 4)),
        ]
    return found


def post_norm(start: list[Operation], blocks: list[Block]) -> list[Operation]:
    """norm(x + f(x)), twice a block; `start` ends with the stream x."""
    found = list(start)
    for layer, block in enumerate(blocks, start=1):
        n = len(found)
        found += [
            Operation(layer, "attention", block.attention),
            Operation(layer, "attention residual", block.norms[0], "input", (n - 1, n)),
            Operation(layer, "attention normalisation", block.norms[0], "output", (n + 1,), norm_steps(block.norms[0])),
            Operation(layer, "mlp", block.mlp, "output", (n + 2,) if block.steps else (), block.steps),
            Operation(layer, "mlp residual", block.norms[1], "input", (n + 2, n + 3)),
            Operation(layer, "mlp normalisation", block.norms[1], "output", (n + 4,), norm_steps(block.norms[1])),
        ]
    return found


def norm_steps(norm: Any) -> tuple[Step, ...]:
    return (Norm(norm.eps), Affine.of(norm.weight, norm.bias, fan_in=1))


def linear_step(linear: nn.Linear, gain: Tensor | None = None) -> Affine:
    return Affine.of(linear.weight, linear.bias, fan_in=linear.in_features, gain=gain)


def without_theory(operations: list[Operation]) -> list[Operation]:
    """For rows that are means over tokens, which the operations do not map to one another."""
    return [replace(operation, sources=(), steps=()) for operation in operations]
