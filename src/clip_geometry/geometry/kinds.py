"""What comes out has the kind of what went in: a number is a tensor for tensors and a float for arrays."""

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

# the fields of a result, for which type checkers have no word
Value: TypeAlias = Any  # a 0-d tensor or a float
Values: TypeAlias = Any  # a tensor or an array

P = ParamSpec("P")
OfTensors = TypeVar("OfTensors", covariant=True)
OfArrays = TypeVar("OfArrays", covariant=True)
Result = TypeVar("Result", bound=tuple | dict)


class DataFrameLike(Protocol):
    """A table of pandas or its like."""

    def to_numpy(self) -> Any: ...


@runtime_checkable  # by the tests, which check all types
class InKind(Protocol[P, OfTensors, OfArrays]):
    """What `in_kind` makes of a function, for type checkers."""

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
    """Decorator: what the function of rows computes as tensors or floats is returned in the kind of the rows."""

    @functools.wraps(function)
    def returned(*args: Any, **kwargs: Any) -> Any:
        return as_given(function(*args, **kwargs), (*args, *kwargs.values()))

    return returned


if TYPE_CHECKING:  # only its shape tells a vector from a number

    def arrays_in_kind(function: Callable[Concatenate[Rows, P], Tensor]) -> InKind[P, Tensor, numpy.ndarray]: ...
else:
    arrays_in_kind = in_kind


def as_given(result: Any, given: Iterable[Any]) -> Any:
    """`result`, and every number in it, in the kind of the rows among what was `given`, which may be labels too.

    Tensors on the device of the rows if these are a tensor (of several sets, one), floats and numpy arrays otherwise.
    What is computed from StreamedRows and statistics stays as it is.
    """
    device = None
    for each in given:
        if isinstance(each, StreamedRows | Statistic):
            return result
        device = device or _device(each)
    return _converted(result, device)


def _device(given: Any) -> torch.device | None:
    """Where rows are, as a tensor or a list of tensors; None for all else, as labels are."""
    dims = 2
    if isinstance(given, list | tuple) and given:
        given, dims = given[0], 1
    return given.device if isinstance(given, Tensor) and given.ndim == dims and given.is_floating_point() else None


def _converted(result: Any, device: torch.device | None) -> Any:
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
