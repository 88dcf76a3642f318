"""Strict configs, read from YAML and `key=value` and validated by pydantic; errors are explained in one sentence."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from clip_geometry.io import reading
from clip_geometry.registry import InputError, did_you_mean, listed, printable, shown


class Config(BaseModel):
    """Base class of all configs: unknown keys and wrong types are errors, objects are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


C = TypeVar("C", bound=Config)


def validate(kind: type[C], values: Mapping[str, Any], context: str) -> C:
    """Validate a mapping and return it as a config.

    Uses pydantic's strict JSON mode: "1" is not accepted as an int, but a list is accepted for a tuple and an int for
    a float.

    Args:
        kind: The config class.
        values: Key → value.
        context: Prefix of error messages, e.g. the path of the config.

    Raises:
        InputError: A key is unknown (the nearest known one is named) or missing, or a value has the wrong type.
    """
    try:
        return kind.model_validate_json(json.dumps(dict(values)))
    except TypeError as error:
        raise InputError(f"{context}: {error}") from None
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"]
        match problem["type"]:
            case "extra_forbidden":
                section: Any = kind
                for part in problem["loc"][:-1]:
                    if get_origin(section) is dict:
                        section = get_args(section)[1]
                    elif isinstance(part, int) and get_origin(section) in (tuple, list):
                        section = get_args(section)[0]
                    elif _is_model(section):
                        field = section.model_fields.get(str(part))
                        section = None if field is None else field.annotation
                known = sorted(section.model_fields) if _is_model(section) else []
                near = did_you_mean(str(problem["loc"][-1]), known)
                sentence = f"unknown key {shown(key)}{near or '; known are ' + listed(known, 12)}"
            case "missing":
                sentence = f"key {shown(key)} is missing"
            case "value_error":  # raised by one of our validators, so it is already a sentence
                sentence = (f"{printable(key)}: " if key else "") + message.removeprefix("Value error, ")
            case _:
                sentence = f"key {shown(key)} is {shown(problem['input'])}: {message[0].lower()}{message[1:]}"
        raise InputError(f"{context}: {sentence}") from None


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping from a YAML file. Tags, aliases, duplicate keys and non-mappings raise InputError."""
    text = reading.read_text(path, "a YAML config file", limit=reading.MAX_YAML)
    values = reading.parse_yaml(text, shown(path))
    if not isinstance(values, dict):
        raise InputError(f"{shown(path)} holds {type(values).__name__}; a YAML mapping was expected")
    return values


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """Parse `key=value` pairs whose values are YAML.

    Args:
        pairs: Texts of the form key=value.

    Returns:
        Key → parsed value.

    Raises:
        InputError: A pair has another form, or its value is not plain YAML.

    Example:
        >>> parse_overrides(["seed=1", "model.zero_bias=true"])
        {'seed': 1, 'model.zero_bias': True}
    """
    overrides = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (equals and key):
            raise InputError(f"{shown(pair)} is not of the form key=value")
        overrides[key.strip()] = reading.parse_yaml(value, f"the value of {shown(pair)} is not plain YAML")
    return overrides


def digest(value: Any, length: int = 16) -> str:
    """Return a hexadecimal hash of a config or a JSON-like object; the order of keys does not matter."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", serialize_as_any=True)
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]
