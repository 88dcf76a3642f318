"""Published caption sets in several languages, found by name: multi30k, wikicaps and xtd10."""

import os
import re
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from clip_geometry.data.base import CaptionsOnly, Dataset, DatasetEntry, KnownSplits, datasets
from clip_geometry.data.captions import captions_of
from clip_geometry.data.tables import Table, read_lines, read_table
from clip_geometry.paths import existing_folder
from clip_geometry.registry import InputError


class ParallelConfig(KnownSplits, CaptionsOnly):
    """Options of a caption set that is found by its name.

    Attributes:
        path: The folder of the set. Default: $CLIP_GEOMETRY_DATA/<name> or $CLIP_GEOMETRY_DATA/captions, whichever is
            the first to hold the set.
        split: One of SPLITS.
        images: The folder of the images. Default: the folder IMAGES beside the captions, or else the folder of the
            captions.
    """

    LAYOUT: ClassVar[str]  # the file of a split in the folder
    IMAGES: ClassVar[str] = "images"
    path: Path | None = None

    def find(self, folder: Path) -> Table | None:
        """Return the table of the split in a folder, with one column per language, or None if it is not there."""
        path = folder / self.LAYOUT.replace("<split>", self.split)
        return read_table(path) if path.is_file() else None


def load_set(config: ParallelConfig) -> Dataset:
    """Load a set. The item_id is the image name, or the row number if the set has no image names."""
    if config.path is not None:
        folders = [existing_folder(config.path, f"a folder that holds {config.name}")]
    else:
        shared = os.environ.get("CLIP_GEOMETRY_DATA")
        folders = [Path(shared).expanduser() / name for name in (config.name, "captions")] if shared else []
    table = next((table for table in map(config.find, folders) if table is not None), None)
    if table is None:
        places = " or ".join(map(str, folders)) or "CLIP_GEOMETRY_DATA, which is not set"
        raise InputError(
            f"the {config.split} split of {config.name} is not in {places}; give its folder with path=…, expected "
            f"{config.LAYOUT}; docs/data.md says where to get it"
        )
    folder = table.path if table.path.is_dir() else table.path.parent
    images = folder / config.IMAGES if (folder / config.IMAGES).is_dir() else folder
    return captions_of(config, table, None, "image" if "image" in table.names else None, folder=images)


class Multi30kConfig(ParallelConfig):
    """Options of Multi30k (Elliott et al. 2016, 2017; Barrault et al. 2018): translated captions of Flickr30k.

    The original captions are in English.

    Attributes:
        path: The folder of multi30k_<split>.parquet; docs/data.md explains how to make it from
            github.com/multi30k/dataset.
        language: en, de, fr, and for some splits cs.
    """

    SPLITS = ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr")
    LAYOUT = "multi30k_<split>.parquet"
    name: str = "multi30k"
    split: str = "test_2016_flickr"


class WikicapsConfig(ParallelConfig):
    """Options of WikiCaps (Schamoni et al. 2018): captions by users of Wikimedia Commons, in two languages each.

    There are three sets of images, with captions in German and English, French and English, and Russian and English.

    Attributes:
        path: The unpacked wikicaps_v1.0, or the folder that holds it.
        language: de, fr, ru or en.
        pair: The set of images: de-en, fr-en or ru-en. Default: the set of the language. English is in all three sets
            and has no default.
    """

    SPLITS = ("dev", "test")
    LAYOUT = "wikicaps_v1.0/img_<pair>.tok.lc.filtered.<split>"
    name: str = "wikicaps"
    pair: Literal["de-en", "fr-en", "ru-en"] | None = None

    @model_validator(mode="after")
    def _in_the_pair(self) -> Self:
        """Check that WikiCaps has captions in the requested language."""
        if self.pair is None and self.language == "en":
            raise ValueError(
                "wikicaps has English captions of three sets of images; choose one with pair=de-en, fr-en or ru-en"
            )
        languages = self.pair.split("-") if self.pair else ["de", "fr", "ru", "en"]
        if self.language not in languages:
            where = f"the pair {self.pair} of wikicaps" if self.pair else "wikicaps"
            raise ValueError(f"{where} has no captions in {self.language!r}; its languages are {', '.join(languages)}")
        return self

    def find(self, folder: Path) -> Table | None:
        """Return the table of the split in a folder, or None if it is not there.

        Each line has an image name, a foreign caption and an English caption. A tab follows the name. A tab or " ||| "
        separates the captions, because descriptions of the published files differ.
        """
        pair = self.pair or f"{self.language}-en"
        files = (place / f"img_{pair}.tok.lc.filtered.{self.split}" for place in (folder / "wikicaps_v1.0", folder))
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            return None
        names = ("image", *pair.split("-"))
        columns = {name: [] for name in names}
        for number, line in enumerate(read_lines(file), start=1):
            fields = re.split(r"\t| \|\|\| ", line)
            if len(fields) != len(names):
                expected = f"{len(names)}: {', '.join(names)}"
                raise InputError(f"{file}, line {number}, has {len(fields)} fields between tabs; expected {expected}")
            for name, value in zip(names, fields, strict=True):
                columns[name].append(value)
        return Table(file, names, columns.__getitem__)


class Xtd10Config(ParallelConfig):
    """Options of XTD10 (Aggarwal and Kale 2020): one caption of each of 1,000 COCO images in eleven languages.

    Attributes:
        path: The folder of xtd10.parquet; docs/data.md explains how to make it from
            github.com/adobe-research/Cross-lingual-Test-Dataset-XTD10.
        language: en, de, fr, es, it, ru, pl, tr, ko, zh or jp (the set's own code for Japanese).
    """

    SPLITS = ("test",)
    LAYOUT = "xtd10.parquet"
    name: str = "xtd10"


datasets.add("multi30k", DatasetEntry(Multi30kConfig, load_set))
datasets.add("wikicaps", DatasetEntry(WikicapsConfig, load_set))
datasets.add("xtd10", DatasetEntry(Xtd10Config, load_set))
