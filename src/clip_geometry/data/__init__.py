"""Data sets by name or path. Importing this registers all of them."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clip_geometry.config import validate
from clip_geometry.data import cifar100, folder
from clip_geometry.data.aligned import PLACE
from clip_geometry.data.base import Dataset, DatasetConfig, DatasetEntry, Side, datasets
from clip_geometry.data.images import IMAGE_SUFFIXES
from clip_geometry.data.tables import SUFFIXES
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, did_you_mean, import_all, shown

__all__ = [
    "Dataset",
    "DatasetConfig",
    "DatasetEntry",
    "Side",
    "config_class",
    "dataset_from",
    "datasets",
    "load_dataset",
    "path_of",
    "resolve_dataset",
]

import_all(__name__)


def resolve_dataset(name_or_path: str | Path, /, **options: Any) -> DatasetConfig:
    """The config of a registered data set, or of what lies at a path; `options` are its other fields.

    A table, or a path with {language} in it, is read as `captions`, .json as `coco`, a folder as `cifar100` where it
    has one of its layouts and as `folder` where it holds images. ~ and $VARIABLE in a path are put in. Raises
    InputError for anything else and for wrong options.
    """
    return _resolve(name_or_path, options)


def config_class(name_or_path: str | Path) -> type[DatasetConfig]:
    """The kind of config that a name, or what lies at a path, asks for."""
    return datasets[_name(name_or_path)].config


def dataset_from(section: Mapping[str, Any]) -> DatasetConfig:
    """The config that a section such as `{name: cifar100, split: test}` describes; the name may be a path."""
    options = dict(section)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise InputError(f"a data set needs a 'name' (a data set or a path) among its keys; given: {options}")
    return _resolve(name, options)


def load_dataset(config: DatasetConfig) -> Dataset:
    """The data set of a config. Nothing is decoded yet."""
    return datasets[config.name].load(config)


def _resolve(name_or_path: str | Path, options: Mapping[str, Any]) -> DatasetConfig:
    values = {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}
    if str(name_or_path) not in datasets:
        if "path" in values:
            raise InputError(
                f"both {str(name_or_path)!r} and path={values['path']!r} say where the data set is; give one"
            )
        values["path"] = str(name_or_path)
    for key in values.keys() & {"path", "images", "image_names"}:  # one place has one name, from wherever it is given
        if isinstance(values[key], str):
            values[key] = str(path_of(values[key]).resolve())
    name = _name(name_or_path)
    return validate(datasets[name].config, {**values, "name": name}, f"data set {str(name_or_path)!r}")


def _name(name_or_path: str | Path) -> str:
    name = str(name_or_path)
    return name if name in datasets else _kind(path_of(name_or_path))


def path_of(path: str | Path) -> Path:
    """The path with ~ and environment variables put in; as it is where it exists so."""
    place = expanded(path)
    if place.exists():
        return place
    place = os.path.expandvars(place)
    if unset := re.search(r"\$\{?(\w+)", place):
        raise InputError(f"the path {shown(str(path))} needs the environment variable {unset[1]}, which is not set")
    return Path(place)


def _kind(path: Path) -> str:
    if PLACE in str(path):
        return "captions"
    if not path.exists():
        hint = did_you_mean(str(path), datasets, listed_by=datasets.listed_by)
        raise InputError(f"{shown(str(path))} is neither a data set nor an existing path{hint}")
    if path.is_dir():
        if any(cifar100.layout_files(path, split) for split in cifar100.Cifar100Config.SPLITS):
            return "cifar100"
        if any(True for _ in folder.image_names(path)):
            return "folder"
        raise InputError(f"{path} holds no images ({' '.join(sorted(IMAGE_SUFFIXES))}) and is no data set")
    if path.suffix.lower() in SUFFIXES:
        return "captions"
    if path.suffix.lower() == ".json":
        return "coco"
    raise InputError(f"{path} is no data set; expected a folder of images, a table ({' '.join(SUFFIXES)}) or .json")
