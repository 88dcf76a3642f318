"""Which values rows may have."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.registry import InputError

if TYPE_CHECKING:
    Numbers: TypeAlias = Sequence[int] | Int[Tensor, " b"]  # which rows of a matrix those of a block are
else:
    Numbers = object


class RowError(InputError):
    """A row that is zero, or holds NaN or infinity."""


SMALLEST = 1e-140  # sums of squares of smaller (or, inverted, larger) entries leave the range of float64


def check_values(x: Float[Tensor, "n d"], name: str, numbers: Numbers | None = None) -> None:
    """Finite, and of a size whose squares are finite: only float64 can hold others. numbers: those of the rows."""
    if len(x) == 0:
        return
    least, most = (float(bound) for bound in x.detach().aminmax())
    largest = max(-least, most)
    if largest != largest or largest == float("inf"):  # NaN passes through minimum and maximum
        row = next(k for k, row in enumerate(x.detach()) if not torch.isfinite(row).all())
        row = row if numbers is None else int(numbers[row])
        raise RowError(f"{name} has NaN or infinity in row {row}; remove or repair such rows first")
    if largest > 1 / SMALLEST or 0 < largest < SMALLEST:
        raise InputError(f"{name} has entries up to {largest:.0e}, whose squares leave float64; rescale the rows first")


def is_missing(value: Any) -> bool:
    """Whether it is None, NaN, NaT or pandas' NA."""
    try:
        return value is None or bool(value != value)
    except Exception:  # pandas' NA is neither true nor false
        return type(value).__name__ == "NAType"
