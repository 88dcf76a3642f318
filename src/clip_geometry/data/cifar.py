"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), from the original pickles or from Hugging Face's parquet files.

Class names are those of the files, in English; cifar100_ru.json has CIFAR-100's in Russian and names its source.
torchvision's classes are not used for reading: they unpickle whatever they find and take only the original files.
"""

import io
import os
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from PIL import Image
from pydantic import model_validator

from clip_geometry.data.base import Dataset, DatasetEntry, KnownSplits, Side, datasets, revision
from clip_geometry.data.images import load_image
from clip_geometry.data.prompts import class_prompts
from clip_geometry.files import exclusive
from clip_geometry.io.pickles import read_pickle
from clip_geometry.io.reading import checked, is_not_fetched, parse_json, read_json, read_table
from clip_geometry.paths import existing_folder
from clip_geometry.progress import note
from clip_geometry.registry import InputError, shown

PART = "tmp"  # the beginning of the name of a folder that is being filled


class CifarConfig(KnownSplits):
    """What the two sets share.

    Attributes:
        path: A folder with the original pickles or Hugging Face's parquet files; default: $CLIP_GEOMETRY_DATA/<name> if
            it exists, otherwise ~/.cache/clip-geometry/<name>, where torchvision downloads the pickles to.
        language: Of the class names in the prompts.
    """

    SPLITS = ("train", "test")
    TITLE: ClassVar[str]
    PICKLES: ClassVar[str]  # the folder in the original archive
    FILES: ClassVar[dict[str, tuple[str, ...]]]  # in it: the batches of a split, then the class names
    PARQUET: ClassVar[str]  # the folder on the hub
    path: Path | None = None

    @property
    def label(self) -> str:
        """The column of the labels; the keys of the pickles begin with it."""
        return "label"

    @classmethod
    def files(cls, folder: Path, split: str) -> tuple[Path, ...] | None:
        """Return a split's (batch, …, names) or (parquet,), in `folder` or its usual subfolder; None without."""
        for place in (folder / cls.PICKLES, folder):
            files = tuple(place / name for name in cls.FILES[split])
            if all(file.is_file() for file in files):
                return files
        for place in (folder, folder / cls.PARQUET):
            if (file := place / f"{split}-00000-of-00001.parquet").is_file():
                return (file,)
        return None


class Cifar10Config(CifarConfig):
    """CIFAR-10."""

    TITLE = "CIFAR-10"
    PICKLES = "cifar-10-batches-py"
    FILES: ClassVar = {
        "train": (*(f"data_batch_{k}" for k in range(1, 6)), "batches.meta"),
        "test": ("test_batch", "batches.meta"),
    }
    PARQUET = "plain_text"
    name: str = "cifar10"
    language: Literal["en"] = "en"  # pyright: ignore[reportIncompatibleVariableOverride]


class Cifar100Config(CifarConfig):
    """CIFAR-100.

    Attributes:
        labels: The 100 fine classes or the 20 coarse ones.
        language: "en", or "ru" for the fine classes.
    """

    TITLE = "CIFAR-100"
    PICKLES = "cifar-100-python"
    FILES: ClassVar = {"train": ("train", "meta"), "test": ("test", "meta")}
    PARQUET = "cifar100"
    name: str = "cifar100"
    language: Literal["en", "ru"] = "en"  # pyright: ignore[reportIncompatibleVariableOverride]
    labels: Literal["fine", "coarse"] = "fine"

    @model_validator(mode="after")
    def _fine_in_russian(self) -> Self:
        if self.language != "en" and self.labels == "coarse":
            raise ValueError(f"cifar100 has its 20 coarse classes in en only, not in {self.language!r}")
        return self

    @property
    def label(self) -> str:
        return f"{self.labels}_label"


def load(config: CifarConfig) -> Dataset:
    """Load 32×32 RGB images with labels, and class prompts as the text side if a prompt is given.

    The layouts differ in row order, so item_id, "<layout>-<split>-<row>", differs too.
    """
    if config.path:
        folder = existing_folder(config.path, f"a {config.TITLE} folder")
    elif not ((shared := os.environ.get("CLIP_GEOMETRY_DATA")) and (folder := Path(shared) / config.name).is_dir()):
        folder = Path.home() / ".cache" / "clip-geometry" / config.name
        if not (folder / config.PICKLES).is_dir():
            download(config, folder)
    files = config.files(folder, config.split)
    if files is None:
        pickles = f"{config.PICKLES}/{{{','.join(config.FILES[config.split])}}}"
        raise InputError(
            f"{folder} holds no {config.split} split of {config.TITLE}; expected {pickles} or "
            f"{config.split}-00000-of-00001.parquet in it"
        )
    layout, read = ("parquet", _from_parquet) if len(files) == 1 else ("python", _from_pickles)
    images, labels, class_names = read(config, *files)
    if not labels:
        raise InputError(f"{files[0]} has no rows")
    if not all(label in range(len(class_names)) for label in labels):
        raise InputError(f"{files[0]} has a label that is none of its {len(class_names)} classes")
    item_id = [f"{layout}-{config.split}-{k}" for k in range(len(labels))]
    text = None
    if config.prompt is not None:
        names = class_names
        if config.language == "ru":
            russian = russian_names()
            if unknown := [name for name in names if name not in russian]:
                raise InputError(f"{unknown[0]!r} is no class of CIFAR-100 and has no name in 'ru'; use language=en")
            names = [russian[name] for name in names]
        text = class_prompts(names, config.prompt, config.language)
    return Dataset(
        config=config,
        revision=revision(files[0].parent, [file.name for file in files]),
        image=Side("image", item_id, partial(_image_of, images), labels=np.array(labels, dtype=np.int64)),
        text=text,
        class_names=tuple(class_names),
    )


def russian_names() -> dict[str, str]:
    """Return English → Russian name of CIFAR-100's fine classes, in the order of the labels."""
    return read_json(Path(__file__).with_name("cifar100_ru.json"), "the Russian names of CIFAR-100")["names"]


def download(config: CifarConfig, folder: Path) -> None:
    """Download the original archive, check torchvision's checksum and unpack it in `folder`.

    The files appear there when all are whole. What a killed process has left is removed.
    """
    import shutil
    from tempfile import TemporaryDirectory

    from torchvision import datasets as published
    from torchvision.datasets.utils import download_and_extract_archive

    source = getattr(published, config.name.upper())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder, lambda: note(f"another process downloads {config.TITLE}: waiting")):
            if (folder / config.PICKLES).is_dir():  # it was faster
                return
            for left in folder.glob(f"{PART}*"):
                shutil.rmtree(left)
            note(f"downloading {config.TITLE}, 170 MB, from {source.url} to {folder}")
            with TemporaryDirectory(dir=folder, prefix=PART) as part:
                download_and_extract_archive(source.url, part, filename=source.filename, md5=source.tgz_md5)
                (Path(part) / config.PICKLES).rename(folder / config.PICKLES)
    except Exception as error:  # no network, another checksum, no room
        if not (is_not_fetched(error) or isinstance(error, RuntimeError)):
            raise
        raise InputError(
            f"{config.TITLE} could not be downloaded from {source.url} to {folder} ({error}); "
            "give a folder that holds it with path=… or CLIP_GEOMETRY_DATA"
        ) from None


def _from_pickles(config: CifarConfig, *files: Path) -> tuple[Any, list[int], list[str]]:
    *batches, meta = files
    class_names: Any = read_batch(meta).get(f"{config.label}_names")
    images, labels = [], []
    for file in batches:
        batch = read_batch(file)
        rows, of_rows = batch.get("data"), batch.get(f"{config.label}s")
        if not (isinstance(rows, np.ndarray) and rows.dtype == np.uint8 and rows.shape[1:] == (3072,)):
            raise InputError(f"{file} holds no 'data' of (n, 3072) bytes; a {config.TITLE} pickle was expected")
        if not (isinstance(of_rows, list) and len(of_rows) == len(rows) and isinstance(class_names, list)):
            raise InputError(f"{file} or {meta} lacks the {config.label.replace('_', ' ')}s or their names")
        images.append(rows)
        labels += of_rows
    return np.concatenate(images), labels, class_names


def _from_parquet(config: CifarConfig, file: Path) -> tuple[Any, list[int], list[str]]:
    import pyarrow as pa

    table = read_table(file)
    missing = [name for name in ("img", config.label) if name not in table.column_names]
    if missing:
        raise InputError(f"{file} has no column {missing[0]!r}; it has {', '.join(table.column_names)}")
    facts, source = (table.schema.metadata or {}).get(b"huggingface", b"{}"), f"the schema of {shown(file)}"
    try:
        features = parse_json(facts, source, dict[str, Any])["info"]["features"]
        class_names = checked(features[config.label]["names"], source, list[str])
    except (InputError, KeyError, TypeError):
        raise InputError(f"{shown(file)} has no class names in its schema; Hugging Face's file has them") from None
    images = table["img"].combine_chunks()
    if not pa.types.is_struct(images.type):
        raise InputError(f"{file} has {images.type} in the column 'img'; a struct with the PNG bytes was expected")
    return images, table[config.label].to_pylist(), class_names


def _image_of(rows: Any, k: int) -> Image.Image:
    """Return image k of either layout: of (n, 3072) bytes, or of structs with the bytes of a file."""
    if isinstance(rows, np.ndarray):
        return Image.fromarray(np.ascontiguousarray(rows[k].reshape(3, 32, 32).transpose(1, 2, 0)))
    content = (rows[k].as_py() or {}).get("bytes")
    if content is None:
        raise OSError(f"row {k} has no image bytes")
    return load_image(io.BytesIO(content))


def read_batch(path: Path) -> dict[str, Any]:
    """Read the dictionary in one of CIFAR's files, which Python 2 wrote; raise InputError for any other content."""
    content = read_pickle(path, "one of CIFAR's pickles", encoding="latin1")
    if not isinstance(content, dict):
        raise InputError(f"{shown(path)} is not one of CIFAR's pickles: it holds no dictionary")
    return content


datasets.add("cifar10", DatasetEntry(Cifar10Config, load))
datasets.add("cifar100", DatasetEntry(Cifar100Config, load))
