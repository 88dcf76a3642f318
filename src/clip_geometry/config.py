"""Strict configs: YAML and `key=value` in, pydantic objects out, every mistake one sentence."""

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from clip_geometry.registry import InputError, did_you_mean


class Config(BaseModel):
    """Base of all configs: unknown keys and wrong types are errors, objects are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


C = TypeVar("C", bound=Config)


def validate(kind: type[C], values: Mapping[str, Any], context: str) -> C:
    """`values` as a `kind`, or an InputError that names the wrong key and the nearest known one.

    JSON mode of strict pydantic: "1" is no int and 1 no string, but a list may fill a tuple and an int a float.
    """
    try:
        return kind.model_validate_json(json.dumps(dict(values)))
    except TypeError as error:
        raise InputError(f"{context}: {error}") from None
    except ValidationError as error:
        raise InputError(f"{context}: {_first_problem(kind, error)}") from None


def _first_problem(kind: type[BaseModel], error: ValidationError) -> str:
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = _fields_at(kind, problem["loc"][:-1])
        near = did_you_mean(str(problem["loc"][-1]), known)
        return f"unknown key {key!r}{near or '; known are ' + ', '.join(known)}"
    if problem["type"] == "missing":
        return f"key {key!r} is missing"
    if problem["type"] == "value_error":  # raised by a validator of ours: already a sentence
        sentence = problem["msg"].removeprefix("Value error, ")
        return f"{key}: {sentence}" if key else sentence
    given = json.dumps(problem["input"], ensure_ascii=False, default=str)
    return f"key {key!r} is {given[:80]}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


def _fields_at(kind: type[BaseModel], location: Iterable[Any]) -> list[str]:
    annotation: Any = kind
    for part in location:
        if get_origin(annotation) is dict:
            annotation = get_args(annotation)[1]
        elif isinstance(part, int) and get_origin(annotation) in (tuple, list):
            annotation = get_args(annotation)[0]
        elif _is_model(annotation) and part in annotation.model_fields:
            annotation = annotation.model_fields[part].annotation
        else:
            return []
    return sorted(annotation.model_fields) if _is_model(annotation) else []


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


class _PlainLoader(yaml.SafeLoader):
    """SafeLoader that also refuses duplicate keys, which YAML would let the last one win."""


def _unique_mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict:
    keys = [loader.construct_object(key) for key, _ in node.value]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(f"line {node.start_mark.line + 1}: key {key!r} appears twice")
    return loader.construct_mapping(node, deep=True)


_PlainLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; tags, duplicate keys and anything but a mapping are errors."""
    if path.is_dir():
        raise InputError(f"{path} is a directory; a YAML config file was expected")
    if not path.exists():
        raise InputError(f"config {path} does not exist")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_PlainLoader)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or "not a text file in UTF-8"
        raise InputError(f"{path}{where}: {what}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path} holds {type(values).__name__}; a YAML mapping was expected")
    return values


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """`["seed=1", "model.zero_bias=true"]` as `{"seed": 1, "model.zero_bias": True}`; values are YAML."""
    overrides = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (equals and key):
            raise InputError(f"{pair!r} is not of the form key=value")
        try:
            overrides[key.strip()] = yaml.load(value, Loader=_PlainLoader)
        except yaml.YAMLError:
            raise InputError(f"the value of {pair!r} is not plain YAML") from None
    return overrides


def override(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `values` with each dotted key of `changes` replaced."""
    result = json.loads(json.dumps(values, default=str))
    for dotted, value in changes.items():
        *parents, last = dotted.split(".")
        target = result
        for parent in parents:
            target = target.setdefault(parent, {})
            if not isinstance(target, dict):
                raise InputError(
                    f"cannot set {dotted!r}: {parent!r} is {json.dumps(target)}, not a section; write it as one, or "
                    f"replace it whole with {parent}={{…}}"
                )
        target[last] = value
    return result


def expand_sweep(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The grid of configs that the section `sweep:` (dotted key → list) asks for, first key slowest."""
    values = dict(values)
    sweep = values.pop("sweep", None) or {}
    if not isinstance(sweep, dict) or not all(isinstance(options, list) and options for options in sweep.values()):
        raise InputError("section 'sweep' must map dotted keys to non-empty lists")
    grid = itertools.product(*sweep.values())
    return [override(values, dict(zip(sweep, point, strict=True))) for point in grid]


def digest(value: Any, length: int = 16) -> str:
    """Hexadecimal hash of a JSON-like object or a config, independent of key order."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", serialize_as_any=True)
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]
