"""Captions in one or more languages, from the user's own tables or from COCO's annotations."""

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from clip_geometry.config import digest
from clip_geometry.data.base import CaptionsOnly, Dataset, DatasetEntry, FilesConfig, Side, datasets, revision
from clip_geometry.data.images import load_listed
from clip_geometry.data.tables import Table, read_table
from clip_geometry.io.reading import Schema, read_json
from clip_geometry.paths import existing_file, existing_folder
from clip_geometry.registry import InputError, shown

IMAGE_COLUMNS = ("image", "file_name", "filename", "filepath", "image_path", "path", "image_id")
CAPTION_COLUMNS = ("caption", "text", "title", "sentence")
LANGUAGE_COLUMNS = ("language", "lang", "locale")


class CaptionsConfig(FilesConfig, CaptionsOnly):
    """Options of the user's own table of captions.

    The captions of a language are in a column with its name, such as "de". If there is no such column, the table may
    have one of LANGUAGE_COLUMNS instead; then only the rows whose value in it is `language` are read.

    Attributes:
        path: The table, .csv, .tsv, .parquet or .jsonl.
        images: The folder that image names are relative to. Default: the folder of the table.
        image_column: Column of image names. Default: the first of IMAGE_COLUMNS that the table has; if it has none,
            rows are numbered.
        caption_column: Column of captions. Default: the column named like `language`, or else, if no column has a
            two-letter name, the first of CAPTION_COLUMNS that the table has.
    """

    name: str = "captions"
    image_column: str | None = None
    caption_column: str | None = None


def load(config: CaptionsConfig) -> Dataset:
    table = read_table(config.path)
    images = config.image_column or _first(IMAGE_COLUMNS, table.names)
    return captions_of(config, table, config.caption_column, images, folder=table.path.parent)


def captions_of(
    config: CaptionsOnly, table: Table, caption_column: str | None, image_column: str | None, folder: Path
) -> Dataset:
    """Return a data set with one text row per row of the table in the language of the config.

    Rows with the same image name are captions of one item. item_id is the image name or, without an image column, the
    row number in the table, from 0; both are the same in every language. Each image appears once, in order of first
    appearance. The image side is None if none of the images exists.

    Args:
        config: The options; its `images` takes precedence over `folder`.
        table: The table of captions.
        caption_column: The column of captions; None for the one of the language.
        image_column: The column of image names, if there is one.
        folder: Folder of the images.
    """
    language = config.language
    if not caption_column and language in table.names and language not in IMAGE_COLUMNS:
        caption_column = language
    elif not caption_column:
        languages = [name for name in table.names if re.fullmatch("[a-z]{2}", name) and name != "id"]
        if languages:
            raise InputError(f"{table.path} has no captions in {language!r}; its languages are {', '.join(languages)}")
        caption_column = _first(CAPTION_COLUMNS, table.names)
        if caption_column is None:
            names = ", ".join(table.names)
            raise InputError(f"{table.path} has no caption column; name one of {names} with caption_column=…")
    captions = table.strings(caption_column)
    rows: Sequence[int] = range(len(captions))
    by_language = _first(LANGUAGE_COLUMNS, table.names)
    if by_language is not None and language not in table.names:
        languages = table.strings(by_language)
        rows = [row for row, value in enumerate(languages) if value == language]
        if not rows:
            known = ", ".join(dict.fromkeys(languages))
            raise InputError(f"{table.path} has no rows with {by_language}={language!r}; its languages are {known}")
    texts = [captions[row] for row in rows]
    if image_column is None:
        if config.images is not None:
            raise InputError(
                f"{table.path} has no image column ({', '.join(IMAGE_COLUMNS)}); name it with image_column=…, or leave "
                "images out"
            )
        text = Side("text", [str(row) for row in rows], texts.__getitem__, language=language)
        return Dataset(config, table.revision(), None, text)
    images = table.strings(image_column, numbers=True)
    item_id = [images[row] for row in rows]
    names = list(dict.fromkeys(item_id))
    text = Side("text", item_id, texts.__getitem__, language=language)
    folder = existing_folder(config.images or folder, "a folder of images")
    return _with_images(config, table.revision(), text, folder, names, names)


def _with_images(
    config: CaptionsOnly, files_revision: str, text: Side, folder: Path, names: Sequence[str], item_id: Sequence[str]
) -> Dataset:
    """Return the data set with the images `names` in `folder`, without an image side if none of them exists.

    If only some images are missing, they stay in the list and fail when they are loaded, so that they are counted.
    """
    image = None
    # os.path.isfile also accepts names that no file can have
    if any(os.path.isfile(folder / name) for name in names):  # noqa: PTH113
        image = Side("image", item_id, partial(load_listed, folder, names))
    elif config.images is not None:
        raise InputError(f"none of the {len(names)} images, such as {names[0]!r}, is in the folder {folder}")
    return Dataset(config, digest([files_revision, revision(folder, names)]), image, text)


def _first(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)


# --- COCO

ANNOTATIONS = "a COCO captions annotation file, such as captions_val2017.json,"


class CocoConfig(FilesConfig, CaptionsOnly):
    """Options of COCO captions.

    Attributes:
        path: The annotation file, whose captions are in `language`; the official ones are in English.
        images: The folder of images. Default: for …/annotations/captions_val2017.json, the first existing folder among
            val2017, images/val2017 and images, in … and then in …/annotations.
        captions_per_image: None for all captions; 1 for the first caption of each image by annotation id.
    """

    name: str = "coco"
    captions_per_image: int | None = Field(default=None, ge=1)


class _ListedImage(Schema):
    id: int
    file_name: str


class _Caption(Schema):
    id: int
    image_id: int
    caption: str


class _Annotations(Schema):
    images: Annotated[list[_ListedImage], Field(min_length=1)]
    annotations: Annotated[list[_Caption], Field(min_length=1)]


def load_coco(config: CocoConfig) -> Dataset:
    """Load COCO images in the order of the file, and their captions image by image in the order of annotation ids.

    item_id is the COCO image id. The image side is None if none of the images exists.
    """
    path = existing_file(config.path, ANNOTATIONS)
    content: _Annotations = read_json(path, ANNOTATIONS, _Annotations)
    file_names = {entry.id: entry.file_name for entry in content.images}
    if len(file_names) < len(content.images):
        raise InputError(f"{shown(path)} lists an image id twice; {ANNOTATIONS} has each once")
    captions = defaultdict(list)
    for entry in sorted(content.annotations, key=lambda entry: (entry.id, entry.image_id, entry.caption)):
        if entry.image_id not in file_names:
            raise InputError(
                f"{shown(path)} has a caption of image {entry.image_id}, which is missing from its 'images'"
            )
        captions[entry.image_id].append(entry.caption)
    item_id: list[str] = []
    texts: list[str] = []
    dropped: dict[str, int] = {}
    for image_id in file_names:
        kept = captions[image_id][: config.captions_per_image]
        item_id += [str(image_id)] * len(kept)
        texts += kept
        dropped[str(image_id)] = len(captions[image_id]) - len(kept)

    if config.images is not None:
        folder = existing_folder(config.images, "a folder of images")
    else:
        split = path.stem.rpartition("_")[2]
        names = (split, f"images/{split}", "images")
        candidates = [root / name for root in (path.parent.parent, path.parent) for name in names]
        folder = next(filter(Path.is_dir, candidates), None)
    text = Side("text", item_id, texts.__getitem__, language=config.language, dropped=dropped)
    files_revision = revision(path.parent, [path.name])
    if folder is None:
        return Dataset(config, files_revision, None, text)
    return _with_images(config, files_revision, text, folder, [*file_names.values()], [*map(str, file_names)])


datasets.add("captions", DatasetEntry(CaptionsConfig, load))
datasets.add("coco", DatasetEntry(CocoConfig, load_coco))
