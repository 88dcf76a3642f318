"""Quantized rows as numbers: int8 and uint8 with the range of each column, and signs packed into bytes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import FileRows, Reader
from clip_geometry.io import reading
from clip_geometry.registry import InputError, shown

RANGES, BITS = "_ranges", "_bits"  # endings of names of arrays


def values_of_steps(steps: np.ndarray, low: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Return the middles of steps 0 to 255 of ranges that begin at `low`, in float32, as FAISS decodes them."""
    return low + (steps.astype(np.float32) + np.float32(0.5)) / np.float32(255) * width


def dequantized(codes: np.ndarray, ranges: Any, source: str) -> np.ndarray:
    """Return the float32 rows that codes stand for.

    Args:
        codes: (n, d) int8 or uint8, as `quantize_embeddings` of sentence-transformers returns them.
        ranges: (2, d) the lowest and the highest value of each column (or (2, 1), of all columns); None for signs that
            are packed into bytes.
        source: Name of the codes in messages.

    Raises:
        InputError: The codes are not int8 or uint8, or the ranges do not fit.
    """
    if codes.ndim != 2 or codes.dtype not in (np.int8, np.uint8):
        raise InputError(f"{source} has the shape {codes.shape} and type {codes.dtype}; expected (n, d) int8 or uint8")
    steps = (codes.astype(np.int16) + 128).astype(np.uint8) if codes.dtype == np.int8 else codes
    if ranges is None:
        return np.unpackbits(steps, axis=1).astype(np.float32) * 2 - 1
    try:
        ends = np.asarray(ranges, dtype=np.float32)
    except (TypeError, ValueError):  # ragged
        ends = np.empty(0)
    fits = ends.shape in ((2, 1), (2, codes.shape[1]))
    if not fits or not np.isfinite(ends).all() or (ends[1] < ends[0]).any():
        raise InputError(
            f"the ranges of {source} are {shown(ranges)}; expected the lowest and the highest value of each of its "
            f"{codes.shape[1]} columns, (2, {codes.shape[1]})"
        )
    return values_of_steps(steps, ends[0], ends[1] - ends[0])


def with_values(arrays: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Replace the quantized arrays of a file by their rows: NAME with NAME_ranges, and NAME_bits."""
    values = dict(arrays)
    for name, array in arrays.items():
        source = f"{shown(path)}, array {shown(name)},"
        if name.endswith(BITS) and isinstance(array, np.ndarray) and array.dtype.kind in "iu":
            values[name.removesuffix(BITS)] = dequantized(values.pop(name), None, source)
        ranges = arrays.get(f"{name}{RANGES}")
        if isinstance(array, np.ndarray) and array.dtype.kind in "iu" and isinstance(ranges, np.ndarray):
            values[name] = dequantized(array, ranges, source)
            del values[f"{name}{RANGES}"]
    return values


def quantized_rows(path: Path, codes: np.ndarray, facts: Mapping[str, Any]) -> FileRows:
    """Return the rows of an int8 or uint8 .npy file, which are decoded when they are read.

    Args:
        path: The file.
        codes: Its codes, memory-mapped.
        facts: "ranges", or "bits": True, from the .json file beside it.
    """
    if facts.get("ranges") is None and not facts.get("bits"):
        raise InputError(
            f"{shown(path)} holds {codes.dtype} codes; write the lowest and the highest value of each column to "
            f'{path.name}.json, {{"ranges": [[…], […]]}}, or {{"bits": true}} for packed signs'
        )
    rows = dequantized(codes[:1], facts.get("ranges"), shown(path))
    return FileRows(_Opened(path, facts.get("ranges")), (len(codes), rows.shape[1]), np.dtype(np.float32))


class _Opened:
    """Opens a file of codes for reading; can be pickled."""

    def __init__(self, path: Path, ranges: Any):
        self.path, self.ranges = path, ranges

    @contextmanager
    def __call__(self) -> Iterator[Reader]:
        codes = reading.read_npy(self.path)
        yield lambda start, stop: dequantized(np.asarray(codes[start:stop]), self.ranges, shown(self.path))
