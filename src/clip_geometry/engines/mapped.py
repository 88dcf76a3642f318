"""Memory maps sent to workers by the name of their file, which workers open themselves."""

from typing import Any

import numpy as np

Described = tuple[str, str, tuple[int, ...], int] | np.ndarray


def send_maps_by_name(ray: Any) -> None:
    """Without this Ray would send what lies in the file."""
    ray.util.register_serializer(np.memmap, serializer=described, deserializer=opened)


def described(mapped: np.memmap) -> Described:
    """(file, dtype, shape, bytes before it), or its values where it is not a run of rows of a file that is there."""
    base = getattr(mapped, "_mmap", None)
    if base is None or mapped.filename is None or not mapped.flags.c_contiguous or mapped.size == 0:
        return np.array(mapped)
    # a part of a map keeps the offset of the whole, which is from the page it begins in
    begin = np.frombuffer(base, np.uint8).ctypes.data
    page = mapped.offset - mapped.offset % _granularity()
    return str(mapped.filename), mapped.dtype.str, mapped.shape, page + mapped.ctypes.data - begin


def opened(description: Described) -> np.ndarray:
    if isinstance(description, np.ndarray):
        return description
    name, dtype, shape, offset = description
    return np.memmap(name, dtype=dtype, mode="r", offset=offset, shape=shape)


def _granularity() -> int:
    import mmap

    return mmap.ALLOCATIONGRANULARITY
