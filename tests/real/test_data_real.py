import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from clip_geometry.data import load_dataset
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
    dataset = load_dataset("cifar100", split=split, prompt="a photo of a {}")
    image, names = dataset.image, dataset.class_names
    assert image is not None and image.labels is not None and names is not None and dataset.text is not None
    assert len(image) == 100 * per_class
    assert np.bincount(image.labels).tolist() == [per_class] * 100
    assert (len(names), names[0], names[1], names[99]) == (100, "apple", "aquarium_fish", "worm")
    assert (image.load(0).size, image.load(0).mode) == ((32, 32), "RGB")
    assert dataset.text.load(names.index("pickup_truck")) == "a photo of a pickup truck"


def test_coco128_is_a_folder_of_photographs():
    dataset = load_dataset(ROOT / "images/coco128")
    assert dataset.config.name == "folder"
    assert dataset.image is not None and dataset.image.labels is None
    assert len(dataset.image) == 128
    assert all(dataset.image.load(k).mode == "RGB" for k in range(128))
    assert dataset.revision == load_dataset(dataset.config).revision


def test_cifar100_in_russian():
    dataset = load_dataset("cifar100", prompt="изображение {}", language="ru")
    assert dataset.text is not None and dataset.class_names is not None
    assert list(russian_names()) == list(dataset.class_names)
    assert dataset.text.load(dataset.class_names.index("pickup_truck")) == "изображение пикап"
    assert len(set(_texts(dataset))) == 100


@pytest.mark.experiments
def test_xtd10_has_eleven_languages():
    texts = {}
    for language in XTD10:
        dataset = load_dataset("xtd10", language=language)
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
        load_dataset("xtd10", language="sv")


@pytest.mark.experiments
@pytest.mark.parametrize(("split", "rows"), [("train", 29_000), ("val", 1014), ("test_2016_flickr", 1000)])
def test_multi30k_is_numbered_by_row(split, rows):
    texts = {}
    for language in ("en", "de", "fr", "cs"):
        dataset = load_dataset("multi30k", split=split, language=language)
        assert dataset.image is None and dataset.text is not None
        assert list(dataset.text.item_id) == [str(k) for k in range(rows)]
        texts[language] = _texts(dataset)
    assert all(texts[a] != texts[b] for a, b in combinations(texts, 2))
    with pytest.raises(InputError, match=r"has no captions in 'ru'; its languages are en, de, fr, cs$"):
        load_dataset("multi30k", split=split, language="ru")
