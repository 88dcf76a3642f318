"""Flickr30k and COCO with the captions and splits of Karpathy and Fei-Fei (2015), on which retrieval is reported."""

from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from clip_geometry.data.base import DatasetEntry, datasets
from clip_geometry.data.tables import Table
from clip_geometry.io.reading import read_json
from clip_geometry_experiments.kit.caption_sets import ParallelConfig, load_set


class KarpathyConfig(ParallelConfig):
    """Several captions per image, in the file's order; the item id is the image name.

    Attributes:
        path: The folder with the .json of caption_datasets.zip.
        captions_per_image: The first N of each image, as papers take five; None for all, as CLIP_benchmark does. Some
            images of COCO have six or seven: ten captions of its 5,000 test images are then left out.
    """

    captions_per_image: int | None = Field(default=5, ge=1)

    def find(self, folder: Path) -> Table | None:
        path, what = folder / self.LAYOUT, f"Karpathy's {self.LAYOUT}"
        if not path.is_file():
            return None
        splits, rows, dropped = self.split.split("+"), [], {}
        for image in read_json(path, what, _Splits).images:
            if image.split in splits:
                name, kept = (
                    str(PurePosixPath(image.filepath, image.filename)),
                    image.sentences[: self.captions_per_image],
                )
                rows += [(name, sentence.raw) for sentence in kept]
                dropped[name] = len(image.sentences) - len(kept)
        columns = {"image": [name for name, _ in rows], "en": [text for _, text in rows]}
        return Table(path, tuple(columns), columns.__getitem__, languages=("en",), dropped=dropped) if rows else None


class Flickr30kConfig(KarpathyConfig):
    """Flickr30k (Young et al. 2014): 29,000, 1,014 and 1,000 images with five captions each."""

    SPLITS = ("train", "val", "test")
    LAYOUT = "dataset_flickr30k.json"
    IMAGES = "flickr30k-images"
    name: str = "flickr30k"


class CocoKarpathyConfig(KarpathyConfig):
    """COCO captions (Chen et al. 2015): 82,783, 5,000 and 5,000 images, and 30,504 more of val2014 in `restval`.

    Attributes:
        split: `train` is COCO's own; `train+restval`, 113,287 images, is what most papers train on.
    """

    SPLITS = ("train", "restval", "train+restval", "val", "test")
    LAYOUT = "dataset_coco.json"
    name: str = "coco-karpathy"


class _Sentence(BaseModel):
    raw: Annotated[str, Field(min_length=1)]


class _Image(BaseModel):
    filename: Annotated[str, Field(min_length=1)]
    filepath: str = ""  # the folder, in COCO's
    split: Literal["train", "restval", "val", "test"]
    sentences: Annotated[list[_Sentence], Field(min_length=1)]


class _Splits(BaseModel):
    images: list[_Image]


datasets.add("flickr30k", DatasetEntry(Flickr30kConfig, load_set))
datasets.add("coco-karpathy", DatasetEntry(CocoKarpathyConfig, load_set))
