"""Configs of runs: where they are found, `key=value` overrides of dotted keys, and sweeps."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, did_you_mean, shown

SMOKE, PUBLISHED = "smoke", "published"  # sections of a config that replace values of its keys


def shipped_configs() -> dict[str, Path]:
    """Return the configs of the package: name, such as `tyshchuk2023/isotropy`, → file."""
    package = Path(__file__).parents[1]
    folder = package / "configs"  # in a wheel
    if not folder.is_dir():
        folder = package.parents[1] / "configs"  # in a checkout, which has them beside src/
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.yaml"))}


def find_config(given: str | Path) -> Path:
    """Return the file of a config.

    An existing file is used whatever its name is. A folder is not, so `quickstart` refers to the config of the package
    even beside a folder of that name. Names of the package's configs may end in .yaml and begin with configs/, as in a
    checkout.

    Args:
        given: The path of a config, or the name of a config of the package.

    Raises:
        InputError: If it is neither.

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
        raise InputError(f"{shown(path)} is a directory; expected a YAML config file or the name of a config")
    near = did_you_mean(name, known, listed_by="clip-geometry list configs")
    raise InputError(f"{shown(path)} does not exist and is not the name of a config{near}")


def override(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `values` in which each dotted key of `changes` is set.

    Args:
        values: The config.
        changes: New values by dotted key.

    Raises:
        InputError: If a parent of a dotted key is not a section.
    """
    result = json.loads(json.dumps(values, default=str))
    for dotted, value in changes.items():
        *parents, last = dotted.split(".")
        target = result
        for parent in parents:
            target = target.setdefault(parent, {})
            if not isinstance(target, dict):
                raise InputError(
                    f"cannot set {shown(dotted)}: {shown(parent)} is {shown(target)}, not a section; write it as one, "
                    f"or replace it as a whole with {parent}={{…}}"
                )
        target[last] = value
    return result


def expand_sweep(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Expand the section `sweep:` of a config into several configs.

    The section takes one of two forms. A mapping of dotted keys to lists runs their grid, in which the first key varies
    slowest. Keys that vary together are one key of the grid, joined by ", ", whose list holds lists with one value per
    key. A list holds the points one by one, each a mapping of dotted keys to values. Equal points are run once.

    Raises:
        InputError: If the section has neither form.
    """
    values = dict(values)
    sweep = values.pop("sweep", None) or {}
    if isinstance(sweep, list) and all(isinstance(point, dict) for point in sweep):
        points = sweep
    elif isinstance(sweep, dict) and all(isinstance(options, list) and options for options in sweep.values()):
        grid = []  # for each key, its values as points of one name, or of several names that vary together
        for key, options in sweep.items():
            names = key.split(", ")
            rows = options if len(names) > 1 else [[value] for value in options]
            for row in rows:
                if not isinstance(row, list) or len(row) != len(names):
                    raise InputError(f"the sweep over {key!r} has {row!r}; expected a list of {len(names)} values")
            grid.append([dict(zip(names, row, strict=True)) for row in rows])
        points = [dict(itertools.chain(*(part.items() for part in parts))) for parts in itertools.product(*grid)]
    else:
        raise InputError(
            "section 'sweep' has another form; expected a mapping of dotted keys to non-empty lists, or a list of "
            "mappings of dotted keys to values"
        )
    configs: list[dict[str, Any]] = []
    for point in points:
        config = override(values, point)
        if config not in configs:
            configs.append(config)
    return configs
