"""Configs with several parts: keys beside `parts` are shared by every part whose experiment has them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from clip_geometry.registry import InputError, did_you_mean
from clip_geometry_experiments.kit.base import experiments
from clip_geometry_experiments.run.config import override

PAGE = ("name", "title", "description")  # keys of the whole page; a part has its own title and description

Values = Mapping[str, Any]


def spread(values: Values, context: str) -> dict[str, Any]:
    """Return a config in which every part is a complete config. A config without `parts` is copied unchanged.

    A key beside `parts` is copied to every part whose experiment has it, unless the part sets the key itself. `title`
    and `description` belong to the page.

    Args:
        values: The config.
        context: Name of the config, for messages.

    Raises:
        InputError: If no part has a key, or if `parts` is not a list of sections.
    """
    if "parts" not in values:
        return dict(values)
    page = {key: values[key] for key in PAGE if key in values}
    shared = {key: value for key, value in values.items() if key not in (*PAGE, "parts")}
    parts = values["parts"]
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
        raise InputError(f"{context}: 'parts' is {json.dumps(parts, default=str)[:60]}; expected a list of sections")
    for number, part in enumerate(parts):
        if not isinstance(part.get("experiment"), str):
            known = did_you_mean("", experiments, listed_by=experiments.listed_by)
            raise InputError(f"{context}: part {number} has no key 'experiment'{known}")
    for key in shared:
        _require_known(key, parts, context)
    shared |= {"name": page["name"]} if "name" in page else {}
    whole = [{key: value for key, value in shared.items() if key in _fields(part)} | part for part in parts]
    return {**page, "parts": whole}


def change(values: Values, changes: Values, context: str) -> dict[str, Any]:
    """Return a config from `spread` with some dotted keys replaced.

    `parts.0.pairs.size` is a key of the first part; `pairs.size` is that key in every part that has pairs. A key that
    is set is removed from the sweep.

    Args:
        values: The config, as returned by `spread`.
        changes: New values by dotted key.
        context: Name of the config, for messages.

    Raises:
        InputError: If no part has a key.
    """
    if "parts" not in values:
        return override(_without_swept(values, changes), changes)
    page = {key: value for key, value in changes.items() if key in PAGE}
    parts = list(values["parts"])
    for key, value in changes.items():
        if key in PAGE and key != "name":
            continue
        numbers, own = _parts_of_key(key, parts, context)
        for number in numbers:
            parts[number] = override(_without_swept(parts[number], {own: value}), {own: value})
    return {**values, **page, "parts": parts}


def _parts_of_key(key: str, parts: Sequence[Values], context: str) -> tuple[list[int], str]:
    """Return the numbers of the parts that a dotted key refers to, and the key within them."""
    head, _, tail = key.partition(".")
    if head == "parts":
        number, _, own = tail.partition(".")
        if not (number.isdigit() and int(number) < len(parts) and own):
            raise InputError(
                f"{context}: {key!r} is not a key of a part; expected parts.0.… to parts.{len(parts) - 1}.…"
            )
        return [int(number)], own
    _require_known(head, parts, context)
    # a key inside a section refers to the parts that have the section
    numbers = [k for k, part in enumerate(parts) if head in _fields(part) and (head == key or head in part)]
    if not numbers:
        raise InputError(f"{context}: no part sets {head!r}, so {key!r} has no section to be set in")
    return numbers, key


def _fields(part: Values) -> set[str]:
    return set(experiments[part["experiment"]].Config.model_fields)


def _require_known(key: str, parts: Sequence[Values], context: str) -> None:
    known = sorted(set().union(*(_fields(part) for part in parts)) - {"experiment"})
    if key not in known:
        raise InputError(f"{context}: no part has the key {key!r}{did_you_mean(key, known)}")


def _without_swept(values: Values, changes: Values) -> dict[str, Any]:
    """Return the config without the swept keys that `changes` sets, because the sweep would override them."""

    def left(swept: Values) -> dict[str, Any]:
        return {
            key: value
            for key, value in swept.items()
            if not any(change in key.split(", ") or key.startswith(f"{change}.") for change in changes)
        }

    match values.get("sweep"):
        case dict() as grid:
            return {**values, "sweep": left(grid)}
        case list() as points:
            return {**values, "sweep": [left(point) if isinstance(point, dict) else point for point in points]}
    return dict(values)
