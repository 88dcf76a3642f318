"""Arrays by name in a hierarchy of groups, as in HDF5 and zarr: which are rows, and what belongs to them."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import Embeddings, LazyRows, in_memory_or_lazy
from clip_geometry.formats.tables import sides_of_columns
from clip_geometry.formats.vectors import KINDS, LABEL_NAMES, check_vectors, is_rows, sides_by_name
from clip_geometry.progress import note
from clip_geometry.reading import require_memory
from clip_geometry.registry import InputError, listed, shown


@dataclass(frozen=True)
class Stored:
    """An array in a file; `opened` as in `LazyRows`."""

    shape: tuple[int, ...]
    dtype: np.dtype
    opened: Callable[[], AbstractContextManager[Callable[[int, int], Any]]]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def rows(self, source: str) -> Any:
        (n, d), native = self.shape, self.dtype.newbyteorder("=")
        check_vectors(np.broadcast_to(np.zeros((), native), self.shape), source)
        require_memory(d * min(n, LazyRows.SPAN) * self.dtype.itemsize, source)
        return in_memory_or_lazy([LazyRows(self.opened, (n, d), native)])

    def column(self, source: str) -> np.ndarray:
        require_memory(math.prod(self.shape) * self.dtype.itemsize, source)
        with self.opened() as read:
            values = np.asarray(read(0, self.shape[0]))
        if values.dtype.kind not in "SOTU":
            return values
        texts = [each.decode() if isinstance(each, bytes) else each for each in values.ravel().tolist()]
        return np.fromiter(texts, object, len(texts)).reshape(values.shape)


def sides_of_arrays(arrays: Mapping[str, Stored], path: Path) -> dict[str, Embeddings]:
    """Return the sides among arrays whose names are paths ("image", "coco/image", "image/embeddings").

    The rows are the matrices of floats, named as in an .npz file. What else lies in the same group and has a value for
    each row of one of them belongs to it: item_id (or id), label, and metadata.
    """
    rows = {name: each for name, each in arrays.items() if is_rows(each)}  # pyright: ignore[reportArgumentType]
    if not rows:
        kinds = listed(f"{name} {each.dtype}{list(each.shape)}" for name, each in arrays.items())
        raise InputError(
            f"{shown(path)} has no rows: none of its arrays ({kinds}) is a matrix of float16, float32 or float64"
        )
    by_called: dict[str, str] = {}
    for name in rows:
        *above, last = name.split("/")
        called = above[-1] if above and last.casefold() in KINDS else last
        if called in by_called:
            raise InputError(f"{shown(path)} has rows {by_called[called]} and {name}; keep one of them")
        by_called[called] = name
    sides: dict[str, Embeddings] = {}
    left = set(arrays) - set(rows)
    for modality, called in sides_by_name(by_called, path, "arrays of rows").items():
        name = by_called[called]
        vectors = rows[name].rows(f"{shown(path)}, array {shown(name)},")
        columns = {}
        for other in arrays.keys() - rows.keys():
            group, _, column = other.rpartition("/")
            if group == name.rpartition("/")[0] and arrays[other].shape[:1] == (len(vectors),):
                columns[column] = arrays[other].column(f"{shown(path)}, array {shown(other)},")
                left.discard(other)
        sides |= sides_of_columns({modality: vectors}, dict(sorted(columns.items())), path, ids=True)
    if labels := [name for name in left if name.rpartition("/")[2].casefold() in LABEL_NAMES]:
        counts = " and ".join(str(len(side)) for side in sides.values())
        raise InputError(
            f"{shown(path)} has labels of shape {arrays[labels[0]].shape} for {counts} rows; expected one label per row"
        )
    if left:
        note(f"left out of {shown(path)}, which are not a value for each row: {listed(sorted(left))}")
    return sides
