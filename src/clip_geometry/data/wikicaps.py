"""WikiCaps (Schamoni et al. 2018): captions that users of Wikimedia Commons wrote, in two languages each.

Three sets of images: one with captions in German and English, one in French and English, one in Russian and English.
"""

import re
from functools import partial
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from clip_geometry.data.base import Dataset, DatasetEntry, datasets
from clip_geometry.data.parallel import ParallelConfig, load_parallel
from clip_geometry.data.tables import Table, read_tsv

ARCHIVE = "wikicaps_v1.0"
OTHERS = ("de", "fr", "ru")
BETWEEN = re.compile(r"\t| \|\|\| ")


class WikicapsConfig(ParallelConfig):
    """path: the unpacked wikicaps_v1.0, or the folder that holds it.

    language: de, fr, ru or en. pair: the set of images, de-en, fr-en or ru-en; default: that of the language, except
    for English, which is in all three.
    """

    SPLITS = ("dev", "test")
    LAYOUT = f"{ARCHIVE}/img_<pair>.tok.lc.filtered.<split>"
    name: str = "wikicaps"
    pair: Literal["de-en", "fr-en", "ru-en"] | None = None

    @model_validator(mode="after")
    def _in_the_pair(self) -> Self:
        if self.pair is None and self.language == "en":
            raise ValueError("wikicaps has English captions of three sets of images; say pair=de-en, fr-en or ru-en")
        languages = self.pair.split("-") if self.pair else [*OTHERS, "en"]
        if self.language not in languages:
            where = f"the pair {self.pair} of wikicaps" if self.pair else "wikicaps"
            raise ValueError(f"{where} has no captions in {self.language!r}; its languages are {', '.join(languages)}")
        return self


def load(config: WikicapsConfig) -> Dataset:
    return load_parallel(config, partial(_find, config.pair or f"{config.language}-en", config.split))


def _find(pair: str, split: str, folder: Path) -> Table | None:
    """Lines of image name, foreign caption and English caption: a tab after the name, a tab or " ||| " between the
    captions. Both are told of the published files."""
    files = (place / f"img_{pair}.tok.lc.filtered.{split}" for place in (folder / ARCHIVE, folder))
    file = next((file for file in files if file.is_file()), None)
    return None if file is None else read_tsv(file, ("image", *pair.split("-")), between=BETWEEN)


datasets.add("wikicaps", DatasetEntry(WikicapsConfig, load, "captions from Wikimedia Commons in de-en, fr-en, ru-en"))
