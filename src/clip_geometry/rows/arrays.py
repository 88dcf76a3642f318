"""The one way in for rows: whatever holds floating-point numbers, as a tensor, exactly; anything else is a sentence."""

import threading
import warnings
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from clip_geometry.registry import InputError, printable

if TYPE_CHECKING:
    import numpy as np

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_WARNINGS = threading.Lock()  # their filters are those of all threads
_DISPATCH = getattr(Tensor, "__torch_dispatch__", None)
EXPECTED = "expected floating point (float16, bfloat16, float32 or float64)"


def as_tensor(x: Any, name: str) -> Tensor:
    """A matrix (n, d) as a tensor of its own precision, which shares its memory where torch can.

    x: a tensor of any strides, with or without gradient; a NumPy array of any strides and byte order; what converts
    to one (pandas tables, memory maps, …); lists of lists of floats, or of tensors (d,). Raises InputError for
    anything else, integers and booleans too: they are more often labels, tokens or quantized rows than embeddings.
    """
    if isinstance(x, list | tuple) and x and all(isinstance(row, Tensor) for row in x):
        for k, row in enumerate(x):
            require_plain(row, f"row {k} of {name}")
        try:
            x = torch.stack(list(x))
        except (RuntimeError, TypeError):
            raise InputError(
                f"{name} is a list of tensors of different lengths, types or devices; expected one matrix (n, d)"
            ) from None
    if not isinstance(x, Tensor):
        x = _as_array(x, name)
        # torch has no negative strides, no strides within an element and no byte orders
        if any(stride < 0 or stride % x.itemsize for stride in x.strides) or not x.dtype.isnative:
            x = x.astype(x.dtype.newbyteorder("="), order="C")
        with _WARNINGS, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # we only read
            x = torch.from_numpy(x)
    require_plain(x, name)
    _require_matrix(x, name)
    if x.dtype not in FLOATS:
        raise InputError(f"{name} has dtype {str(x.dtype).removeprefix('torch.')}; {EXPECTED}")
    return x.resolve_neg()


def require_plain(x: Tensor, name: str) -> None:
    """Raises InputError for a tensor that does not hold its values as numbers, one after the other."""
    what = None
    if getattr(type(x), "__torch_dispatch__", None) is not _DISPATCH:  # masked, fake, distributed, jagged
        what = f"a {type(x).__name__}"
    elif x.is_nested or x.is_quantized:
        what = "a nested tensor" if x.is_nested else f"a quantized tensor ({x.dtype})"
    elif x.layout != torch.strided or x.is_meta:
        what = f"a {x.layout} tensor on {x.device}"
    if what is not None:
        raise InputError(f"{name} is {what}; expected a dense one with values")


def _require_matrix(x: Any, name: str) -> None:
    if x.ndim != 2:
        raise InputError(f"{name} has shape {tuple(x.shape)}; expected a matrix (n, d), one row per embedding")


def _as_array(x: Any, name: str) -> "np.ndarray":
    import numpy as np

    several = x if isinstance(x, list | tuple) else [x]
    if any(isinstance(part, np.ma.MaskedArray) for part in several):
        raise InputError(f"{name} is a masked array; drop the masked rows and give the rest as a plain array")
    if isinstance(x, type) or not (isinstance(x, list | tuple) or hasattr(x, "__array__")):
        raise InputError(f"{name} is a {type(x).__name__}; expected a numpy array or a torch tensor (n, d)")
    try:
        array = np.asarray(x)
        if array.dtype == object and all(dtype.kind == "f" for dtype in getattr(x, "dtypes", (array.dtype,))):
            array = cast(Any, x).to_numpy("float64", na_value=np.nan)  # a pandas table of its own types for floats
    except Exception:  # ragged lists, and whatever a foreign __array__ raises
        raise InputError(
            f"{name} is a {type(x).__name__} that is no table of numbers; expected rows of one length (n, d)"
        ) from None
    _require_matrix(array, name)
    if array.dtype.kind != "f" or array.itemsize > 8:
        raise InputError(f"{name} has dtype {printable(str(array.dtype))[:60]}; {EXPECTED}")
    return array
