"""The rows of sets, split by the values of a column."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from clip_geometry.embeddings import Embeddings, chosen_rows, is_large
from clip_geometry.registry import InputError, shown


def split_by(sets: Mapping[str, Embeddings], column: str) -> Iterator[tuple[Any, dict[str, Embeddings]]]:
    """(value, the rows with that value of `column` in every set) for each value, numbers first and in their order.

    column: "label", "language" or a metadata column. Rows of sets that are too large for the memory are not read yet.
    Raises InputError where a set lacks it.
    """
    large = is_large(*(each.vectors.shape for each in sets.values()))
    columns = {modality: _column(each, column) for modality, each in sets.items()}
    values = dict.fromkeys(value for each in columns.values() for value in each.tolist())
    for value in sorted(values, key=_as_sorted):
        part = {}
        for modality, each in sets.items():
            rows = np.flatnonzero(columns[modality] == value)
            part[modality] = each.take(rows, vectors=chosen_rows(each.vectors, rows) if large else None)
        yield value, part


def _as_sorted(value: Any) -> tuple[float, str]:
    """2 before 10, also where they are text; what is no number after all numbers, as text."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.inf
    return (number if math.isfinite(number) else math.inf), str(value)


def _column(embeddings: Embeddings, column: str) -> np.ndarray:
    columns = dict(embeddings.metadata)
    if embeddings.labels is not None:
        columns["label"] = embeddings.labels
    if embeddings.language is not None:
        columns["language"] = np.full(len(embeddings), embeddings.language)
    if column not in columns:
        raise InputError(
            f"{embeddings.modality} embeddings have no column {column!r} to group by; "
            + (f"they have {', '.join(columns)}" if columns else "they carry no columns at all")
        )
    values = np.asarray(columns[column])
    odd = next((value for value in values.tolist() if isinstance(value, list | dict)), None)
    if odd is not None or values.ndim != 1:
        example = shown(values[0] if odd is None else odd)
        raise InputError(
            f"column {shown(column)} of {embeddings.modality} embeddings holds {example}; "
            "expected one number or text per row to group by"
        )
    return values
