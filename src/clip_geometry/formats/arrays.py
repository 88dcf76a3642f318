"""Arrays by name, from .npz, .safetensors and .pt, and in a hierarchy of groups, as in HDF5 and zarr: which are rows,
and what belongs to them.

Pickled objects are never loaded; bfloat16 becomes float32, exactly.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry import reading
from clip_geometry.embeddings import Embeddings, FileRows, Reader, joined
from clip_geometry.formats.format import register
from clip_geometry.formats.tables import sides_of_columns
from clip_geometry.formats.vectors import KINDS, LABEL_NAMES, UNNAMED, check_vectors, is_rows, sides_by_name
from clip_geometry.progress import note
from clip_geometry.reading import require_memory
from clip_geometry.registry import InputError, listed, shown


@dataclass(frozen=True)
class Stored:
    """An array in a file; `opened` as in `FileRows`."""

    shape: tuple[int, ...]
    dtype: np.dtype
    opened: Callable[[], AbstractContextManager[Reader]]

    @property
    def ndim(self) -> int:
        return len(self.shape)


def _rows(array: np.ndarray | Stored, source: str) -> Any:
    if isinstance(array, np.ndarray):
        return check_vectors(array, source)
    (n, d), native = array.shape, array.dtype.newbyteorder("=")
    check_vectors(np.broadcast_to(np.zeros((), native), array.shape), source)
    require_memory(d * min(n, FileRows.SPAN) * array.dtype.itemsize, source)
    return joined([FileRows(array.opened, (n, d), native)])


def _column(array: np.ndarray | Stored, source: str) -> np.ndarray:
    if isinstance(array, Stored):
        require_memory(math.prod(array.shape) * array.dtype.itemsize, source)
        with array.opened() as read:
            array = np.asarray(read(0, array.shape[0]))
    if array.dtype.kind not in "SOTU":
        return array
    texts = [each.decode() if isinstance(each, bytes) else each for each in array.ravel().tolist()]
    return np.fromiter(texts, object, len(texts)).reshape(array.shape)


def sides_of_arrays(
    arrays: Mapping[str, np.ndarray | Stored], path: Path, dtypes: Mapping[str, str] | None = None
) -> dict[str, Embeddings]:
    """Return the sides among arrays whose names are paths ("image", "coco/image", "image/embeddings").

    The rows are the matrices of floats. What else lies in the same group and has a value for each row of one of them
    belongs to it: item_id (or id), label, and metadata. dtypes: of the arrays in the file, if they have other types.
    """
    last = {name: name.rpartition("/")[2].casefold() for name in arrays}
    rows = [name for name, each in arrays.items() if is_rows(each) and last[name] not in LABEL_NAMES]
    if not rows:
        kinds = listed(f"{name} {each.dtype}{list(each.shape)}" for name, each in arrays.items())
        raise InputError(
            f"{shown(path)} has no rows: none of its arrays ({kinds}) is a matrix of float16, float32 or float64"
        )
    by_called: dict[str, str] = {}
    for name in rows:
        above = name.split("/")[-2:-1]
        called = above[0] if above and last[name] in KINDS else name.rpartition("/")[2]
        if called in by_called:
            raise InputError(f"{shown(path)} has rows {by_called[called]} and {name}; keep one of them")
        by_called[called] = name
    sides: dict[str, Embeddings] = {}
    left = set(arrays) - set(rows)
    for modality, called in sides_by_name(by_called, path, "arrays of rows").items():
        name = by_called[called]
        vectors = _rows(arrays[name], f"{shown(path)}, array {shown(name)},")
        columns = {}
        for other in sorted(set(arrays) - set(rows)):
            group, _, column = other.rpartition("/")
            is_plain = arrays[other].dtype.kind in "fiubSTUO"
            if is_plain and group == name.rpartition("/")[0] and arrays[other].shape[:1] == (len(vectors),):
                columns[column] = _column(arrays[other], f"{shown(path)}, array {shown(other)},")
                left.discard(other)
        found = sides_of_columns({modality: vectors}, columns, path, ids=True)
        if dtypes:
            found[modality] = replace(found[modality], provenance={"source": str(path), "dtype": dtypes[name]})
        sides |= found
    if labels := [name for name in left if last[name] in LABEL_NAMES]:
        counts = " and ".join(str(len(side)) for side in sides.values())
        raise InputError(
            f"{shown(path)} has labels of shape {arrays[labels[0]].shape} for {counts} rows; expected one label per row"
        )
    if left:
        note(f"left out of {shown(path)}, which are not a value for each row: {listed(sorted(left))}")
    return sides


# --- files of arrays


def read_npz(path: Path) -> dict[str, Embeddings]:
    """Read the arrays of rows by modality ("image", "text_emb", …), or a single one of any name; and "labels"."""
    return sides_of_arrays(reading.read_npz(path), path)


def read_safetensors(path: Path) -> dict[str, Embeddings]:
    """Read the tensors of rows by modality ("image", "text_emb", …), or a single one of any name; and "labels"."""
    return _from_tensors(reading.read_safetensors(path, framework="pt")[1], path)


def read_pt(path: Path) -> dict[str, Embeddings]:
    """Read what torch.save wrote: one tensor of no modality, or a dict of tensors like those of .safetensors."""
    import torch

    found = reading.read_checkpoint(path, "a file of embeddings", mmap=True)
    tensors = {UNNAMED: found} if isinstance(found, torch.Tensor) else found
    if not isinstance(tensors, dict) or not all(isinstance(each, torch.Tensor) for each in tensors.values()):
        raise InputError(
            f"{shown(path)} holds a {type(found).__name__}; expected a tensor, or a dict of tensors by name"
        )
    return _from_tensors({str(name): tensor for name, tensor in tensors.items()}, path)


def _from_tensors(tensors: Mapping[str, Any], path: Path) -> dict[str, Embeddings]:
    import torch

    arrays: dict[str, np.ndarray] = {}
    dtypes = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        try:
            tensor = tensor.detach()
            arrays[name] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
        except (TypeError, RuntimeError):  # float8 and other types that numpy lacks
            raise InputError(
                f"{shown(path)}, tensor {shown(name)}, holds {dtypes[name]} values; embeddings are bfloat16, float16, "
                "float32 or float64"
            ) from None
    return sides_of_arrays(arrays, path, dtypes)


for name, read in (("npz", read_npz), ("safetensors", read_safetensors), ("pt", read_pt)):
    register(name, read)
