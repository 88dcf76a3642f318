"""The origin of rows as text, which distinguishes the runs of one report."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clip_geometry.results import ORIGIN

Row = Mapping[str, Any]
OWNER = {"model_options": "model", "data_options": "dataset"}  # options follow the field that they belong to
PREFIX = {"seed": "run seed ", "fitted_on": "fitted on ", "maps": "transformed by "}


@dataclass(frozen=True)
class Run:
    """The rows of one origin.

    `label` is A, B, …; `heading` says what varies between the runs, and is "" for a single run.
    """

    label: str
    heading: str
    rows: list[Row] = field(default_factory=list)


def letter(number: int) -> str:
    """Return the label of a column or run: A, B, …"""
    return chr(ord("A") + number) if number < 26 else f"#{number + 1}"


def runs(rows: Iterable[Row]) -> list[Run]:
    """Return the runs, in the order of their first rows."""
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        # a missing option equals no options, and a pipeline as a tuple equals one as a list
        origin = {name: (row.get(name) or {}) if name in OWNER else row.get(name) for name in ORIGIN}
        grouped.setdefault(json.dumps(origin, sort_keys=True, default=str), []).append(row)
    origins = [json.loads(origin) for origin in grouped]
    varying = [name for name in ORIGIN if any(origin[name] != origins[0][name] for origin in origins)]
    # `fitted_on` mostly follows from the data and the pipeline
    without = [name for name in varying if name != "fitted_on"]
    if len({json.dumps([origin[name] for name in without]) for origin in origins}) == len(origins):
        varying = without
    owners = [OWNER.get(name) for name in varying]
    names = [name for name in ORIGIN if name in varying or name in owners]
    return [Run(letter(k), heading(members[0], names), members) for k, members in enumerate(grouped.values())]


def places(rows: Sequence[Row]) -> list[str]:
    """Return the keys of `at` other than the modality (layer, language, …) that have more than one value."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for name in row.get("at") or {}:
            values.setdefault(name, set()).add(words(row, name))
    return [name for name, texts in values.items() if name != "modality" and len(texts - {""}) > 1]


def heading(row: Row, names: Iterable[str]) -> str:
    """Return a heading such as `scenes-clip/fresh · seed 1, zero_bias · normalize → center[each]`."""
    parts = []
    for name in names:
        text = words(row, name)
        if text:
            prefix = PREFIX.get(name, "" if name in ORIGIN else f"{name.replace('_', ' ')} ")
            parts.append(prefix + text)
    return " · ".join(parts)


def words(row: Row, name: str) -> str:
    """Return one field of a row, or a key of its `at`, as text; "" if it is missing or empty."""
    value = row.get(name, (row.get("at") or {}).get(name))
    if name == "pipeline":
        return "" if value is None else pipeline_words(value)
    if name in OWNER:
        return option_words(value or {})
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)


def pipeline_words(steps: Sequence[str]) -> str:
    return " → ".join(map(str, steps)) or "raw"


def option_words(options: Mapping[str, Any]) -> str:
    """Return options as `seed 1, zero_bias`, or as `image (seed 1), text (seed 2)` if they differ by modality."""
    texts = []
    for key, value in options.items():
        if isinstance(value, Mapping):
            nested = option_words(value)
            if nested:
                texts.append(f"{key} ({nested})")
        elif isinstance(value, bool):
            texts.append(key if value else f"no {key}")
        elif value is not None:
            texts.append(f"{key} {value}")
    return ", ".join(texts)


def with_options(name: str, options: Mapping[str, Any] | None) -> str:
    """Return `scenes-clip/fresh (seed 1, zero_bias)`, or only the name if there are no options."""
    text = option_words(options or {})
    return f"{name} ({text})" if text else name


def model_words(row: Row) -> str:
    """Return the model of a row with its options, or "" if it is unknown."""
    return with_options(row.get("model") or "", row.get("model_options"))


def data_words(row: Row) -> str:
    """Return the dataset of a row with its options, and the split."""
    return ", ".join(filter(None, (with_options(row.get("dataset") or "", row.get("data_options")), row.get("split"))))
