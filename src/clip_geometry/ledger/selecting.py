"""Selectors of result rows: `{measure: zero_shot.top_1, at.split: test, pipeline: "normalize,center"}`.

A field of a field is written with a dot. A list means any of these, null that the field is missing, a star any text;
a pipeline is written as on the command line, "" for raw rows.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from clip_geometry.ledger.rules import Scalar, Where


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """{"at": {"split": "test"}, "pipeline": [a, b]} → {"at.split": "test", "pipeline": "a,b"}"""
    fields = {key: value for key, value in _fields(row, "") if value is not None}
    return fields | {"pipeline": ",".join(map(str, row.get("pipeline") or ()))}


def _fields(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, part in value.items():
        if isinstance(part, Mapping):
            yield from _fields(part, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(part) if isinstance(part, list | tuple) else part


def matches(fields: Mapping[str, Any], where: Where) -> bool:
    """Whether a flat row fulfils all selectors."""
    return all(fits(fields.get(key), wanted) for key, wanted in where.items())


def fits(value: Any, wanted: Scalar | tuple[Scalar, ...]) -> bool:
    if isinstance(wanted, tuple):
        return any(fits(value, each) for each in wanted)
    if isinstance(wanted, str) and isinstance(value, str):
        return re.fullmatch(".*".join(map(re.escape, wanted.split("*"))), value, re.DOTALL) is not None
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)
