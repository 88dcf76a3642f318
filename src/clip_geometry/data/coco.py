"""COCO captions: the official annotation file and a folder of images."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from pydantic import Field

from clip_geometry.config import digest
from clip_geometry.data.base import Dataset, DatasetEntry, Side, datasets
from clip_geometry.data.files import CaptionedConfig, is_unicode, read_text, revision
from clip_geometry.data.images import listed_images
from clip_geometry.files import existing_file, existing_folder
from clip_geometry.registry import InputError

WHAT = "a COCO captions annotation file, such as captions_val2017.json,"


class CocoConfig(CaptionedConfig):
    """path: the annotation file; the captions are in `language`, officially English.

    images: default: for …/annotations/captions_val2017.json the first of val2017, images/val2017, images that
    is a folder, looked for in … and then in …/annotations.
    captions_per_image: None for all, 1 for the first of each image by annotation id.
    """

    name: str = "coco"
    captions_per_image: int | None = Field(default=None, ge=1)


def load(config: CocoConfig) -> Dataset:
    """Images in the order of the file, captions image by image in order of annotation id.

    item_id is the COCO image id. The image side is None where none of the images is there.
    """
    path = existing_file(config.path, WHAT)
    images, annotations = _read(path)
    file_names = {_field(path, entry, "id", int): _field(path, entry, "file_name", str) for entry in images}
    if len(file_names) < len(images):
        raise InputError(f"{path} lists an image id twice; {WHAT} has each once")
    captions = _captions(path, annotations, file_names)
    kept = [(str(i), text) for i in file_names for text in captions[i][: config.captions_per_image]]
    texts = [text for _, text in kept]

    names = list(file_names.values())
    files_revision = revision(path.parent, [path.name])
    folder = _images_folder(config, path)
    image = None
    if folder is not None:
        image = listed_images(folder, names, list(map(str, file_names)), required=config.images is not None)
        files_revision = digest([files_revision, revision(folder, names)])
    text = Side("text", [item for item, _ in kept], texts.__getitem__, language=config.language)
    return Dataset(config=config, revision=files_revision, image=image, text=text)


def _read(path: Path) -> tuple[list[dict], list[dict]]:
    try:
        content = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError):
        raise InputError(f"{path} is not JSON; {WHAT} was expected") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a JSON object; {WHAT} was expected")
    for key in ("images", "annotations"):
        if not (isinstance(content.get(key), list) and content[key]):
            raise InputError(f"{path} has no entries under {key!r}; {WHAT} was expected")
    return content["images"], content["annotations"]


def _field(path: Path, entry: Any, key: str, kind: type) -> Any:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool) or not is_unicode(str(value)):
        raise InputError(f"{path} has an entry without {key!r} ({str(entry)[:60]}); {WHAT} was expected")
    return value


def _captions(path: Path, annotations: list[dict], known: dict[int, str]) -> dict[int, list[str]]:
    """Captions of each image id, in order of annotation id."""
    rows = [
        (_field(path, entry, "id", int), _field(path, entry, "image_id", int), _field(path, entry, "caption", str))
        for entry in annotations
    ]
    captions = defaultdict(list)
    for _, image_id, caption in sorted(rows):
        if image_id not in known:
            raise InputError(f"{path} has a caption of image {image_id}, which it does not list under 'images'")
        captions[image_id].append(caption)
    return captions


def _images_folder(config: CocoConfig, path: Path) -> Path | None:
    if config.images is not None:
        return existing_folder(config.images, "a folder of images")
    split = path.stem.rpartition("_")[2]
    places = [
        root / name for root in (path.parent.parent, path.parent) for name in (split, f"images/{split}", "images")
    ]
    return next((place for place in places if place.is_dir()), None)


datasets.add("coco", DatasetEntry(CocoConfig, load, "COCO captions: official annotation file and image folder"))
