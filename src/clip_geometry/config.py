"""Strict configs: reads YAML and `key=value`, validates them by pydantic, explains a mistake in one sentence."""

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from clip_geometry import reading
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, did_you_mean, listed, printable, shown


class Config(BaseModel):
    """Base class of all configs: unknown keys and wrong types are errors, objects are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


C = TypeVar("C", bound=Config)


def validate(kind: type[C], values: Mapping[str, Any], context: str) -> C:
    """Validates `values` by pydantic's strict JSON mode: "1" is no int, but a list may fill a tuple and an int a float.

    Args:
        kind: The config class.
        values: Key → value.
        context: What error messages begin with, e.g. the path of the config.

    Raises:
        InputError: A key is unknown (the nearest known one is named) or missing, or a value has the wrong type.
    """
    try:
        return kind.model_validate_json(json.dumps(dict(values)))
    except TypeError as error:
        raise InputError(f"{context}: {error}") from None
    except ValidationError as error:
        problem = error.errors()[0]
        key, message = ".".join(str(part) for part in problem["loc"]), problem["msg"]
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
                        section = field and field.annotation
                known = sorted(section.model_fields) if _is_model(section) else []
                near = did_you_mean(str(problem["loc"][-1]), known)
                what = f"unknown key {shown(key)}{near or '; known are ' + listed(known, 12)}"
            case "missing":
                what = f"key {shown(key)} is missing"
            case "value_error":  # raised by a validator of ours: already a sentence
                what = (f"{printable(key)}: " if key else "") + message.removeprefix("Value error, ")
            case _:
                what = f"key {shown(key)} is {shown(problem['input'])}: {message[0].lower()}{message[1:]}"
        raise InputError(f"{context}: {what}") from None


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def read_yaml(path: Path) -> dict[str, Any]:
    """Reads the mapping in a YAML file. Tags, aliases, duplicate keys and anything but a mapping raise InputError."""
    values = reading.read_yaml(path, "a YAML config file")
    if not isinstance(values, dict):
        raise InputError(f"{shown(path)} holds {type(values).__name__}; a YAML mapping was expected")
    return values


def shipped_configs() -> dict[str, Path]:
    """The configs of the package: name, such as `tyshchuk2023/isotropy`, → file."""
    package = Path(__file__).parent
    folder = package / "configs"  # of a wheel
    if not folder.is_dir():
        folder = package.parents[1] / "configs"  # of a checkout, which has them beside src/
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.yaml"))}


def find_config(given: str | Path) -> Path:
    """The file of a config, given as a path or as the name of one of the package.

    An existing file is taken whatever its name; a folder is not, so that `quickstart` is the config of the package
    beside a folder of that name, too. Names may end in .yaml and begin with configs/, as in a checkout.

    Args:
        given: A path or a name.

    Raises:
        InputError: It is neither.

    Example:
        >>> find_config("quickstart").name
        'quickstart.yaml'
    """
    path = expanded(given)
    name = Path(given).as_posix().removeprefix("configs/").removesuffix(".yaml")
    known = shipped_configs()
    if path.exists() and not path.is_dir():
        return path
    if name in known:
        return known[name]
    if path.is_dir():
        raise InputError(f"{shown(path)} is a directory; a YAML config file or the name of a config was expected")
    near = did_you_mean(name, known, listed_by="clip-geometry list configs")
    raise InputError(f"{shown(path)} does not exist and is not the name of a config{near}")


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """Parses `key=value` pairs, whose values are YAML.

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


def override(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Copies `values` and sets each dotted key of `changes`."""
    result = json.loads(json.dumps(values, default=str))
    for dotted, value in changes.items():
        *parents, last = dotted.split(".")
        target = result
        for parent in parents:
            target = target.setdefault(parent, {})
            if not isinstance(target, dict):
                raise InputError(
                    f"cannot set {shown(dotted)}: {shown(parent)} is {shown(target)}, not a section; write it as one, "
                    f"or replace it whole with {parent}={{…}}"
                )
        target[last] = value
    return result


def expand_sweep(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Expands the section `sweep:` into several configs.

    It maps dotted keys to lists, whose grid is run (the first key varies slowest), or lists the points one by one, each
    a mapping of dotted keys to values; equal points are run once. Keys that vary together are one key of the grid,
    joined by ", ", with lists of as many values.
    """
    values = dict(values)
    sweep = values.pop("sweep", None) or {}
    if isinstance(sweep, list) and all(isinstance(point, dict) for point in sweep):
        points = sweep
    elif isinstance(sweep, dict) and all(isinstance(options, list) and options for options in sweep.values()):
        grid = []  # of each key, its values as points: of several names that vary together, or of one
        for key, options in sweep.items():
            names = key.split(", ")
            several = options if len(names) > 1 else [[value] for value in options]
            for values_of in several:
                if not isinstance(values_of, list) or len(values_of) != len(names):
                    raise InputError(
                        f"the sweep over {key!r} has {values_of!r}; expected a list of {len(names)} values"
                    )
            grid.append([dict(zip(names, values_of, strict=True)) for values_of in several])
        points = [dict(itertools.chain(*(part.items() for part in parts))) for parts in itertools.product(*grid)]
    else:
        raise InputError(
            "section 'sweep' must map dotted keys to non-empty lists, or be a list of such mappings to values"
        )
    found: list[dict[str, Any]] = []
    for point in points:
        if (config := override(values, point)) not in found:
            found.append(config)
    return found


def digest(value: Any, length: int = 16) -> str:
    """Hexadecimal hash of a config or a JSON-like object, independent of the order of keys."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", serialize_as_any=True)
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]
