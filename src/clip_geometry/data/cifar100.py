"""CIFAR-100 (Krizhevsky 2009), from the original pickles or from Hugging Face's parquet files.

The class names are those of the files, in English; cifar100_ru.json has them in Russian and says where from.
"""

import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from PIL import Image
from pydantic import BaseModel, model_validator

from clip_geometry.data.base import Dataset, DatasetEntry, Side, datasets
from clip_geometry.data.cifar_pickle import read_pickle
from clip_geometry.data.files import revision
from clip_geometry.data.images import load_image
from clip_geometry.data.prompts import class_prompts
from clip_geometry.data.tables import readable_parquet
from clip_geometry.data.traits import KnownSplits
from clip_geometry.paths import existing_folder
from clip_geometry.reading import parse_json
from clip_geometry.registry import InputError, shown

LANGUAGES = ("en", "ru")
PICKLES = "cifar-100-python"
LAYOUTS = f"{PICKLES}/{{train,test,meta}} or {{train,test}}-00000-of-00001.parquet"


class Cifar100Config(KnownSplits):
    """path: a folder in one of the two LAYOUTS; default: $CLIP_GEOMETRY_DATA/cifar100 where that exists, otherwise
    ~/.cache/clip-geometry/cifar100, where torchvision downloads it to.
    labels: the 100 fine classes or the 20 coarse ones. language: of the class names in the prompts, "en", or "ru" for
    the fine classes.
    """

    SPLITS = ("train", "test")
    name: str = "cifar100"
    path: Path | None = None
    labels: Literal["fine", "coarse"] = "fine"

    @model_validator(mode="after")
    def _known_language(self) -> Self:
        if self.language not in LANGUAGES:
            known = ", ".join(LANGUAGES)
            raise ValueError(f"cifar100 has no class names in {self.language!r}; its languages are {known}")
        if self.language != "en" and self.labels == "coarse":
            raise ValueError(f"cifar100 has its 20 coarse classes in en only, not in {self.language!r}")
        return self


@dataclass(frozen=True)
class _Rows:
    """What either layout holds of one split."""

    load: Callable[[int], Image.Image]
    labels: Sequence[int]
    class_names: Sequence[str]


def load(config: Cifar100Config) -> Dataset:
    """32×32 RGB images with labels; class prompts as the text side where a prompt is given.

    The layouts differ in row order, therefore item_id, "<layout>-<split>-<row>", differs too.
    """
    folder = existing_folder(config.path, "a CIFAR-100 folder") if config.path else _default_folder()
    files = layout_files(folder, config.split)
    if files is None:
        raise InputError(f"{folder} holds no {config.split} split of CIFAR-100; expected {LAYOUTS} in it")
    layout, read = ("parquet", _from_parquet) if len(files) == 1 else ("python", _from_pickles)
    rows = read(config, *files)
    labels = _checked_labels(rows, files[0])
    return Dataset(
        config=config,
        revision=revision(files[0].parent, [file.name for file in files]),
        image=Side("image", [f"{layout}-{config.split}-{k}" for k in range(len(labels))], rows.load, labels=labels),
        text=None if config.prompt is None else _prompts(config, rows.class_names),
        class_names=tuple(rows.class_names),
    )


def russian_names() -> dict[str, str]:
    """The names of the fine classes in Russian by the English ones, in the order of the labels."""
    file = Path(__file__).with_name("cifar100_ru.json")
    return json.loads(file.read_text(encoding="utf-8"))["names"]


def _prompts(config: Cifar100Config, names: Sequence[str]) -> Side:
    if config.language == "ru":
        russian = russian_names()
        if unknown := [name for name in names if name not in russian]:
            raise InputError(f"{unknown[0]!r} is no class of CIFAR-100 and has no name in 'ru'; use language=en")
        names = [russian[name] for name in names]
    return class_prompts(names, config.prompt or "", config.language)


def layout_files(folder: Path, split: str) -> tuple[Path, ...] | None:
    """The files of a split: (pickle, meta) or (parquet,), in `folder` or its usual sub-folder; None without."""
    for place in (folder / PICKLES, folder):
        if (place / split).is_file() and (place / "meta").is_file():
            return place / split, place / "meta"
    for place in (folder, folder / "cifar100"):
        if (file := place / f"{split}-00000-of-00001.parquet").is_file():
            return (file,)
    return None


def _default_folder() -> Path:
    if (shared := os.environ.get("CLIP_GEOMETRY_DATA")) and (folder := Path(shared) / "cifar100").is_dir():
        return folder
    folder = Path.home() / ".cache" / "clip-geometry" / "cifar100"
    if not (folder / PICKLES).is_dir():
        download(folder)
    return folder


def download(folder: Path) -> None:
    """The original archive, checked against torchvision's checksum, unpacked as `folder`/cifar-100-python."""
    from tempfile import TemporaryDirectory

    from torchvision.datasets import CIFAR100
    from torchvision.datasets.utils import download_and_extract_archive

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as part:
            download_and_extract_archive(CIFAR100.url, part, filename=CIFAR100.filename, md5=CIFAR100.tgz_md5)
            if not (folder / PICKLES).is_dir():  # another process may have been faster
                (Path(part) / PICKLES).rename(folder / PICKLES)
    except (OSError, RuntimeError) as error:  # no network, another checksum, no room
        raise InputError(
            f"CIFAR-100 could not be downloaded from {CIFAR100.url} to {folder} ({error}); "
            "give a folder that holds it with path=… or CLIP_GEOMETRY_DATA"
        ) from None


def _from_pickles(config: Cifar100Config, batch_file: Path, meta_file: Path) -> _Rows:
    batch, meta = read_pickle(batch_file), read_pickle(meta_file)
    pixels, labels = batch.get("data"), batch.get(f"{config.labels}_labels")
    names = meta.get(f"{config.labels}_label_names")
    if not (isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.shape[1:] == (3072,)):
        raise InputError(f"{batch_file} holds no 'data' of (n, 3072) bytes; a CIFAR-100 pickle was expected")
    if not (isinstance(labels, list) and len(labels) == len(pixels) and isinstance(names, list)):
        raise InputError(f"{batch_file} or {meta_file} lacks the {config.labels} labels or their names")
    return _Rows(partial(_image_of_row, pixels), labels, names)


def _image_of_row(pixels: np.ndarray, k: int) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(pixels[k].reshape(3, 32, 32).transpose(1, 2, 0)))


class _Info(BaseModel):
    features: dict[str, Any]


class _Schema(BaseModel):
    info: _Info


def _from_parquet(config: Cifar100Config, file: Path) -> _Rows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    label_column = f"{config.labels}_label"
    with readable_parquet(file):
        opened = pq.ParquetFile(file)
        names = opened.schema_arrow.names
        missing = [name for name in ("img", label_column) if name not in names]
        if missing:
            raise InputError(f"{file} has no column {missing[0]!r}; it has {', '.join(names)}")
        table = opened.read(columns=["img", label_column])
    facts = (table.schema.metadata or {}).get(b"huggingface", b"{}")
    try:
        features = parse_json(facts, f"the schema of {shown(file)}", _Schema).info.features
        class_names = tuple(features[label_column]["names"])
    except (InputError, KeyError, TypeError):
        raise InputError(f"{shown(file)} has no class names in its schema; Hugging Face's file has them") from None
    if not all(isinstance(name, str) for name in class_names):
        raise InputError(f"{shown(file)} has class names that are no text in its schema")
    images = table["img"].combine_chunks()
    if not pa.types.is_struct(images.type):
        raise InputError(f"{file} has {images.type} in the column 'img'; a struct with the PNG bytes was expected")
    return _Rows(partial(_image_of_struct, images), table[label_column].to_pylist(), class_names)


def _image_of_struct(column: Any, k: int) -> Image.Image:
    content = (column[k].as_py() or {}).get("bytes")
    if content is None:
        raise OSError(f"row {k} has no image bytes")
    return load_image(io.BytesIO(content))


def _checked_labels(rows: _Rows, file: Path) -> np.ndarray:
    if not len(rows.labels):
        raise InputError(f"{file} has no rows")
    classes = range(len(rows.class_names))
    if not all(label in classes for label in rows.labels):
        raise InputError(f"{file} has a label that is none of its {len(classes)} classes")
    return np.array(rows.labels, dtype=np.int64)


datasets.add("cifar100", DatasetEntry(Cifar100Config, load, "CIFAR-100, 32×32 photographs of 100 classes"))
