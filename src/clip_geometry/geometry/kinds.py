"""Result types that follow the input: a number is a tensor for tensor input, and a float for arrays."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, overload, runtime_checkable

import torch
from torch import Tensor

from clip_geometry.geometry.statistics.statistic import Statistic
from clip_geometry.rows.matrix import Rows
from clip_geometry.rows.streamed import StreamedRows

if TYPE_CHECKING:
    import numpy

# types of the fields of a result, which type checkers cannot express
Value: TypeAlias = Any  # a 0-d tensor or a float
Values: TypeAlias = Any  # a tensor or an array

P = ParamSpec("P")
OfTensors = TypeVar("OfTensors", covariant=True)
OfArrays = TypeVar("OfArrays", covariant=True)
Result = TypeVar("Result", bound=tuple | dict)


class DataFrameLike(Protocol):
    """A pandas DataFrame or a similar table."""

    def to_numpy(self) -> Any: ...


@runtime_checkable  # needed by the tests, which check all types
class InKind(Protocol[P, OfTensors, OfArrays]):
    """Type of a function decorated with `in_kind`, for type checkers."""

    __name__: str

    @overload
    def __call__(self, x: Tensor | StreamedRows | Statistic, /, *args: P.args, **kwargs: P.kwargs) -> OfTensors: ...
    @overload
    def __call__(
        self, x: "numpy.ndarray | DataFrameLike | Sequence[Any]", /, *args: P.args, **kwargs: P.kwargs
    ) -> OfArrays: ...
    @overload
    def __call__(self, **kwargs: Any) -> Any: ...


@overload
def in_kind(function: Callable[Concatenate[Rows, P], Tensor]) -> InKind[P, Tensor, float]: ...
@overload
def in_kind(
    function: Callable[Concatenate[Rows, P], Mapping[str, Tensor | float]],
) -> InKind[P, dict[str, Tensor], dict[str, float]]: ...
@overload
def in_kind(function: Callable[P, Result]) -> Callable[P, Result]: ...


def in_kind(function: Callable[..., Any]) -> Any:
    """Decorate a function of rows so that its tensors or floats are returned in the type of the rows."""

    @functools.wraps(function)
    def returned(*args: Any, **kwargs: Any) -> Any:
        return as_given(function(*args, **kwargs), (*args, *kwargs.values()))

    return returned


if TYPE_CHECKING:  # at runtime the shape tells vectors from numbers; type checkers need two decorators

    def arrays_in_kind(function: Callable[Concatenate[Rows, P], Tensor]) -> InKind[P, Tensor, numpy.ndarray]: ...
else:
    arrays_in_kind = in_kind


def as_given(result: Any, given: Iterable[Any]) -> Any:
    """Return `result`, and every number in it, in the type of the rows.

    `given` holds the arguments, which may include labels. If the rows are a tensor, or one of several sets is, the
    result is tensors on the device of the rows; otherwise it is floats and numpy arrays. Results computed from
    StreamedRows or statistics are returned unchanged.
    """
    device = None
    for argument in given:
        if isinstance(argument, StreamedRows | Statistic):
            return result
        device = device or _device(argument)
    return _converted(result, device)


def _device(argument: Any) -> torch.device | None:
    """Return the device of rows that are a tensor or a list of tensors; None for anything else, such as labels."""
    dims = 2
    if isinstance(argument, list | tuple) and argument:
        argument, dims = argument[0], 1
    return (
        argument.device
        if isinstance(argument, Tensor) and argument.ndim == dims and argument.is_floating_point()
        else None
    )


def _converted(result: Any, device: torch.device | None) -> Any:
    """Convert tensors in a result to the caller's type: tensors on `device`, or arrays and floats for None."""
    if isinstance(result, Mapping):
        return {name: _converted(value, device) for name, value in result.items()}
    if hasattr(result, "_fields"):  # a named tuple
        return type(result)(*(_converted(value, device) for value in result))
    if isinstance(result, float):
        return float(result) if device is None else torch.tensor(result, dtype=torch.float64, device=device)
    if not isinstance(result, Tensor):
        return result
    if device is not None:
        return result.to(device)
    return result.detach().cpu().numpy() if result.ndim else result.item()
