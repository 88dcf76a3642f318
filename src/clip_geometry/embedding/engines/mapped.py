"""Memory maps sent to workers by the name of their file, which workers open themselves."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from clip_geometry.registry import InputError

Described = tuple[str, str, tuple[int, ...], int] | np.ndarray


def described(mapped: np.memmap) -> Described:
    """(file, dtype, shape, bytes before it), or its values where it is not a run of rows of a file that has them."""
    base = getattr(mapped, "_mmap", None)
    if base is None or mapped.filename is None or not mapped.flags.c_contiguous or mapped.size == 0:
        return np.array(mapped)
    if mapped.mode == "c":  # copy on write: what was changed is in this process only
        return np.array(mapped)
    # a part of a map keeps the offset of the whole, which is from the page it begins in
    begin = np.frombuffer(base, np.uint8).ctypes.data
    page = mapped.offset - mapped.offset % _granularity()
    return str(mapped.filename), mapped.dtype.str, mapped.shape, page + mapped.ctypes.data - begin


def opened(description: Described) -> Any:
    if isinstance(description, np.ndarray):
        return description
    name, dtype, shape, offset = description
    try:
        return np.memmap(name, dtype=dtype, mode="r", offset=offset, shape=shape)
    except (OSError, ValueError) as error:
        return Unreadable(f"a worker cannot read {name} ({error}): all machines of the cluster need it under this name")


@dataclass(frozen=True)
class Unreadable:
    """In place of a map that cannot be opened: Ray would print the traceback of what fails on arrival, and not tell
    what it was. An error as soon as rows are asked for."""

    why: str

    def __getitem__(self, rows: Any) -> Any:
        raise InputError(self.why)


def _granularity() -> int:
    import mmap

    return mmap.ALLOCATIONGRANULARITY
