"""COCO captions: the official annotation file and a folder of images."""

from collections import defaultdict
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from clip_geometry.config import digest
from clip_geometry.data.base import Dataset, DatasetEntry, Side, datasets
from clip_geometry.data.files import CaptionedConfig, revision
from clip_geometry.data.images import listed_images
from clip_geometry.paths import existing_file, existing_folder
from clip_geometry.reading import read_json
from clip_geometry.registry import InputError, shown

WHAT = "a COCO captions annotation file, such as captions_val2017.json,"


class CocoConfig(CaptionedConfig):
    """path: the annotation file; the captions are in `language`, officially English.

    images: default: for …/annotations/captions_val2017.json the first of val2017, images/val2017, images that
    is a folder, looked for in … and then in …/annotations.
    captions_per_image: None for all, 1 for the first of each image by annotation id.
    """

    name: str = "coco"
    captions_per_image: int | None = Field(default=None, ge=1)


class _Image(BaseModel):
    model_config = ConfigDict(strict=True)
    id: int
    file_name: str


class _Caption(BaseModel):
    model_config = ConfigDict(strict=True)
    id: int
    image_id: int
    caption: str


class _Annotations(BaseModel):
    images: Annotated[list[_Image], Field(min_length=1)]
    annotations: Annotated[list[_Caption], Field(min_length=1)]


def load(config: CocoConfig) -> Dataset:
    """Images in the order of the file, captions image by image in order of annotation id.

    item_id is the COCO image id. The image side is None where none of the images is there.
    """
    path = existing_file(config.path, WHAT)
    content: _Annotations = read_json(path, WHAT, _Annotations)
    file_names = {entry.id: entry.file_name for entry in content.images}
    if len(file_names) < len(content.images):
        raise InputError(f"{shown(path)} lists an image id twice; {WHAT} has each once")
    captions = _captions(path, content.annotations, file_names)
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


def _captions(path: Path, annotations: "list[_Caption]", known: dict[int, str]) -> dict[int, list[str]]:
    """Captions of each image id, in order of annotation id."""
    captions = defaultdict(list)
    for each in sorted(annotations, key=lambda each: (each.id, each.image_id, each.caption)):
        if each.image_id not in known:
            raise InputError(f"{shown(path)} has a caption of image {each.image_id}, which its 'images' lack")
        captions[each.image_id].append(each.caption)
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
