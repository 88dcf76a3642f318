"""Conversion of the sets that a caller passes (arrays, tables and paths, by position or by name); splits by group."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.embeddings import Embeddings, chosen_rows, is_large
from clip_geometry.io.labels import read_labels, with_labels
from clip_geometry.io.sides import UNNAMED
from clip_geometry.io.sources import own_name, read_embeddings, read_sets, read_sides, together
from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, did_you_mean, shown


def given_sets(image: Any, text: Any = None, *more: Any, labels: Any = None, ids: Any = None) -> dict[str, Embeddings]:
    """Return the sets by modality, with labels and ids; the arguments are those of `clip_geometry.measure`."""
    sets = _sets([image, *([] if text is None else [text]), *more])
    for modality, values in _by_modality(ids, sets, "ids").items() if ids is not None else ():
        sets[modality] = replace(sets[modality], item_id=_values(values))
    if isinstance(labels, Mapping):
        for modality, values in _by_modality(labels, sets, "labels").items():
            sets |= with_labels({modality: sets[modality]}, _values(values))
    elif labels is not None:
        sets = with_labels(sets, _values(labels))
    return sets


def _by_modality(value: Any, sets: Mapping[str, Embeddings], what: str) -> Mapping[str, Any]:
    """Return the value for each modality: one value for all modalities, or the entries of a mapping."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(sets, value)
    for name in value.keys() - sets.keys():
        hint = did_you_mean(str(name), sets)
        raise InputError(f"{what} were given for {shown(name)}; expected one of the sets, {', '.join(sets)}{hint}")
    return value


def _values(argument: Any) -> Any:
    return read_labels(argument) if isinstance(argument, str | Path) else argument


def _sets(arguments: Sequence[Any]) -> dict[str, Embeddings]:
    """Return modality → embeddings for all forms in which `measure` accepts sets: a path, a mapping, or arrays."""
    first = arguments[0]
    only_one = len(arguments) == 1
    if only_one and isinstance(first, str | Path):
        return read_sets(first)
    if only_one and isinstance(first, Mapping):
        if not first:
            raise InputError("the mapping of sets is empty; expected modality → embeddings, as in {'image': x}")
        sets = {}
        for name, source in first.items():
            key = modality_name(name)
            if isinstance(source, str | Path):
                source = read_embeddings(source, modality=name)
            sets[key] = replace(source, modality=name) if isinstance(source, Embeddings) else Embeddings(source, name)
        return sets
    sources = []  # (name in messages, name for a set without one, sets by modality)
    for position, source in enumerate(arguments):
        if isinstance(source, Mapping):
            raise InputError("a mapping of sets and another set were given; put all sets into the mapping")
        if isinstance(source, str | Path):
            sources.append((shown(Path(source)), own_name(source), read_sides(source)))
            continue
        ordinals = ("the first set", "the second set", "the third set")
        description = ordinals[position] if position < 3 else f"set {position + 1}"
        embeddings = source if isinstance(source, Embeddings) else Embeddings(source, UNNAMED)
        if len(arguments) > 2 and embeddings.modality == UNNAMED:
            raise InputError(
                f"{len(arguments)} sets were given by position, but only the first two have default names; give them "
                "as a mapping, {'image': x, 'text': y, 'audio': z}"
            )
        sources.append((description, "rows", {embeddings.modality: embeddings}))
    return dict(together(sources))


def split_by(sets: Mapping[str, Embeddings], column: str) -> Iterator[tuple[Any, dict[str, Embeddings]]]:
    """Yield (value, rows with that value of `column` in every set) for each value, numbers first and in numeric order.

    `column` is "label", "language" or a metadata column. Rows of sets that are too large for memory are not read yet.
    Raises InputError if a set lacks the column.
    """
    large = is_large(*(embeddings.vectors.shape for embeddings in sets.values()))
    columns = {modality: _column(embeddings, column) for modality, embeddings in sets.items()}
    values = dict.fromkeys(value for entries in columns.values() for value in entries.tolist())
    for value in sorted(values, key=_as_sorted):
        subset = {}
        for modality, embeddings in sets.items():
            rows = np.flatnonzero(columns[modality] == value)
            subset[modality] = embeddings.take(rows, vectors=chosen_rows(embeddings.vectors, rows) if large else None)
        yield value, subset


def _as_sorted(value: Any) -> tuple[float, str]:
    """Return a sort key that puts 2 before 10, even if they are text, and other text after all numbers."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.inf
    return (number if math.isfinite(number) else math.inf), str(value)


def _column(embeddings: Embeddings, column: str) -> np.ndarray:
    """Return the column of embeddings to group by: a metadata column, the labels or the language."""
    columns = dict(embeddings.metadata)
    if embeddings.labels is not None:
        columns["label"] = embeddings.labels
    if embeddings.language is not None:
        columns["language"] = np.full(len(embeddings), embeddings.language)
    owner = f"{embeddings.modality} embeddings"
    if column not in columns:
        known = f"they have {', '.join(columns)}" if columns else "they have no columns at all"
        raise InputError(f"{owner} have no column {column!r} to group by; {known}")
    values = np.asarray(columns[column])
    containers = [value for value in values.tolist() if isinstance(value, list | dict)]
    if containers or values.ndim != 1:
        example = shown(containers[0] if containers else values[0])
        raise InputError(
            f"column {shown(column)} of {owner} holds {example}; expected one number or text per row to group by"
        )
    return values
