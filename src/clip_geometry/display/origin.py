"""The origin of rows as text: what distinguishes the runs of one report."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from clip_geometry.results import ORIGIN

Row = Mapping[str, Any]
OWNER = {"model_options": "model", "data_options": "dataset"}  # options follow what they are options of


@dataclass(frozen=True)
class Run:
    """The rows of one origin. label: A, B, …; heading: what varies between the runs, "" for a single run."""

    label: str
    heading: str
    rows: list[Row] = field(default_factory=list)


def roles_of(rows: Sequence[Row]) -> str:
    """What "image" and "text" in the name of a measure stand for, where a set is called otherwise; "" elsewhere."""
    placed = [
        (row["measure"], str(row["at"]["modality"]))
        for row in rows
        if row["value"] is not None and "modality" in row["at"]
    ]
    places = {place for name, place in placed if "image" in name or "text" in name}
    couples = sorted(place.split("+") for place in places if "+" in place)
    couples += [sorted({place for _, place in placed} - {"both"})] if "both" in places else []
    named = [couple for couple in couples if len(couple) == 2 and couple != ["image", "text"]]
    if not named:
        return ""
    first, second = named[0]
    return (
        "image and text in the name of a measure are the first and the second set: "
        f"of {first}+{second}, {first} and {second}"
    )


def runs(rows: Iterable[Row]) -> list[Run]:
    """The runs, in the order of their first rows."""
    grouped: dict[tuple, list[Row]] = {}
    for row in rows:
        grouped.setdefault(tuple(_identity(row, name) for name in ORIGIN), []).append(row)
    # a heading names the fields that vary, and the owners of options that do
    firsts = [members[0] for members in grouped.values()]
    varying = {name for name in ORIGIN if len({_identity(row, name) for row in firsts}) > 1}
    varying |= {OWNER[name] for name in varying if name in OWNER}
    names = [name for name in ORIGIN if name in varying]
    # what a step was fitted on mostly follows from the data and the pipeline
    without = [name for name in names if name != "fitted_on"]
    if len({tuple(_identity(row, name) for name in without) for row in firsts}) == len(firsts):
        names = without
    labels = (chr(ord("A") + k) if k < 26 else f"#{k + 1}" for k in count())
    return [
        Run(label, heading(members[0], names), members)
        for label, members in zip(labels, grouped.values(), strict=False)
    ]


def places(rows: Iterable[Row]) -> list[str]:
    """The keys of `at` beside the modality (layer, language, …) with more than one value."""
    rows = list(rows)
    names = dict.fromkeys(key for row in rows for key in (row.get("at") or {}) if key != "modality")
    return [name for name in names if len({text for row in rows if (text := words(row, name))}) > 1]


def heading(row: Row, names: Iterable[str]) -> str:
    """`scenes-clip/fresh · seed 1, zero_bias · normalize → center[each]`."""
    return _joined(*(_named(name, words(row, name)) for name in names))


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
            inner = option_words(value)
            texts += [f"{key} ({inner})"] if inner else []
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


def _joined(*texts: str) -> str:
    return " · ".join(filter(None, texts))


def _identity(row: Row, name: str) -> str:
    """Equal for equal values; an option that is missing is the same as none, and a pipeline as a tuple as a list."""
    value = row.get(name)
    value = (value or {}) if name in OWNER else value
    return json.dumps(value, sort_keys=True, default=str)


def _named(name: str, text: str) -> str:
    """The text, after the name of its field where it needs one."""
    known = {"seed": "run seed ", "fitted_on": "fitted on ", "maps": "transformed by "}
    bare = "" if name in ORIGIN else f"{name.replace('_', ' ')} "
    return f"{known.get(name, bare)}{text}" if text else ""
