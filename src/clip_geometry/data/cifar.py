"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) as published on Hugging Face, with one parquet file per split.

Class names come from the files, in English; cifar100_ru.json has the Russian names for CIFAR-100 and their source.
"""

import io
import os
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from PIL import Image

from clip_geometry.data.base import Dataset, DatasetEntry, KnownSplits, Side, datasets, revision
from clip_geometry.data.images import load_image
from clip_geometry.data.prompts import class_prompts
from clip_geometry.io.reading import checked, first_line, is_not_fetched, parse_json, read_json, read_table
from clip_geometry.paths import existing_folder
from clip_geometry.registry import InputError, shown

FILE = "{}-00000-of-00001.parquet"  # name of a split's file


class CifarConfig(KnownSplits):
    """Options that CIFAR-10 and CIFAR-100 share.

    Attributes:
        path: A folder with the parquet files. Default: $CLIP_GEOMETRY_DATA/<name> if it exists; otherwise the files
            are downloaded from the hub.
        language: Language of the class names in the prompts.
    """

    SPLITS = ("train", "test")
    FOLDER: ClassVar[str]  # folder in uoft-cs/<name> on the hub
    path: Path | None = None

    @property
    def label(self) -> str:
        """Name of the column of labels."""
        return "label"

    @classmethod
    def file(cls, folder: Path, split: str) -> Path | None:
        """Return the file of a split in a folder or its usual subfolder; None if it does not exist."""
        name = FILE.format(split)
        return next(filter(Path.is_file, (folder / name, folder / cls.FOLDER / name)), None)


class Cifar10Config(CifarConfig):
    """CIFAR-10."""

    FOLDER = "plain_text"
    name: str = "cifar10"
    language: Literal["en"] = "en"  # pyright: ignore[reportIncompatibleVariableOverride]


class Cifar100Config(CifarConfig):
    """CIFAR-100.

    Attributes:
        labels: The 100 fine classes or the 20 coarse ones.
        language: "en", or "ru" for prompts of the fine classes.
    """

    FOLDER = "cifar100"
    name: str = "cifar100"
    language: Literal["en", "ru"] = "en"  # pyright: ignore[reportIncompatibleVariableOverride]
    labels: Literal["fine", "coarse"] = "fine"

    @property
    def label(self) -> str:
        return f"{self.labels}_label"


def load(config: CifarConfig) -> Dataset:
    """Load 32×32 RGB images with labels and, if a prompt is given, class prompts as the text side."""
    file = _split_file(config)
    images, labels, class_names = _read(config, file)
    text = None
    if config.prompt is not None:
        names = class_names
        if config.language == "ru":
            russian = russian_names()
            if unknown := [name for name in names if name not in russian]:
                raise InputError(f"{unknown[0]!r} is not a class of CIFAR-100 and has no name in 'ru'; use language=en")
            names = [russian[name] for name in names]
        text = class_prompts(names, config.prompt, config.language)
    item_id = [f"parquet-{config.split}-{k}" for k in range(len(labels))]
    image = Side("image", item_id, partial(_image_of, images), labels=labels)
    return Dataset(config, revision(file.parent, [file.name]), image, text, tuple(class_names))


def russian_names() -> dict[str, str]:
    """Return English → Russian names of CIFAR-100's fine classes, in the order of the labels."""
    return read_json(Path(__file__).with_name("cifar100_ru.json"), "the Russian names of CIFAR-100")["names"]


def _split_file(config: CifarConfig) -> Path:
    """Return the file of the split; it is downloaded if no folder is given and CLIP_GEOMETRY_DATA does not have it."""
    folder = config.path
    shared = os.environ.get("CLIP_GEOMETRY_DATA")
    if folder is None and shared and (Path(shared) / config.name).is_dir():
        folder = Path(shared) / config.name
    if folder is not None:
        file = config.file(existing_folder(folder, f"a folder of {config.name}"), config.split)
        if file is None:
            raise InputError(f"{shown(folder)} has no {config.split} split; expected {FILE.format(config.split)} in it")
        return file
    from huggingface_hub import hf_hub_download

    repository = f"uoft-cs/{config.name}"
    file = f"{config.FOLDER}/{FILE.format(config.split)}"
    try:
        return Path(hf_hub_download(repository, file, repo_type="dataset"))
    except Exception as error:
        if not (is_not_fetched(error) or isinstance(error, ValueError)):
            raise
        raise InputError(
            f"{config.name}, split {config.split}, could not be fetched from huggingface.co and is not in its cache "
            f"({type(error).__name__}: {first_line(error)}); give a folder with {file} of {repository} with path=… or "
            "CLIP_GEOMETRY_DATA"
        ) from None


def _read(config: CifarConfig, file: Path) -> tuple[Any, np.ndarray, list[str]]:
    """Return the contents of the image files, the labels and the class names."""
    table = read_table(file)
    metadata = (table.schema.metadata or {}).get(b"huggingface", b"{}")
    source = f"the schema of {shown(file)}"
    try:
        features = parse_json(metadata, source, dict[str, Any])["info"]["features"]
        class_names = checked(features[config.label]["names"], source, list[str])
        images = table["img"].combine_chunks().field("bytes")
        labels = np.array(table[config.label].to_pylist(), np.int64)
        if not len(labels) or not np.isin(labels, np.arange(len(class_names))).all():
            raise ValueError("a row without a class")
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(
            f"{shown(file)} is not {config.name} as published on Hugging Face; expected the columns 'img', the bytes "
            f"of an image, and {config.label!r}, the number of a class that the schema names"
        ) from None
    return images, labels, class_names


def _image_of(images: Any, k: int) -> Image.Image:
    return load_image(io.BytesIO(images[k].as_py() or b""))


datasets.add("cifar10", DatasetEntry(Cifar10Config, load))
datasets.add("cifar100", DatasetEntry(Cifar100Config, load))
