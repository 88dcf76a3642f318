"""Flickr30k and COCO in Karpathy's splits: which captions, which images, and what an error says."""

import json

import pytest

from clip_geometry.data import load_dataset, resolve_dataset
from clip_geometry.registry import InputError

FLICKR, COCO = "dataset_flickr30k.json", "dataset_coco.json"


def _load(name, path, **options):
    return load_dataset(resolve_dataset(name, path=path, **options))


def _texts(dataset):
    return [dataset.text.load(k) for k in range(len(dataset.text))]


def test_images_and_their_captions(karpathy_folder):
    dataset = _load("flickr30k", karpathy_folder)
    assert list(dataset.image.item_id) == ["3.jpg", "4.jpg"]
    assert list(dataset.text.item_id) == ["3.jpg"] * 5 + ["4.jpg"] * 5
    assert _texts(dataset) == [f"Image {k}, caption {n}." for k in (3, 4) for n in range(5)]
    assert [dataset.image.load(k).size for k in range(2)] == [(10, 5), (11, 5)]
    assert list(_load("coco-karpathy", karpathy_folder).image.item_id) == ["val2014/3.jpg", "val2014/4.jpg"]


@pytest.mark.parametrize(
    ("split", "images"),
    [("train", [0]), ("restval", [1]), ("train+restval", [0, 1]), ("val", [2]), ("test", [3, 4])],
)
def test_the_splits_of_coco(karpathy_folder, split, images):
    dataset = _load("coco-karpathy", karpathy_folder, split=split)
    assert list(dataset.image.item_id) == [f"{'val' if k else 'train'}2014/{k}.jpg" for k in images]
    assert dataset.image.load(0).size == (7 + images[0], 5)


def test_the_folder_is_found_by_its_name(karpathy_folder, monkeypatch):
    monkeypatch.setenv("CLIP_GEOMETRY_DATA", str(karpathy_folder.parent))
    with pytest.raises(InputError, match=r"test split of flickr30k is not in .*; give its folder .* dataset_flickr30k"):
        load_dataset(resolve_dataset("flickr30k"))
    karpathy_folder.rename(karpathy_folder.parent / "flickr30k")
    assert len(load_dataset(resolve_dataset("flickr30k")).sides) == 2


def test_what_is_not_there(karpathy_folder, tmp_path):
    with pytest.raises(InputError, match="nowhere does not exist; a folder that holds flickr30k was expected"):
        _load("flickr30k", tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"json is a file; a folder that holds coco-karpathy was expected"):
        _load("coco-karpathy", karpathy_folder / COCO)
    with pytest.raises(InputError, match=r"unknown split 'restval'; did you mean 'val'"):
        resolve_dataset("flickr30k", split="restval")
    with pytest.raises(InputError, match=r"unknown split 'tset'; did you mean 'test'"):
        resolve_dataset("coco-karpathy", split="tset")
    with pytest.raises(InputError, match=r"has no captions in 'de'; its languages are en$"):
        _load("flickr30k", karpathy_folder, language="de")
    (karpathy_folder / FLICKR).unlink()
    with pytest.raises(
        InputError, match=r"the val split of flickr30k is not in .* expected dataset_flickr30k.json; docs/data"
    ):
        _load("flickr30k", karpathy_folder, split="val")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"split": "dev"},
            "^images.1.split of .* is 'dev': input should be 'train', 'restval', 'val' or 'test'; Karpa",
        ),
        ({"split": None}, "^images.1.split of .* is None"),
        ({"sentences": []}, "^images.1.sentences of .* should have at least 1 item"),
        ({"sentences": [{"raw": ""}]}, "^images.1.sentences.0.raw of .* should have at least 1 character"),
        ({"sentences": [{"tokens": ["a"]}]}, "lacks images.1.sentences.0.raw; Karpathy's dataset_flickr30k.json was"),
        ({"sentences": "a cat"}, "^images.1.sentences of .* should be a valid list"),
        ({"filename": ""}, "^images.1.filename of .* should have at least 1 character"),
        ({"filename": 7}, "^images.1.filename of .* is 7"),
    ],
)
def test_broken_images(karpathy_folder, change, message):
    content = json.loads((karpathy_folder / FLICKR).read_text())
    content["images"][1].update(change)
    (karpathy_folder / FLICKR).write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        _load("flickr30k", karpathy_folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "is empty"), ("{", "is no readable JSON"), ("[]", "valid object"), ("{}", "lacks images; Karpathy's data")],
)
def test_broken_files(karpathy_folder, content, message):
    (karpathy_folder / FLICKR).write_text(content)
    with pytest.raises(InputError, match=message):
        _load("flickr30k", karpathy_folder)
