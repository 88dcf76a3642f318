"""Checks of the input of measures, and iteration over it in float64 blocks."""

import functools
import operator
from collections.abc import Iterable, Iterator
from itertools import chain
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clip_geometry.registry import InputError, shown
from clip_geometry.rows.arguments import Numbers, RowError, as_tensor, check_values, is_missing, whole_number
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.rows.threads import in_threads

Matrix: TypeAlias = Tensor | StreamedRows  # can be read in blocks

if TYPE_CHECKING:
    import numpy

    Rows: TypeAlias = Tensor | numpy.ndarray | StreamedRows  # (n, d), floating point
    Labels: TypeAlias = Tensor | numpy.ndarray | list  # (n,), anything that can be compared
    TwoSets: TypeAlias = tuple[Tensor, Tensor]  # or StreamedRows if `streams` is set
else:  # avoids importing numpy for a type
    Rows = Labels = TwoSets = Any

BLOCK = 4096  # rows per block: 16 MB of float64 at d = 512
SUMMED = 16384  # rows per block for sums, which take less time than synchronizing threads
UNIT = 8 * torch.finfo(torch.float64).eps  # tolerance for a squared length that is 1 up to rounding
CACHED = 256  # rows whose float64 copy stays in the cache from one step to the next


def as_rows(x: Rows, *, name: str = "x", least: int = 2, least_d: int = 1) -> Float[Tensor, "n d"]:
    """Return `x` as a finite floating-point matrix, without changing its precision or device.

    Raises InputError for fewer than `least` rows or `least_d` columns, and for rows that are not in memory; functions
    that can read rows in blocks use `as_matrix`.
    """
    if isinstance(x, StreamedRows):
        raise InputError(
            f"the {len(x)} rows of {name} are streamed, but all are needed in memory here; give a sample of them as an "
            "array"
        )
    rows: Any = as_matrix(x, name=name, least=least, least_d=least_d)
    return rows


def as_matrix(x: Rows, *, name: str = "x", least: int = 2, least_d: int = 1) -> Float[Matrix, "n d"]:
    """Like `as_rows`, but return StreamedRows unchanged; their values are checked when they are read."""
    x = x if isinstance(x, StreamedRows) else as_tensor(x, name)
    n, d = x.shape
    if d < least_d:
        raise InputError(f"{name} has {d} {'column' if d == 1 else 'columns'}; expected at least {least_d}")
    if n < least:
        raise InputError(f"{name} has {n} {'row' if n == 1 else 'rows'}; expected at least {least}")
    if isinstance(x, Tensor):
        check_values(x, name)
    return x


def as_two_sets(
    x: Rows,
    y: Rows,
    names: tuple[str, str] = ("x", "y"),
    *,
    least: int = 2,
    one_space: bool = True,
    streams: bool = False,
) -> TwoSets:
    """Return two checked matrices, of the same dimension unless `one_space` is False.

    With `streams`, both are StreamedRows if one of them is.
    """
    streamed = streams and (isinstance(x, StreamedRows) or isinstance(y, StreamedRows))
    sets = []
    for rows, name in zip((x, y), names, strict=True):
        if streamed and not isinstance(rows, StreamedRows):
            rows = StreamedRows.of(as_rows(rows, name=name, least=0), name=name)
        sets.append((as_matrix if streamed else as_rows)(rows, name=name, least=least))
    first, second = sets
    if one_space and first.shape[1] != second.shape[1]:
        sizes = f"{names[0]} has dimension {first.shape[1]} and {names[1]} has {second.shape[1]}"
        raise InputError(f"{sizes}; expected the same dimension")
    return first, second.to(first.device)


def as_aligned(x: Rows, y: Rows, names: tuple[str, str] = ("x", "y"), **options: Any) -> TwoSets:
    """Like `as_two_sets`, but also require that the rows pair one to one."""
    first, second = as_two_sets(x, y, names, **options)
    if len(first) != len(second):
        sizes = f"{names[0]} has {len(first)} rows and {names[1]} has {len(second)}"
        raise InputError(f"{sizes}; expected pairs, row i with row i")
    return first, second


def blocks(x: Float[Matrix, "n d"], size: int = BLOCK) -> Iterator[Float[Tensor, "b d"]]:
    """Yield the rows in float64, `size` at a time, so that a large float16 matrix is never copied as a whole."""
    for start in range(0, len(x), size):
        yield x[start : start + size].double()


def in_one_piece(parts: Iterable[Tensor], n: int) -> Tensor:
    """Concatenate the results of blocks of n rows; without a gradient, write each into its place at once.

    Small results between the blocks would otherwise keep the allocator from reusing the memory of freed blocks.
    """
    parts = iter(parts)
    first = next(parts)
    if first.requires_grad:
        return torch.cat([first, *parts])
    out = first.new_empty((n, *first.shape[1:]))
    filled = 0
    for part in chain([first], parts):
        out[filled : filled + len(part)] = part
        filled += len(part)
    return out


def total(parts: Iterable[Tensor]) -> Tensor:
    """Return the sum of the parts, keeping only one part in memory; without a gradient, add in place."""
    parts = iter(parts)
    first = next(parts)
    if first.requires_grad:
        return functools.reduce(operator.add, parts, first)
    return functools.reduce(operator.iadd, parts, first.clone())


def mean_row(x: Float[Matrix, "n d"]) -> Float[Tensor, " d"]:
    """Return the mean of the rows in float64, exact if all rows are equal.

    It is computed in two passes, or relative to the first row for StreamedRows.
    """
    if not isinstance(x, StreamedRows):
        mean = x.new_zeros(x.shape[1], dtype=torch.float64)
        for _ in range(2):
            residual = torch.zeros_like(mean)
            for block in blocks(x):
                residual = residual + (block - mean).sum(0)
            mean = mean + residual / len(x)
        return mean
    if "mean" not in x.known:
        first = x[0].double()

        def sum_from_first(block: Tensor) -> Tensor:
            return total((part.double() - first).sum(0) for part in block.split(CACHED))

        def accumulate(offset: Tensor, block: Tensor, along: Tensor | None) -> Tensor:
            return offset.add_(total(in_threads(sum_from_first, block)))

        offset = x.aggregate(lambda: torch.zeros_like(first), accumulate, operator.add, SUMMED)
        x.known["mean"] = first + offset / len(x)
    return x.known["mean"]


def about(x: Float[Matrix, "n d"], center: Float[Tensor, " d"]) -> Any:
    """Return the rows minus `center`, in float64, because products of rows far from the origin would cancel."""
    if isinstance(x, StreamedRows):
        return x.map(lambda block, _: block.double() - center, len(center))
    return x.double() - center


def unit_rows(x: Float[Matrix, "n d"], *, name: str = "x") -> Any:
    """Return the rows scaled to length 1, in float64. A zero row raises an error; StreamedRows use their own name in
    it."""
    if isinstance(x, StreamedRows):
        if "unit" not in x.known:
            unit = x.map(lambda block, numbers: _unit(block.double(), x.name, numbers), x.shape[1])
            x.known["unit"] = unit.known["unit"] = unit  # unit rows are their own unit rows
        return x.known["unit"]
    return in_one_piece(unit_blocks(x, name=name), len(x))


def as_unit_rows(x: Float[Matrix, "n d"], *, name: str = "x") -> Float[Matrix, "n d"]:
    """Like `unit_rows`, but return float64 rows that have length 1 up to rounding unchanged, without a copy."""
    if isinstance(x, StreamedRows) or x.dtype != torch.float64 or x.requires_grad:
        return unit_rows(x, name=name)
    is_unit = all(((block.square().sum(1) - 1).abs() <= UNIT).all() for block in x.split(BLOCK))
    return x if is_unit else unit_rows(x, name=name)


def unit_array(x: Any) -> Any:
    """Return unit rows as a float64 array without gradient; StreamedRows remain StreamedRows."""
    unit = unit_rows(as_matrix(x, name="rows", least=1), name="rows")
    return unit if isinstance(unit, StreamedRows) else unit.detach().cpu().numpy()


def unit_blocks(
    x: Float[Matrix, "n d"], *, name: str = "x", size: int = 1024, dtype: torch.dtype = torch.float64
) -> Iterator[Float[Tensor, "b d"]]:
    """Yield the rows scaled to length 1, `size` at a time."""
    for start in range(0, len(x), size):
        yield _unit(x[start : start + size].to(dtype), name, range(start, len(x)))


def _unit(block: Float[Tensor, "b d"], name: str, numbers: Numbers) -> Float[Tensor, "b d"]:
    """Scale rows to length 1; raise RowError with the number of the first zero row."""
    # dividing by the largest entry first keeps the squares of rows of any scale in range
    largest = block.detach().abs().amax(1, keepdim=True)
    if (largest == 0).any():
        row = int(numbers[int((largest == 0).nonzero()[0, 0])])
        raise RowError(f"{name} has a zero row (row {row}), which has no direction; remove such rows first")
    block = block / largest
    return block / block.norm(dim=1, keepdim=True)


def require_spread(x: Float[Matrix, "n d"], *, name: str = "x") -> None:
    """Raise InputError if all rows are equal; the check is exact, since rounding would turn 0/0 into a plausible
    number."""
    if torch.equal(x[0], x[1]) and all((block == x[0].double()).all() for block in blocks(x)):
        raise InputError(
            f"all {len(x)} rows of {name} are equal, so the measure is undefined; expected rows that differ"
        )


def as_codes(
    labels: Labels, n: int, *, name: str = "labels", row: str = "row", least: int = 2
) -> tuple[Int[Tensor, " n"], int]:
    """Return labels as codes 0..K-1 in order of appearance, and K.

    `name` is the name of the labels in messages, and `row` the name of what a label belongs to. `least` is the smallest
    allowed K.
    """
    values = as_values(labels, n, name=name, row=row)
    codes: dict[Any, int] = {}
    try:
        coded = torch.tensor([codes.setdefault(value, len(codes)) for value in values], dtype=torch.long)
    except Exception:  # unhashable values such as lists, or any error of a foreign __hash__
        raise InputError(f"{name} are not single values that can be compared; expected one label per {row}") from None
    if len(codes) < least:
        raise InputError(f"all {n} {name} are equal; expected at least two different {name}")
    return coded, len(codes)


def class_indices(
    labels: Labels,
    n: int,
    k: int,
    *,
    name: str = "labels",
    rows: str = "image",
    of: str = "rows of class_text",
) -> Int[Tensor, " n"]:
    """Return labels that are whole numbers 0..k−1, one for each of n rows. Raises InputError for anything else.

    In messages, `name` is the name of the labels, `rows` of what they belong to, and `of` of what they are indices of.
    """
    values = as_values(labels, n, name=name, row=f"row of {rows}")
    for row, value in enumerate(values):
        if type(value) is not int or not 0 <= value < k:
            values[row] = whole_number(value, f"{name}[{row}]", least=0, most=k - 1, of=f", an index of the {of}")
    return torch.tensor(values, dtype=torch.long)


def as_values(labels: Any, n: int | None = None, *, name: str = "labels", row: str = "row") -> list:
    """Return the n values of a sequence, an array or a tensor as plain Python values.

    Raises InputError for anything else, and for missing values.
    """
    values = list(labels) if isinstance(labels, list | tuple | range) else _listed(labels)
    if values is None:
        raise InputError(f"{name} = {shown(labels)}; expected a list, an array or a tensor, one label per {row}")
    if n is not None and len(values) != n:
        raise InputError(f"{len(values)} {name} for {n} rows; expected one label per {row}")
    if set(map(type, values)) <= {int, str, bool}:  # values of these types cannot be missing
        return values
    # single tensors hash by identity, not by value
    values = [_listed(value, Real) if isinstance(value, Tensor) else value for value in values]
    for k, value in enumerate(values):
        if is_missing(value):
            raise InputError(f"{name} lack a value in row {k} ({shown(value)}); expected one label per {row}")
    return values


def _listed(labels: Any, kinds: Any = list) -> Any:
    """Return the values of an array or a tensor as a list; None if there are no values or they are not of `kinds`."""
    try:
        # tolist() would turn missing dates into numbers
        if getattr(getattr(labels, "dtype", None), "kind", "") in tuple("Mm"):
            return list(labels)
        values = labels.tolist()
    except Exception:  # no tolist(), or tensors without values
        return None
    return values if isinstance(values, kinds) else None
