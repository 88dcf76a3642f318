"""XTD10 (Aggarwal and Kale 2020): one caption of each of 1000 COCO images in eleven languages."""

from pathlib import Path

from clip_geometry.data.base import Dataset, DatasetEntry, datasets
from clip_geometry.data.parallel import ParallelConfig, aligned_at, load_parallel, table_at
from clip_geometry.data.tables import Table

# of the eleven, German, English and French come from another collection, and Japanese ("jp") from STAIR
TEXTS = tuple(f"{folder}/test_1kcaptions_{{language}}.txt" for folder in ("XTD10", "MIC", "STAIR"))


class Xtd10Config(ParallelConfig):
    """path: a clone of github.com/adobe-research/Cross-lingual-Test-Dataset-XTD10, or a folder with xtd10.parquet.

    language: en, de, fr, es, it, ru, pl, tr, ko, zh or jp, which is how the set writes Japanese.
    """

    SPLITS = ("test",)
    LAYOUT = "xtd10.parquet or {XTD10,MIC,STAIR}/test_1kcaptions_<language>.txt"
    name: str = "xtd10"


def load(config: Xtd10Config) -> Dataset:
    return load_parallel(config, _find)


def _find(folder: Path) -> Table | None:
    return table_at(folder / "xtd10.parquet") or aligned_at(folder, TEXTS, "XTD10/test_image_names.txt")


datasets.add("xtd10", DatasetEntry(Xtd10Config, load, "1000 captions of COCO photographs in eleven languages"))
