import os
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.data import load_dataset, resolve_dataset
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


def test_xtd10_has_eleven_languages():
    texts = {}
    for language in XTD10:
        dataset = load_dataset(resolve_dataset(ROOT / "captions/xtd10.parquet", language=language))
        assert dataset.image is None and dataset.text is not None
        assert len(set(dataset.text.item_id)) == 1000
        assert dataset.text.item_id[0] == "COCO_train2014_000000061844.jpg"
        texts[language] = _texts(dataset)
    assert texts["en"][1] == "a cat with its paws on a computer mouse at a desk"
    assert texts["ru"][1] == "кот положил лапы на компьютерную мышь на столе"
    assert {len(captions) for captions in texts.values()} == {1000}
    with pytest.raises(InputError, match=f"has no captions in 'sv'; its languages are {', '.join(XTD10)}$"):
        load_dataset(resolve_dataset(ROOT / "captions/xtd10.parquet", language="sv"))


@pytest.mark.parametrize(("name", "rows"), [("train", 29_000), ("val", 1014), ("test_2016_flickr", 1000)])
def test_multi30k_is_numbered_by_row(name, rows):
    path = ROOT / f"captions/multi30k_{name}.parquet"
    english, czech = (load_dataset(resolve_dataset(path, language=language)) for language in ("en", "cs"))
    assert english.image is None and english.text is not None and czech.text is not None
    assert list(english.text.item_id) == list(czech.text.item_id) == [str(k) for k in range(rows)]
    assert _texts(english) != _texts(czech)
