"""Data sets by name or path. Importing this package registers all of them."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clip_geometry.config import validate
from clip_geometry.data.base import Dataset, DatasetConfig, datasets
from clip_geometry.data.cifar import Cifar10Config, Cifar100Config
from clip_geometry.data.images import IMAGE_SUFFIXES, image_names
from clip_geometry.data.tables import SUFFIXES
from clip_geometry.data.webdataset import is_shard
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, did_you_mean, import_all, listed, shown

import_all(__name__)

__all__ = ["Dataset", "DatasetConfig", "load_dataset", "resolve_dataset"]


def resolve_dataset(name_or_path: str | Path, /, **options: Any) -> DatasetConfig:
    """Check the name or path of a data set and its options, and return its config. No data are loaded.

    The kind of data set at a path is inferred from its files: a table is read as `captions`, a .json as `coco`, and a
    .tar or a folder of them as `webdataset`. A folder is read as `cifar100` or `cifar10` if it has their files, and as
    `folder` if it has images. ~ and $VARIABLE in a path are expanded.

    Args:
        name_or_path: Name or path of the data set.
        **options: Other fields of its config, such as split or language.

    Returns:
        A `DatasetConfig` with all options, for `load_dataset` and `embed`.

    Raises:
        InputError: The name is unknown, the path has no data set, or an option is wrong.

    Example:
        >>> from clip_geometry.data import resolve_dataset
        >>> config = resolve_dataset("scenes", size=8, language="fr")
        >>> config.name, config.size, config.split
        ('scenes', 8, 'test')
    """
    values = {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}
    if str(name_or_path) not in datasets:
        if "path" in values:
            raise InputError(f"two data sets were given, {str(name_or_path)!r} and path={values['path']!r}; give one")
        values["path"] = str(name_or_path)
    for key in values.keys() & {"path", "images"}:  # expand the path, so that each place has one name
        if isinstance(values[key], str):
            values[key] = str(path_of(values[key]).resolve())
    name = _name(name_or_path)
    return validate(datasets[name].config, {**values, "name": name}, f"data set {str(name_or_path)!r}")


def config_class(name_or_path: str | Path) -> type[DatasetConfig]:
    """Return the config class of a data set, given its name or path."""
    return datasets[_name(name_or_path)].config


def dataset_from(section: Mapping[str, Any]) -> DatasetConfig:
    """Return the config for a section such as `{name: cifar100, split: test}`; the name may be a path."""
    options = dict(section)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise InputError(f"a data set needs a 'name' (a data set or a path) among its keys; given: {options}")
    return resolve_dataset(name, **{str(key): value for key, value in options.items()})


def load_dataset(data: str | Path | DatasetConfig, /, **options: Any) -> Dataset:
    """Load a data set by name or path. Images are decoded when they are accessed.

    Args:
        data: Name or path of the data set, as for `resolve_dataset`, or a config returned by `resolve_dataset`.
        **options: Options that go with a name or path, as for `resolve_dataset`.

    Returns:
        A `Dataset` with the sides `image` and `text`, either of which may be None.

    Raises:
        InputError: The name is unknown, the path has no data set, an option is wrong, or files are damaged.

    Example:
        >>> import clip_geometry as cg
        >>> scenes = cg.data.load_dataset("scenes", size=2)
        >>> scenes.image.item_id[0], scenes.image.load(0).size
        ('scenes-test-0-000000', (64, 64))
        >>> print(scenes.text.load(0))
        The picture shows a small purple heart at the top, against a light grey background.
    """
    if isinstance(data, DatasetConfig) and options:
        raise InputError(f"{listed(options)} cannot be given with a config; give the options to resolve_dataset")
    config = data if isinstance(data, DatasetConfig) else resolve_dataset(data, **options)
    return datasets[config.name].load(config)


def path_of(path: str | Path) -> Path:
    """Return the path with ~ and environment variables expanded; a path that exists is returned unchanged."""
    without_tilde = expanded(path)
    if without_tilde.exists():
        return without_tilde
    without_variables = os.path.expandvars(without_tilde)
    if unset := re.search(r"\$\{?(\w+)", without_variables):
        raise InputError(f"the path {shown(str(path))} needs the environment variable {unset[1]}, which is not set")
    return Path(without_variables)


def _name(name_or_path: str | Path) -> str:
    """Return the name of the data set that a name or the files at a path stand for."""
    if str(name_or_path) in datasets:
        return str(name_or_path)
    path = path_of(name_or_path)
    if not path.exists():
        hint = did_you_mean(str(path), datasets, listed_by=datasets.listed_by)
        raise InputError(f"{shown(str(path))} is neither a data set nor an existing path{hint}")
    if path.is_dir():
        for kind in (Cifar100Config, Cifar10Config):  # parquet files without a subfolder count as cifar100
            if any(kind.file(path, split) for split in kind.SPLITS):
                return kind().name
        if any(True for _ in image_names(path)):
            return "folder"
        if any(map(is_shard, path.iterdir())):
            return "webdataset"
        raise InputError(f"{path} has no images ({' '.join(sorted(IMAGE_SUFFIXES))}) and is not a data set")
    if is_shard(path):
        return "webdataset"
    name = {**dict.fromkeys(SUFFIXES, "captions"), ".json": "coco"}.get(path.suffix.lower())
    if name is None:
        kinds = f"a folder of images, a table ({' '.join(SUFFIXES)}), .json or .tar"
        raise InputError(f"{path} is not a data set; expected {kinds}")
    return name


def __dir__() -> list[str]:
    return __all__
