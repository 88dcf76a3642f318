"""Reader for label files: .npy, .pt, .txt (one label per line), .csv and .parquet (one column)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from clip_geometry.embeddings import Embeddings
from clip_geometry.io import reading
from clip_geometry.paths import existing_file
from clip_geometry.progress import note
from clip_geometry.registry import InputError, listed, shown
from clip_geometry.rows.matrix import as_codes

COLUMNS = ("label", "labels", "class", "class_name", "category", "target")
SUFFIXES = (".npy", ".pt", ".txt", ".csv", ".parquet")


def read_labels(path: str | Path) -> np.ndarray:
    """Read labels from a file.

    Args:
        path: A .npy, .pt or .txt file, or a table (.csv, .parquet). The labels of a table are its only column, or the
            column named label, labels, class, class_name, category or target.

    Returns:
        (n,) integers or strings. Text is converted to integers if all of its values are integers.

    Raises:
        InputError: The file has another suffix, several possible columns, a missing label, or values that are not one
            label per row.
    """
    what = "a file of labels"
    path = existing_file(Path(path), what)
    match path.suffix.lower():
        case ".npy":
            array = reading.read_npy(path, mmap=False, what=what)
        case ".pt":  # the format in which Tyshchuk et al. publish their labels
            tensor = reading.read_checkpoint(path, what)
            if not isinstance(tensor, Tensor) or tensor.is_floating_point():
                raise InputError(f"{shown(path)} does not hold a tensor of integers; expected one integer per row")
            array = tensor.numpy()
        case ".txt":
            array = _array([line.strip() for line in reading.read_text(path, what).rstrip().splitlines()])
        case ".csv" | ".parquet":
            from clip_geometry.data.tables import read_table

            table = read_table(path)
            candidates = [name for name in table.names if name.casefold() in COLUMNS] or table.names
            if len(candidates) != 1:
                raise InputError(
                    f"{shown(path)} has the columns {listed(table.names)}; expected a single column, or one called "
                    "'label'"
                )
            array = _array(table.values(candidates[0]))
        case _:
            raise InputError(f"{shown(path)} is not a label file; expected {', '.join(SUFFIXES)}")
    if array.ndim != 1 or array.dtype.kind not in "iufUOb":
        raise InputError(f"{shown(path)} holds {array.dtype} values of shape {array.shape}; expected one label per row")
    missing = [k for k, value in enumerate(array.tolist()) if value is None or value == "" or value != value]
    if missing:
        raise InputError(
            f"{shown(path)} has no label for {len(missing)} of {len(array)} rows, first in row {missing[0]}"
        )
    return array


def integer_or_text(text: str) -> int | str:
    """Convert canonical decimal text to an integer; int() would also accept 1_0 and 007, which are other labels."""
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) else text


def _array(values: Sequence[Any]) -> np.ndarray:
    """Return an array of integers if all values are integers or integers as text, else an array of the values."""
    integers = [integer_or_text(value) if isinstance(value, str) else value for value in values]
    if all(type(value) is int for value in integers):
        return np.array(integers, np.int64)
    return np.fromiter(values, object, len(values))


def with_labels(sets: Mapping[str, Embeddings], labels: Any) -> dict[str, Embeddings]:
    """Add labels to every set that has as many rows as there are labels.

    At least one set must match. Sets that do not are returned without these labels and reported on stderr.
    """
    if not hasattr(labels, "__len__") or np.ndim(labels) == 0:
        raise InputError(f"labels is {shown(labels)}; expected one label per row")
    fits = {modality: len(side) == len(labels) for modality, side in sets.items()}
    if not any(fits.values()):
        counts = " and ".join(f"{len(side)} {modality} rows" for modality, side in sets.items())
        raise InputError(f"{len(labels)} labels were given for {counts}; expected one label per row")
    as_codes(labels, len(labels))  # raises for a single label
    for modality, side in sets.items():
        if not fits[modality]:
            note(f"the {len(labels)} labels do not belong to the {len(side)} {modality} rows, which get no labels")
    return {name: replace(side, labels=labels) if fits[name] else side for name, side in sets.items()}
