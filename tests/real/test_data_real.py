import gzip
import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from clip_geometry.data import load_dataset, resolve_dataset
from clip_geometry.data.cifar import russian_names
from clip_geometry.registry import InputError

DATA = os.environ.get("CLIP_GEOMETRY_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="CLIP_GEOMETRY_DATA does not name the folder of real data")
ROOT = Path(DATA or ".")
XTD10 = ["en", "de", "fr", "es", "it", "ru", "pl", "tr", "ko", "zh", "jp"]


def _texts(dataset):
    return [dataset.text.load(k) for k in range(len(dataset.text))]


@pytest.mark.parametrize(("split", "per_class"), [("test", 100), ("train", 500)])
def test_cifar100(split, per_class):
    dataset = load_dataset(resolve_dataset("cifar100", split=split, prompt="a photo of a {}"))
    image, names = dataset.image, dataset.class_names
    assert image is not None and image.labels is not None and names is not None and dataset.text is not None
    assert len(image) == 100 * per_class
    assert np.bincount(image.labels).tolist() == [per_class] * 100
    assert (len(names), names[0], names[1], names[99]) == (100, "apple", "aquarium_fish", "worm")
    assert (image.load(0).size, image.load(0).mode) == ((32, 32), "RGB")
    assert dataset.text.load(names.index("pickup_truck")) == "a photo of a pickup truck"


def test_cifar100_superclasses():
    dataset = load_dataset(resolve_dataset(ROOT / "cifar100", labels="coarse"))
    assert dataset.image is not None and dataset.class_names is not None
    assert np.bincount(dataset.image.labels).tolist() == [500] * 20
    assert dataset.class_names[:2] == ("aquatic_mammals", "fish")


def test_coco128_is_a_folder_of_photographs():
    dataset = load_dataset(resolve_dataset(ROOT / "images/coco128"))
    assert dataset.config.name == "folder"
    assert dataset.image is not None and dataset.image.labels is None
    assert len(dataset.image) == 128
    assert all(dataset.image.load(k).mode == "RGB" for k in range(128))
    assert dataset.revision == load_dataset(dataset.config).revision


def test_cifar100_in_russian():
    dataset = load_dataset(resolve_dataset("cifar100", prompt="изображение {}", language="ru"))
    assert dataset.text is not None and dataset.class_names is not None
    assert list(russian_names()) == list(dataset.class_names)
    assert dataset.text.load(dataset.class_names.index("pickup_truck")) == "изображение пикап"
    assert len(set(_texts(dataset))) == 100


@pytest.mark.experiments
def test_xtd10_has_eleven_languages():
    texts = {}
    for language in XTD10:
        dataset = load_dataset(resolve_dataset("xtd10", language=language))
        assert dataset.image is None and dataset.text is not None
        assert len(set(dataset.text.item_id)) == 1000
        assert dataset.text.item_id[0] == "COCO_train2014_000000061844.jpg"
        assert dataset.text.item_id[-1] == "COCO_val2014_000000129945.jpg"
        texts[language] = _texts(dataset)
    assert texts["en"][1] == "a cat with its paws on a computer mouse at a desk"
    assert texts["ru"][1] == "кот положил лапы на компьютерную мышь на столе"
    assert texts["jp"][1] == "マウスの上に猫の手が乗っている"
    assert {len(captions) for captions in texts.values()} == {1000}
    with pytest.raises(InputError, match=f"has no captions in 'sv'; its languages are {', '.join(XTD10)}$"):
        load_dataset(resolve_dataset("xtd10", language="sv"))


@pytest.mark.experiments
@pytest.mark.parametrize(("split", "rows"), [("train", 29_000), ("val", 1014), ("test_2016_flickr", 1000)])
def test_multi30k_is_numbered_by_row(split, rows):
    texts = {}
    for language in ("en", "de", "fr", "cs"):
        dataset = load_dataset(resolve_dataset("multi30k", split=split, language=language))
        assert dataset.image is None and dataset.text is not None
        assert list(dataset.text.item_id) == [str(k) for k in range(rows)]
        texts[language] = _texts(dataset)
    assert all(texts[a] != texts[b] for a, b in combinations(texts, 2))
    with pytest.raises(InputError, match=r"has no captions in 'ru'; its languages are en, de, fr, cs$"):
        load_dataset(resolve_dataset("multi30k", split=split, language="ru"))


@pytest.mark.experiments
def test_a_set_by_name_is_the_table_by_its_path():
    by_name = load_dataset(resolve_dataset("xtd10", language="tr"))
    by_path = load_dataset(resolve_dataset(ROOT / "captions/xtd10.parquet", language="tr"))
    assert by_name.text is not None and by_path.text is not None
    assert (_texts(by_name), list(by_name.text.item_id)) == (_texts(by_path), list(by_path.text.item_id))
    assert by_name.revision == by_path.revision


@pytest.mark.experiments
def test_text_files_give_what_the_table_gives(tmp_path):
    """The tables written out as the line-aligned files that they were made of."""
    table = pq.read_table(ROOT / "captions/multi30k_val.parquet")
    (tmp_path / "raw").mkdir()
    for language in table.column_names:
        content = "".join(f"{caption}\n" for caption in table[language].to_pylist())
        (tmp_path / f"raw/val.{language}.gz").write_bytes(gzip.compress(content.encode()))
    for language in ("de", "cs"):
        by_name, by_path = (
            load_dataset(resolve_dataset("multi30k", split="val", language=language, **options))
            for options in ({}, {"path": tmp_path / "raw"})
        )
        assert _texts(by_name) == _texts(by_path)
