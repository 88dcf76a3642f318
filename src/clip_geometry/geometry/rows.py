"""What every measure does to its input first: check it, and walk through it in float64 blocks."""

import functools
import operator
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.geometry.streamed import StreamedRows
from clip_geometry.geometry.threads import in_threads
from clip_geometry.geometry.values import Numbers, check_values
from clip_geometry.registry import InputError

Matrix: TypeAlias = Tensor | StreamedRows  # what can be walked through in blocks

if TYPE_CHECKING:
    import numpy

    Rows: TypeAlias = Tensor | numpy.ndarray | StreamedRows  # (n, d), floating point
    Labels: TypeAlias = Tensor | numpy.ndarray | list  # (n,), anything that can be compared
else:  # numpy is not imported for a type
    Rows = Labels = Any

BLOCK = 4096  # rows a block: 16 MB of float64 at d = 512
SUMMED = 16384  # rows read at a time for sums, which take less time than threads need to meet
CACHED = 256  # rows whose copy in float64 stays in the cache from one step to the next


def as_rows(x: Rows, *, name: str = "x", least: int = 2, least_d: int = 1) -> Float[Tensor, "n d"]:
    """`x` as a finite floating-point matrix of at least so many rows and columns, in its own precision and place.

    Raises InputError for rows that are not in memory: who can walk through them takes `as_matrix`.
    """
    if isinstance(x, StreamedRows):
        raise InputError(f"all {len(x)} rows of {name} are needed in memory here, and they are streamed; take a part")
    x = _as_tensor(x, name)
    _check_shape(x, name, least, least_d)
    check_values(x, name)
    return x


def as_matrix(x: Rows, *, name: str = "x", least: int = 2, least_d: int = 1) -> Float[Matrix, "n d"]:
    """The same, or StreamedRows as they are, whose values are checked as they are read."""
    if not isinstance(x, StreamedRows):
        return as_rows(x, name=name, least=least, least_d=least_d)
    _check_shape(x, name, least, least_d)
    return x


def _check_shape(x: Matrix, name: str, least: int, least_d: int) -> None:
    if x.ndim != 2:
        raise InputError(f"{name} has shape {tuple(x.shape)}; expected a matrix (n, d), one row per embedding")
    if not x.dtype.is_floating_point:
        raise InputError(f"{name} has dtype {_dtype(x)}; expected floating point")
    n, d = x.shape
    if d < least_d:
        raise InputError(f"{name} has {d} {'column' if d == 1 else 'columns'}; expected at least {least_d}")
    if n < least:
        raise InputError(f"{name} has {n} {'row' if n == 1 else 'rows'}; expected at least {least}")


def as_aligned(x: Rows, y: Rows, names: tuple[str, str] = ("x", "y"), *, least: int = 2, one_space: bool = True):
    """Two matrices whose rows belong together one to one, of the same dimension unless `one_space` is False."""
    x, y = as_two_sets(x, y, names, least=least, one_space=one_space)
    _check_pairs(x, y, names)
    return x, y


def as_aligned_matrices(
    x: Rows, y: Rows, names: tuple[str, str] = ("x", "y"), *, least: int = 2, one_space: bool = True
):
    """The same, or StreamedRows both."""
    x, y = as_two_matrices(x, y, names, least=least, one_space=one_space)
    _check_pairs(x, y, names)
    return x, y


def as_two_sets(x: Rows, y: Rows, names: tuple[str, str] = ("x", "y"), *, least: int = 2, one_space: bool = True):
    """Two matrices, of the same dimension unless `one_space` is False."""
    x, y = as_rows(x, name=names[0], least=least), as_rows(y, name=names[1], least=least)
    if one_space:
        _check_space(x, y, names)
    return x, y.to(x.device)


def as_two_matrices(x: Rows, y: Rows, names: tuple[str, str] = ("x", "y"), *, least: int = 2, one_space: bool = True):
    """The same, or StreamedRows both."""
    if not isinstance(x, StreamedRows) and not isinstance(y, StreamedRows):
        return as_two_sets(x, y, names, least=least, one_space=one_space)
    x, y = _as_streamed(x, names[0]), _as_streamed(y, names[1])
    x, y = as_matrix(x, name=names[0], least=least), as_matrix(y, name=names[1], least=least)
    if one_space:
        _check_space(x, y, names)
    return x, y


def _check_pairs(x: Matrix, y: Matrix, names: tuple[str, str]) -> None:
    if len(x) != len(y):
        raise InputError(f"{names[0]} has {len(x)} rows and {names[1]} has {len(y)}; expected pairs, row i with row i")


def _check_space(x: Matrix, y: Matrix, names: tuple[str, str]) -> None:
    if x.shape[1] != y.shape[1]:
        raise InputError(
            f"{names[0]} has dimension {x.shape[1]} and {names[1]} has {y.shape[1]}; expected the same dimension"
        )


def _as_streamed(x: Rows, name: str) -> StreamedRows:
    return x if isinstance(x, StreamedRows) else StreamedRows.of(as_rows(x, name=name, least=0), name=name)


def _as_tensor(x: Any, name: str) -> Tensor:
    if isinstance(x, Tensor):
        if x.layout != torch.strided or x.is_meta:
            raise InputError(f"{name} is a {x.layout} tensor on {x.device}; expected a dense one with values")
        return x
    if hasattr(x, "compressed"):  # numpy.ma
        raise InputError(f"{name} is a masked array; drop the masked rows and give the rest as a plain array")
    if not hasattr(x, "__array__"):
        raise InputError(f"{name} is a {type(x).__name__}; expected a numpy array or a torch tensor (n, d)")
    x = x if hasattr(x, "strides") else x.__array__()  # a pandas table, say
    if x.dtype.kind not in "fiub":
        raise InputError(f"{name} has dtype {x.dtype}; expected floating point")
    # torch has no negative strides, no strides within an element and no byte orders
    if any(stride < 0 or stride % x.itemsize for stride in x.strides) or not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="), order="C")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # we only read
        try:
            return torch.from_numpy(x)
        except TypeError:
            raise InputError(f"{name} has dtype {x.dtype}; expected float16, float32 or float64") from None


def _dtype(x: Matrix) -> str:
    return str(x.dtype).removeprefix("torch.")


def blocks(x: Float[Matrix, "n d"], size: int = BLOCK) -> Iterator[Float[Tensor, "b d"]]:
    """The rows in float64, `size` at a time, so that a large float16 matrix is never copied whole."""
    for start in range(0, len(x), size):
        yield x[start : start + size].double()


def total(parts: Iterable[Tensor]) -> Tensor:
    """Their sum, of which only one is kept at a time."""
    return functools.reduce(operator.add, parts)


def mean_row(x: Float[Matrix, "n d"]) -> Float[Tensor, " d"]:
    """Mean of the rows in float64; the second pass makes it exact where all rows are equal."""
    if isinstance(x, StreamedRows):
        return _streamed_mean(x)
    mean = torch.stack([block.sum(0) for block in blocks(x)]).sum(0) / len(x)
    return mean + torch.stack([(block - mean).sum(0) for block in blocks(x)]).sum(0) / len(x)


def _streamed_mean(x: StreamedRows) -> Float[Tensor, " d"]:
    """In one pass, about the first row: exact, too, where all rows are equal."""
    if "mean" not in x.known:
        first = x[0].double()

        def from_first(block: Tensor) -> Tensor:
            return total((part.double() - first).sum(0) for part in block.split(CACHED))

        def accumulate(summed: Tensor, block: Tensor, along: Tensor | None) -> Tensor:
            return summed + total(in_threads(from_first, block))

        summed = x.aggregate(lambda: torch.zeros_like(first), accumulate, operator.add, SUMMED)
        x.known["mean"] = first + summed / len(x)
    return x.known["mean"]


@overload
def unit_rows(x: Tensor, *, name: str = "x") -> Tensor: ...
@overload
def unit_rows(x: StreamedRows, *, name: str = "x") -> StreamedRows: ...


def unit_rows(x: Float[Matrix, "n d"], *, name: str = "x") -> Float[Matrix, "n d"]:
    """Rows of length 1 in float64; a zero row is an error."""
    if isinstance(x, StreamedRows):
        return x.map(lambda block, numbers: _unit(block.double(), name, numbers), x.shape[1])
    return torch.cat(list(unit_blocks(x, name=name)))


def unit_blocks(x: Float[Matrix, "n d"], *, name: str = "x", size: int = 1024) -> Iterator[Float[Tensor, "b d"]]:
    """The same, `size` rows at a time."""
    for k, block in enumerate(blocks(x, size)):
        yield _unit(block, name, range(k * size, len(x)))


def _unit(block: Float[Tensor, "b d"], name: str, numbers: Numbers) -> Float[Tensor, "b d"]:
    # dividing by the largest entry first keeps the squares of rows of any scale in range
    largest = block.detach().abs().amax(1, keepdim=True)
    if (largest == 0).any():
        row = int(numbers[int((largest == 0).nonzero()[0, 0])])
        raise InputError(f"{name} has a zero row (row {row}), which has no direction; remove such rows first")
    block = block / largest
    return block / block.norm(dim=1, keepdim=True)


def require_spread(x: Float[Matrix, "n d"], *, name: str = "x") -> None:
    """An error where all rows are equal: checked exactly, since rounding would turn 0/0 into a plausible number."""
    if torch.equal(x[0], x[1]) and all((block == x[0].double()).all() for block in blocks(x)):
        raise InputError(f"all {len(x)} rows of {name} are equal; the measure is undefined without spread")


def as_codes(labels: Labels, n: int) -> tuple[Int[Tensor, " n"], int]:
    """Labels as codes 0..K-1 in order of appearance, and K; at least two different ones."""
    values = _as_values(labels)
    if len(values) != n:
        raise InputError(f"{len(values)} labels for {n} rows; expected one label per row")
    codes: dict[Any, int] = {}
    try:
        if any(value is None or value != value for value in values):
            raise InputError("labels contain missing values (None or NaN); expected one label per row")
        coded = torch.tensor([codes.setdefault(value, len(codes)) for value in values])
    except (TypeError, RuntimeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("labels are not single values that can be compared; expected one label per row") from None
    if len(codes) < 2:
        raise InputError(f"all {n} labels are equal; expected at least two different labels")
    return coded, len(codes)


def _as_values(labels: Any) -> list:
    """Plain Python values of a sequence, an array or a tensor."""
    if isinstance(labels, list | tuple | range):
        return [label.item() if isinstance(label, Tensor) and label.ndim == 0 else label for label in labels]
    values = labels.tolist() if hasattr(labels, "tolist") else None
    if not isinstance(values, list):
        raise InputError(f"labels are a {type(labels).__name__}; expected a list, an array or a tensor, one per row")
    return values
