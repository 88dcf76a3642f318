"""Captions in one or more languages."""

import re
from collections.abc import Sequence
from pathlib import Path

from clip_geometry.config import digest
from clip_geometry.data.base import (
    CaptionedConfig,
    CaptionsOnly,
    Dataset,
    DatasetEntry,
    Side,
    datasets,
    revision,
)
from clip_geometry.data.images import listed_images
from clip_geometry.data.tables import PLACE, Table, language_files, read_aligned, read_table
from clip_geometry.paths import existing_folder
from clip_geometry.registry import InputError

IMAGE_COLUMNS = ("image", "file_name", "filename", "filepath", "image_path", "path", "image_id")
CAPTION_COLUMNS = ("caption", "text", "title", "sentence")
LANGUAGE_COLUMNS = ("language", "lang", "locale")


class CaptionsConfig(CaptionedConfig):
    """Captions of the user's own.

    A table without a column named like `language` may have one of LANGUAGE_COLUMNS instead; then the rows whose value
    in it is `language` are read.

    Attributes:
        path: The table, .csv, .tsv, .parquet or .jsonl; or line-aligned text files, one per language, as their path
            with {language} in place of the language, such as raw/train.{language}.
        images: The folder its image names are relative to; default: the folder of the table.
        image_names: For text files, a further one with the image name of each line; without it, lines are numbered.
        image_column: Default: the first of IMAGE_COLUMNS that the table has; without one, rows are numbered.
        caption_column: Default: the column named like `language`, or else, if no column has a two-letter name, the
            first of CAPTION_COLUMNS that the table has.
    """

    name: str = "captions"
    image_names: Path | None = None
    image_column: str | None = None
    caption_column: str | None = None


def load(config: CaptionsConfig) -> Dataset:
    if PLACE in str(config.path):
        files = language_files(config.path)
        if not files:
            raise InputError(f"there is no file {config.path} with a language such as en in place of {PLACE}")
        table = read_aligned(config.path, files, config.image_names)
    elif config.image_names is not None:
        raise InputError(f"image_names={config.image_names} is for text files; {config.path} is a table")
    else:
        table = read_table(config.path)
    images = config.image_column or _first(IMAGE_COLUMNS, table.names)
    return captions_of(config, table, config.caption_column, images, folder=table.path.parent)


def captions_of(
    config: CaptionsOnly, table: Table, caption_column: str | None, image_column: str | None, folder: Path
) -> Dataset:
    """Return a text row per row of the table in that language; rows with the same image name caption one item.

    item_id is the image name or, without an image column, the row number in the table from 0: the same in every
    language. Images appear once each, in order of first appearance; the image side is None if none of them exists.

    Args:
        config: Its `images` take precedence over `folder`.
        table: Of captions.
        caption_column: None for that of the language.
        image_column: The column of image names, if there is one.
        folder: Of the images.
    """
    language = config.language
    if not caption_column and language in (table.languages or table.names) and language not in IMAGE_COLUMNS:
        caption_column = language
    elif not caption_column:
        two_letters = (name for name in table.names if re.fullmatch("[a-z]{2}", name) and name != "id")
        if languages := table.languages or tuple(two_letters):
            raise InputError(f"{table.path} has no captions in {language!r}; its languages are {', '.join(languages)}")
        caption_column = _first(CAPTION_COLUMNS, table.names)
        if caption_column is None:
            raise InputError(
                f"{table.path} has no caption column ({_listing(CAPTION_COLUMNS)}); "
                f"name one of {', '.join(table.names)} with caption_column=…"
            )
    captions = table.strings(caption_column)
    rows: Sequence[int] = range(len(captions))
    by_language = _first(LANGUAGE_COLUMNS, table.names)
    if by_language is not None and language not in table.names:
        languages = table.strings(by_language)
        rows = [row for row, each in enumerate(languages) if each == language]
        if not rows:
            there = ", ".join(dict.fromkeys(languages))
            raise InputError(
                f"{table.path} has no rows whose {by_language!r} is {language!r}; its languages are {there}"
            )
    texts = [captions[row] for row in rows]
    files_revision = table.revision()
    if image_column is None:
        if config.images is not None:
            raise InputError(f"{table.path} has no image column ({_listing(IMAGE_COLUMNS)}) to find images with")
        item_id, image = [str(row) for row in rows], None
    else:
        images = table.strings(image_column, numbers=True)
        item_id = [images[row] for row in rows]
        names = list(dict.fromkeys(item_id))
        folder = existing_folder(config.images or folder, "a folder of images")
        image = listed_images(folder, names, names, required=config.images is not None)
        files_revision = digest([files_revision, revision(folder, names)])
    text = Side("text", item_id, texts.__getitem__, language=language, dropped=table.dropped)
    return Dataset(config=config, revision=files_revision, image=image, text=text)


def _first(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)


def _listing(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


datasets.add("captions", DatasetEntry(CaptionsConfig, load))
