"""Label files: .npy, .pt, .txt (one per line), .json (a list), .csv and .parquet (a column)."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from clip_geometry.embeddings import Embeddings
from clip_geometry.formats.tables import columns_of
from clip_geometry.paths import existing_file
from clip_geometry.progress import note
from clip_geometry.reading import damaged, read_checkpoint, read_json, read_npy, read_table, read_text
from clip_geometry.registry import InputError, listed, shown
from clip_geometry.rows.matrix import as_codes

COLUMNS = ("label", "labels", "class", "class_name", "category", "target")
INTEGER = r"0|-?[1-9][0-9]{0,17}"  # as it is written; int() also takes 1_0 and 007, which are other labels
SUFFIXES = (".npy", ".pt", ".txt", ".json", ".csv", ".parquet")


def read_labels(path: str | Path) -> np.ndarray:
    """Read labels: (n,) integers or strings. Text that is all integers becomes integers.

    In a table, they are the only column, or the one called label, labels, class, class_name, category or target.
    """
    path = existing_file(Path(path), "a file of labels")
    match path.suffix.lower():
        case ".npy":
            array = read_npy(path, mmap=False, what="a file of labels")
        case ".pt":
            tensor = read_checkpoint(path, "a file of labels")
            if not isinstance(tensor, Tensor) or tensor.is_floating_point():
                raise InputError(f"{shown(path)} holds no tensor of integers; labels are one integer per row")
            array = tensor.numpy()
        case ".txt":
            lines = read_text(path, "a file of labels").rstrip().splitlines()
            array = _integers_if_all_are([line.strip() for line in lines])
        case ".json":
            values = read_json(path, "a file of labels")
            kinds = {type(value) for value in values} if isinstance(values, list) else set()
            if kinds not in ({int}, {str}):
                raise InputError(f"{shown(path)} holds no list of integers or of strings; labels are one of these")
            if kinds == {int} and not all(-(2**63) <= value < 2**63 for value in values):
                raise InputError(f"{shown(path)} holds integers beyond 64 bits; write such labels as strings")
            array = np.array(values, dtype=np.int64 if kinds == {int} else object)
        case ".csv":
            reader = csv.DictReader(io.StringIO(read_text(path, "a file of labels"), newline=""))
            try:
                name = _label_column(list(reader.fieldnames or ()), path)
                array = _integers_if_all_are([row[name] or "" for row in reader])
            except csv.Error as error:
                raise damaged(path, "text", error) from None
        case ".parquet":
            columns = columns_of(read_table(path))
            array = columns[_label_column(list(columns), path)]
        case _:
            raise InputError(f"{shown(path)} is no label file; expected {', '.join(SUFFIXES)}")
    if array.ndim != 1 or array.dtype.kind not in "iufUOb":
        raise InputError(f"{shown(path)} holds {array.dtype} values of shape {array.shape}; labels are one value a row")
    missing = [k for k, value in enumerate(array.tolist()) if value is None or value == "" or value != value]
    if missing:
        raise InputError(
            f"{shown(path)} has no label for {len(missing)} of {len(array)} rows, the first is row {missing[0]}"
        )
    return array


def with_labels(sets: Mapping[str, Embeddings], labels: Any) -> dict[str, Embeddings]:
    """Put the labels on every set that has as many rows; at least one has to, and the others are said on stderr."""
    fitting = {modality for modality, each in sets.items() if len(each) == len(labels)}
    if not fitting:
        counts = " and ".join(f"{len(each)} {modality} rows" for modality, each in sets.items())
        raise InputError(f"{len(labels)} labels were given for {counts}; expected one label per row")
    as_codes(labels, len(labels))  # raises for a single label
    for modality, each in sets.items():
        if modality not in fitting:
            note(f"the {len(labels)} labels are not those of the {len(each)} {modality} rows, which get none")
    return {modality: replace(each, labels=labels) if modality in fitting else each for modality, each in sets.items()}


def _integers_if_all_are(texts: Sequence[str]) -> np.ndarray:
    if all(re.fullmatch(INTEGER, text) for text in texts):
        return np.array([int(text) for text in texts], dtype=np.int64)
    return np.array(texts, dtype=object)


def _label_column(names: list[str], path: Path) -> str:
    chosen = [name for name in names if str(name).casefold() in COLUMNS] or names
    if len(chosen) != 1:
        raise InputError(f"{shown(path)} has the columns {listed(names)}; expected a single one, or one called 'label'")
    return chosen[0]
