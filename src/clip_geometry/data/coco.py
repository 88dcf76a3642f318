"""COCO captions: the official annotation file and a folder of images."""

from collections import defaultdict
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from clip_geometry.config import digest
from clip_geometry.data.base import CaptionedConfig, Dataset, DatasetEntry, Side, datasets, revision
from clip_geometry.data.images import listed_images
from clip_geometry.io.reading import read_json
from clip_geometry.paths import existing_file, existing_folder
from clip_geometry.registry import InputError, shown

WHAT = "a COCO captions annotation file, such as captions_val2017.json,"


class CocoConfig(CaptionedConfig):
    """COCO captions.

    Attributes:
        path: The annotation file; its captions are in `language`, officially English.
        images: Default: for …/annotations/captions_val2017.json, the first existing folder of val2017, images/val2017
            and images, in … and then in …/annotations.
        captions_per_image: None for all, 1 for the first of each image by annotation id.
    """

    name: str = "coco"
    captions_per_image: int | None = Field(default=None, ge=1)


class _ListedImage(BaseModel):
    model_config = ConfigDict(strict=True)
    id: int
    file_name: str


class _Caption(BaseModel):
    model_config = ConfigDict(strict=True)
    id: int
    image_id: int
    caption: str


class _Annotations(BaseModel):
    images: Annotated[list[_ListedImage], Field(min_length=1)]
    annotations: Annotated[list[_Caption], Field(min_length=1)]


def load(config: CocoConfig) -> Dataset:
    """Load images in the order of the file and captions image by image in the order of annotation ids.

    item_id is the COCO image id. The image side is None if none of the images exists.
    """
    path = existing_file(config.path, WHAT)
    content: _Annotations = read_json(path, WHAT, _Annotations)
    file_names = {entry.id: entry.file_name for entry in content.images}
    if len(file_names) < len(content.images):
        raise InputError(f"{shown(path)} lists an image id twice; {WHAT} has each once")
    captions = defaultdict(list)
    for each in sorted(content.annotations, key=lambda each: (each.id, each.image_id, each.caption)):
        if each.image_id not in file_names:
            raise InputError(f"{shown(path)} has a caption of image {each.image_id}, which its 'images' lack")
        captions[each.image_id].append(each.caption)
    kept = [(str(i), text) for i in file_names for text in captions[i][: config.captions_per_image]]
    texts = [text for _, text in kept]
    dropped = {str(i): len(captions[i]) - len(captions[i][: config.captions_per_image]) for i in file_names}

    if config.images is not None:
        folder = existing_folder(config.images, "a folder of images")
    else:
        split = path.stem.rpartition("_")[2]
        roots, inside = (path.parent.parent, path.parent), (split, f"images/{split}", "images")
        folder = next((place for root in roots for name in inside if (place := root / name).is_dir()), None)
    image, files_revision = None, revision(path.parent, [path.name])
    if folder is not None:
        names = list(file_names.values())
        image = listed_images(folder, names, list(map(str, file_names)), required=config.images is not None)
        files_revision = digest([files_revision, revision(folder, names)])
    item_id = [item for item, _ in kept]
    text = Side("text", item_id, texts.__getitem__, language=config.language, dropped=dropped)
    return Dataset(config=config, revision=files_revision, image=image, text=text)


datasets.add("coco", DatasetEntry(CocoConfig, load))
