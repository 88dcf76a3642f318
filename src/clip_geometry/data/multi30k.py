"""Multi30k (Elliott et al. 2016, 2017; Barrault et al. 2018): captions of Flickr30k, translated from English."""

from functools import partial
from pathlib import Path

from clip_geometry.data.base import Dataset, DatasetEntry, datasets
from clip_geometry.data.parallel import ParallelConfig, aligned_at, load_parallel, table_at
from clip_geometry.data.tables import Table


class Multi30kConfig(ParallelConfig):
    """path: a clone of github.com/multi30k/dataset, its folder data/task1/raw, or a folder of multi30k_<split>.parquet.

    language: en, de, fr, and of some splits cs.
    """

    SPLITS = ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr")
    LAYOUT = "multi30k_<split>.parquet or data/task1/raw/<split>.<language>[.gz]"
    name: str = "multi30k"
    split: str = "test_2016_flickr"


def load(config: Multi30kConfig) -> Dataset:
    return load_parallel(config, partial(_find, config.split))


def _find(split: str, folder: Path) -> Table | None:
    text = f"{split}.{{language}}"
    return (
        table_at(folder / f"multi30k_{split}.parquet")
        or aligned_at(folder, [f"data/task1/raw/{text}"], f"data/task1/image_splits/{split}.txt")
        or aligned_at(folder, [text], f"../image_splits/{split}.txt")
    )


datasets.add("multi30k", DatasetEntry(Multi30kConfig, load, "captions of Flickr30k photographs in en, de, fr, cs"))
