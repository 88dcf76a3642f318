"""Conversion of arguments to tensors and plain Python values. Any other value raises an error that names the argument.

Rows must be floating-point numbers. They are used exactly as given, from any container.
"""

import math
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.registry import InputError, did_you_mean, printable, shown

if TYPE_CHECKING:
    from typing import Literal as Literal

    import numpy as np

    Integer: TypeAlias = int
    Number: TypeAlias = float
    Flag: TypeAlias = bool
    Numbers: TypeAlias = Sequence[int] | Int[Tensor, " b"]  # row numbers of the rows of a block
else:  # also accepts the numbers of NumPy and torch; other values raise InputError instead of a type checker's error
    Integer = Number = Flag = Any
    Numbers = object

    class Literal:
        def __class_getitem__(cls, words: Any) -> Any:
            return Any


T = TypeVar("T")

SEEDS = 2**32 - 1  # the largest seed that every generator accepts
LARGEST = 2**31 - 1  # limit for counts that the data does not bound
DRAWS = 100_000  # enough for p-values of 1e-5
# sums of squares of smaller entries, or of entries larger than the inverse, leave the range of float64
SMALLEST = 1e-140
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
EXPECTED = "expected floating point (float16, bfloat16, float32 or float64)"
_WARNINGS = threading.Lock()  # warning filters are shared by all threads
_DISPATCH = getattr(Tensor, "__torch_dispatch__", None)


class RowError(InputError):
    """Raised for a row that is zero or contains NaN or infinity."""


def as_tensor(x: Any, name: str) -> Tensor:
    """Return a matrix (n, d) as a tensor of the same precision, sharing its memory if torch can.

    `x` may be a tensor with any strides, with or without gradient; a NumPy array with any strides and byte order; an
    object that converts to one (pandas tables, memory maps, …); or a list of lists of floats or of tensors (d,). Raises
    InputError for anything else. This includes integers and booleans, which are more often labels, tokens or quantized
    rows than embeddings.
    """
    if isinstance(x, list | tuple) and x and all(isinstance(row, Tensor) for row in x):
        try:
            x = torch.stack(list(x))
        except (RuntimeError, TypeError):
            raise InputError(
                f"{name} is a list of tensors of different lengths, types or devices; expected one matrix (n, d)"
            ) from None
    if not isinstance(x, Tensor):
        x = _as_array(x, name)
        with _WARNINGS, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # the array is only read
            try:
                x = torch.from_numpy(x)
            except ValueError:  # torch supports neither negative strides nor strides within an element nor byte orders
                x = torch.from_numpy(x.astype(x.dtype.newbyteorder("="), order="C"))
    require_plain(x, name)
    if x.ndim != 2:
        raise InputError(f"{name} has shape {tuple(x.shape)}; expected a matrix (n, d), one row per embedding")
    if x.dtype not in FLOATS:
        raise InputError(f"{name} has dtype {str(x.dtype).removeprefix('torch.')}; {EXPECTED}")
    return x.resolve_neg()


def require_plain(x: Tensor, name: str) -> None:
    """Raise InputError for a tensor that does not hold its values as a dense array of numbers."""
    kind = None
    if getattr(type(x), "__torch_dispatch__", None) is not _DISPATCH:  # masked, fake, distributed, jagged
        kind = f"a {type(x).__name__}"
    elif x.is_nested:
        kind = "a nested tensor"
    elif x.is_quantized:
        kind = f"a quantized tensor ({x.dtype})"
    elif x.layout != torch.strided or x.is_meta:
        kind = f"a {x.layout} tensor on {x.device}"
    if kind is not None:
        raise InputError(f"{name} is {kind}; expected a dense tensor with values")


def _as_array(x: Any, name: str) -> "np.ndarray":
    """Convert rows to a numpy array of floating-point numbers; raise InputError for anything else."""
    import numpy as np

    is_list = isinstance(x, list | tuple)
    if isinstance(x, np.ma.MaskedArray) or (is_list and any(isinstance(row, np.ma.MaskedArray) for row in x)):
        raise InputError(f"{name} is a masked array; drop the masked rows and give the rest as a plain array")
    if isinstance(x, type) or not (is_list or hasattr(x, "__array__")):
        raise InputError(f"{name} is a {type(x).__name__}; expected a numpy array or a torch tensor (n, d)")
    try:
        array = np.asarray(x)
        if array.dtype == object and all(dtype.kind == "f" for dtype in getattr(x, "dtypes", (array.dtype,))):
            array = cast(Any, x).to_numpy("float64", na_value=np.nan)  # a pandas table with pandas' own float types
    except InputError:  # TokenRows
        raise
    except Exception:  # ragged lists, and any error of a foreign __array__
        raise InputError(
            f"{name} is a {type(x).__name__} that is not a table of numbers; expected rows of one length (n, d)"
        ) from None
    if array.dtype.kind != "f" or array.itemsize > 8:
        raise InputError(f"{name} has dtype {printable(str(array.dtype))[:60]}; {EXPECTED}")
    return array


def check_values(x: Float[Tensor, "n d"], name: str, numbers: Numbers | None = None) -> None:
    """Check that all values, and their squares, are finite; the squares of float64 values may not be.

    `numbers` are the row numbers for the error message.
    """
    if len(x) == 0:
        return
    lowest, highest = map(float, x.detach().aminmax())
    largest = max(-lowest, highest)
    if largest != largest or largest == float("inf"):  # minimum and maximum propagate NaN
        row = next(k for k, row in enumerate(x.detach()) if not torch.isfinite(row).all())
        row = row if numbers is None else int(numbers[row])
        raise RowError(f"{name} has NaN or infinity in row {row}; remove or repair such rows first")
    if largest > 1 / SMALLEST or 0 < largest < SMALLEST:
        raise InputError(f"{name} has entries up to {largest:.0e}, whose squares leave float64; rescale the rows first")


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or the NA of pandas."""
    try:
        return value is None or bool(value != value)
    except Exception:  # the NA of pandas has no truth value
        return type(value).__name__ == "NAType"


def whole_number(value: Any, name: str, *, least: int = 1, most: int = LARGEST, of: str = "") -> int:
    """Return `value` as an int from `least` to `most`.

    The integers of NumPy and torch are accepted; True and 2.0 are not. `of` is appended to the error message: it says
    what sets the bounds, or what else may be given. Raises InputError for anything else.
    """
    try:
        is_number = getattr(value, "ndim", 0) == 0 and not isinstance(_plain(value), bool)
        number = index(value) if is_number else None
    except Exception:  # an object without __index__, or any error of a foreign __index__
        number = None
    if number is None or not least <= number <= most:
        unbounded = most == LARGEST and (number is None or number < least)
        bounds = f"from {least} on" if unbounded else f"from {least} to {most}"
        raise InputError(f"{name} = {shown(value)}; expected a whole number {bounds}{of}")
    return number


def real_number(value: Any, name: str, allowed: Callable[[float], bool], expected: str) -> float:
    """Return `value` as a float for which `allowed` is true, which must be false for NaN.

    The numbers of NumPy and torch are accepted. `expected` describes the allowed numbers in the error message. Raises
    InputError for anything else.
    """
    try:
        plain = _plain(value)
        number = float(plain) if isinstance(plain, Real) and not isinstance(plain, bool) else math.nan
    except Exception:  # an integer beyond float64, or any error of a foreign object
        number = math.nan
    if not allowed(number):
        raise InputError(f"{name} = {shown(value)}; expected {expected}")
    return number


def positive_number(value: Any, name: str, *, of: str = "") -> float:
    """Return `value` as a positive, finite float. Raises InputError for anything else."""
    return real_number(value, name, lambda number: 0 < number < math.inf, f"a positive, finite number{of}")


def flag(value: Any, name: str) -> bool:
    """Return `value` if it is True or False, including the booleans of NumPy and torch.

    Raises InputError for anything else, because "no" is true in Python.
    """
    try:
        plain = value if isinstance(value, bool) else _plain(value)
    except Exception:  # any error of a foreign object
        plain = None
    if not isinstance(plain, bool):
        raise InputError(f"{name} = {shown(value)}; expected True or False")
    return plain


def one_of(value: T, name: str, known: Iterable[str]) -> T:
    """Return `value` if it is one of the known words. Raises InputError for anything else."""
    known = tuple(known)
    if not isinstance(value, str) or value not in known:
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        hint = hint or f"; known are {', '.join(map(repr, known))}"
        raise InputError(f"{name} {shown(value)} is unknown{hint}")
    return value


def members(value: Any) -> list | None:
    """Return the members of a list, an array, a set, … as a list, or None for a single value."""
    try:
        plain = _plain(value)
        return list(plain) if isinstance(plain, Iterable) and not isinstance(plain, str | bytes) else None
    except Exception:  # a tensor without values, or any error of a foreign object
        return None


def seed_number(value: Any) -> int:
    """Return a checked seed, which every generator accepts."""
    return whole_number(value, "seed", least=0, most=SEEDS)


def _plain(value: Any) -> Any:
    """Convert the values of NumPy and torch to Python values."""
    return value.tolist() if hasattr(value, "tolist") else value
