"""CIFAR-100 (Krizhevsky 2009), from the original pickles or from Hugging Face's parquet files.

Class names are those of the files, in English; cifar100_ru.json has them in Russian and names its source.
torchvision's CIFAR100 is not used for reading: it unpickles whatever it finds and takes only the original files.
"""

import io
import json
import os
import pickle
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from PIL import Image
from pydantic import BaseModel, model_validator

from clip_geometry.data.base import Dataset, DatasetEntry, KnownSplits, Side, datasets, revision
from clip_geometry.data.images import load_image
from clip_geometry.data.prompts import class_prompts
from clip_geometry.data.tables import readable_parquet
from clip_geometry.paths import existing_folder
from clip_geometry.reading import first_line, parse_json
from clip_geometry.registry import InputError, shown

LANGUAGES = ("en", "ru")
PICKLES = "cifar-100-python"
LAYOUTS = f"{PICKLES}/{{train,test,meta}} or {{train,test}}-00000-of-00001.parquet"


class Cifar100Config(KnownSplits):
    """CIFAR-100.

    Attributes:
        path: A folder in one of the two LAYOUTS; default: $CLIP_GEOMETRY_DATA/cifar100 if it exists, otherwise
            ~/.cache/clip-geometry/cifar100, where torchvision downloads it to.
        labels: The 100 fine classes or the 20 coarse ones.
        language: Of the class names in the prompts, "en", or "ru" for the fine classes.
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


def load(config: Cifar100Config) -> Dataset:
    """Load 32×32 RGB images with labels, and class prompts as the text side if a prompt is given.

    The layouts differ in row order, so item_id, "<layout>-<split>-<row>", differs too.
    """
    if config.path:
        folder = existing_folder(config.path, "a CIFAR-100 folder")
    elif not ((shared := os.environ.get("CLIP_GEOMETRY_DATA")) and (folder := Path(shared) / "cifar100").is_dir()):
        folder = Path.home() / ".cache" / "clip-geometry" / "cifar100"
        if not (folder / PICKLES).is_dir():
            download(folder)
    files = layout_files(folder, config.split)
    if files is None:
        raise InputError(f"{folder} holds no {config.split} split of CIFAR-100; expected {LAYOUTS} in it")
    if len(files) == 1:
        layout, (images, labels, class_names) = "parquet", _from_parquet(config, *files)
    else:
        batch, meta = map(read_pickle, files)
        layout, images, labels = "python", batch.get("data"), batch.get(f"{config.labels}_labels")
        class_names = meta.get(f"{config.labels}_label_names")
        if not (isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.shape[1:] == (3072,)):
            raise InputError(f"{files[0]} holds no 'data' of (n, 3072) bytes; a CIFAR-100 pickle was expected")
        if not (isinstance(labels, list) and len(labels) == len(images) and isinstance(class_names, list)):
            raise InputError(f"{files[0]} or {files[1]} lacks the {config.labels} labels or their names")
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
    """Return English → Russian name of the fine classes, in the order of the labels."""
    file = Path(__file__).with_name("cifar100_ru.json")
    return json.loads(file.read_text(encoding="utf-8"))["names"]


def layout_files(folder: Path, split: str) -> tuple[Path, ...] | None:
    """Return the files of a split, (pickle, meta) or (parquet,), in `folder` or its usual subfolder; None without."""
    for place in (folder / PICKLES, folder):
        if (place / split).is_file() and (place / "meta").is_file():
            return place / split, place / "meta"
    for place in (folder, folder / "cifar100"):
        if (file := place / f"{split}-00000-of-00001.parquet").is_file():
            return (file,)
    return None


def download(folder: Path) -> None:
    """Download the original archive, check torchvision's checksum and unpack it as `folder`/cifar-100-python."""
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


class _Info(BaseModel):
    features: dict[str, Any]


class _Schema(BaseModel):
    info: _Info


def _from_parquet(config: Cifar100Config, file: Path) -> tuple[Any, list[int], list[str]]:
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
        class_names = list(features[label_column]["names"])
    except (InputError, KeyError, TypeError):
        raise InputError(f"{shown(file)} has no class names in its schema; Hugging Face's file has them") from None
    if not all(isinstance(name, str) for name in class_names):
        raise InputError(f"{shown(file)} has class names that are no text in its schema")
    images = table["img"].combine_chunks()
    if not pa.types.is_struct(images.type):
        raise InputError(f"{file} has {images.type} in the column 'img'; a struct with the PNG bytes was expected")
    return images, table[label_column].to_pylist(), class_names


def _image_of(rows: Any, k: int) -> Image.Image:
    """Return image k of either layout: of (n, 3072) bytes, or of structs with the bytes of a file."""
    if isinstance(rows, np.ndarray):
        return Image.fromarray(np.ascontiguousarray(rows[k].reshape(3, 32, 32).transpose(1, 2, 0)))
    content = (rows[k].as_py() or {}).get("bytes")
    if content is None:
        raise OSError(f"row {k} has no image bytes")
    return load_image(io.BytesIO(content))


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _ArrayUnpickler(pickle.Unpickler):
    """Builds plain objects and NumPy arrays only, whatever a pickle asks for."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _ALLOWED[module, name]


def read_pickle(path: Path) -> dict[str, Any]:
    """Read the dictionary in one of CIFAR's files, which Python 2 wrote; raise InputError for any other content."""
    try:
        with path.open("rb") as file:
            content = _ArrayUnpickler(file, encoding="latin1").load()
    except Exception as error:  # a damaged pickle raises anything
        why = first_line(error) or "it is truncated"
        raise InputError(f"{shown(path)} is not one of CIFAR's pickles: {why}") from None
    if not isinstance(content, dict):
        raise InputError(f"{shown(path)} is not one of CIFAR's pickles: it holds no dictionary")
    return content


datasets.add("cifar100", DatasetEntry(Cifar100Config, load, "CIFAR-100, 32×32 photographs of 100 classes"))
