"""The origin of rows as text: what distinguishes the runs of one report."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clip_geometry.results import ORIGIN

Row = Mapping[str, Any]
OWNER = {"model_options": "model", "data_options": "dataset"}  # options follow what they are options of
PREFIX = {"seed": "run seed ", "fitted_on": "fitted on ", "maps": "transformed by "}


@dataclass(frozen=True)
class Run:
    """The rows of one origin. label: A, B, …; heading: what varies between the runs, "" for a single run."""

    label: str
    heading: str
    rows: list[Row] = field(default_factory=list)


def letter(number: int) -> str:
    """A, B, …"""
    return chr(ord("A") + number) if number < 26 else f"#{number + 1}"


def runs(rows: Iterable[Row]) -> list[Run]:
    """The runs, in the order of their first rows."""
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        # an option that is missing is the same as none, and a pipeline as a tuple as a list
        origin = {name: (row.get(name) or {}) if name in OWNER else row.get(name) for name in ORIGIN}
        grouped.setdefault(json.dumps(origin, sort_keys=True, default=str), []).append(row)
    origins = [json.loads(origin) for origin in grouped]
    varying = [name for name in ORIGIN if any(origin[name] != origins[0][name] for origin in origins)]
    # what a step was fitted on mostly follows from the data and the pipeline
    without = [name for name in varying if name != "fitted_on"]
    if len({json.dumps([origin[name] for name in without]) for origin in origins}) == len(origins):
        varying = without
    owners = [OWNER.get(name) for name in varying]
    names = [name for name in ORIGIN if name in varying or name in owners]
    return [Run(letter(k), heading(own[0], names), own) for k, own in enumerate(grouped.values())]


def places(rows: Sequence[Row]) -> list[str]:
    """The keys of `at` beside the modality (layer, language, …) with more than one value."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for name in row.get("at") or {}:
            values.setdefault(name, set()).add(words(row, name))
    return [name for name, texts in values.items() if name != "modality" and len(texts - {""}) > 1]


def heading(row: Row, names: Iterable[str]) -> str:
    """`scenes-clip/fresh · seed 1, zero_bias · normalize → center[each]`."""
    parts = []
    for name in names:
        if text := words(row, name):
            prefix = PREFIX.get(name, "" if name in ORIGIN else f"{name.replace('_', ' ')} ")
            parts.append(prefix + text)
    return " · ".join(parts)


def words(row: Row, name: str) -> str:
    """One field of a row, or key of its `at`, as text; "" if it is missing or empty."""
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
    """`seed 1, zero_bias`; of options that differ by modality `image (seed 1), text (seed 2)`."""
    texts = []
    for key, value in options.items():
        if isinstance(value, Mapping):
            texts += [f"{key} ({inner})"] if (inner := option_words(value)) else []
        elif isinstance(value, bool):
            texts.append(key if value else f"no {key}")
        elif value is not None:
            texts.append(f"{key} {value}")
    return ", ".join(texts)


def with_options(name: str, options: Mapping[str, Any] | None) -> str:
    """`scenes-clip/fresh (seed 1, zero_bias)`; the name alone without options."""
    text = option_words(options or {})
    return f"{name} ({text})" if text else name


def model_words(row: Row) -> str:
    """The model of a row with its options, "" where it is not known."""
    return with_options(row.get("model") or "", row.get("model_options"))


def data_words(row: Row) -> str:
    """The data set of a row with its options, and the split."""
    return ", ".join(filter(None, (with_options(row.get("dataset") or "", row.get("data_options")), row.get("split"))))
