"""What every data set keeps: over the whole registry, each member in a tiny form."""

import json
import os
import pickle
import re
import tarfile

import numpy as np
import pytest
from PIL import Image

from clip_geometry.data import DatasetConfig, config_class, dataset_from, datasets, load_dataset, resolve_dataset
from clip_geometry.embeddings import Embeddings, pair


def _captions(request):
    folder, write_image = request.getfixturevalue("tmp_path"), request.getfixturevalue("write_image")
    for seed, name in enumerate(["b.png", "a.png"]):
        write_image(folder / name, seed)
    rows = [{"image": name, "caption": f"{name} {k}"} for k in range(2) for name in ("b.png", "a.png")]
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return resolve_dataset("captions", path=folder / "t.jsonl")


def _coco(request):
    folder, write_image = request.getfixturevalue("tmp_path"), request.getfixturevalue("write_image")
    names = {7: "000007.png", 3: "000003.png"}
    for seed, name in names.items():
        write_image(folder / "images" / name, seed)
    images = [{"id": key, "file_name": name} for key, name in names.items()]
    annotations = [{"id": k, "image_id": (7, 3)[k % 2], "caption": f"caption {k}"} for k in range(4)]
    (folder / "captions.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    return resolve_dataset("coco", path=folder / "captions.json")


def _folder(request):
    folder, write_image = request.getfixturevalue("tmp_path"), request.getfixturevalue("write_image")
    for seed, name in enumerate(["cat/x.png", "cat/y.png", "dog/x.png"]):
        write_image(folder / "photos" / name, seed)
    return resolve_dataset("folder", path=folder / "photos", prompt="a photo of a {}")


def _webdataset(request):
    folder, write_image = request.getfixturevalue("tmp_path"), request.getfixturevalue("write_image")
    for seed, name in enumerate(["b", "a"]):
        write_image(folder / f"{name}.png", seed)
        (folder / f"{name}.txt").write_text(f"one {name}\nanother {name}\n")
    with tarfile.open(folder / "shard.tar", "w") as tar:
        for name in ("b.png", "b.txt", "a.png", "a.txt"):
            tar.add(folder / name, name)
    return resolve_dataset("webdataset", path=folder / "shard.tar")


def _cifar(name, fixture):
    return lambda request: resolve_dataset(name, path=request.getfixturevalue(fixture), prompt="a photo of a {}")


def _scenes(request):
    return resolve_dataset("scenes", size=5, captions_per_image=2)


def _published(name):
    def make(request):
        folder = request.getfixturevalue(f"{name}_folder")
        for seed, image in enumerate(request.getfixturevalue("photographs")):
            request.getfixturevalue("write_image")(folder / "photographs" / image, seed)
        options = {"language": "ru"} if name == "wikicaps" else {}
        return resolve_dataset(name, path=folder, images=folder / "photographs", **options)

    return make


# a new data set needs a row here: how to make a tiny one, with both sides where it can have both
MINIMAL = {
    "captions": _captions,
    "cifar10": _cifar("cifar10", "cifar10_parquet"),
    "cifar100": _cifar("cifar100", "cifar_parquet"),
    "coco": _coco,
    "folder": _folder,
    "multi30k": _published("multi30k"),
    "scenes": _scenes,
    "webdataset": _webdataset,
    "wikicaps": _published("wikicaps"),
    "xtd10": _published("xtd10"),
}
INSTALLED = {name: make for name, make in MINIMAL.items() if name in datasets}  # some are of the experiments


@pytest.fixture(params=INSTALLED)
def config(request):
    return INSTALLED[request.param](request)


@pytest.fixture
def dataset(config):
    return load_dataset(config)


def test_every_data_set_has_a_tiny_form_here():
    texts_only = {"task", "corpus", "treebank", "brown", "ptb", "wikitext2"}  # test_items.py, test_corpora.py
    assert INSTALLED.keys() == datasets.keys() - texts_only


def test_sides_are_those_of_their_modality(dataset):
    assert len(dataset.sides) == 2
    assert (dataset.image.modality, dataset.text.modality) == ("image", "text")
    assert (dataset.image.language, dataset.text.language) == (None, dataset.config.language)
    assert (dataset.image.pair_on, dataset.text.pair_on in ("item_id", "label")) == ("item_id", True)


def test_ids_are_strings_and_those_of_images_unique(dataset):
    for side in dataset.sides:
        assert len(side) == len(side.item_id) > 1
        assert all(isinstance(item, str) and item for item in side.item_id)
    assert len(set(dataset.image.item_id)) == len(dataset.image)


def test_load_gives_rgb_images_and_strings_the_same_each_time(dataset):
    for k in range(len(dataset.image)):
        image = dataset.image.load(k)
        assert isinstance(image, Image.Image) and image.mode == "RGB" and min(image.size) > 0
        assert np.array_equal(image, dataset.image.load(k))
    texts = [dataset.text.load(k) for k in range(len(dataset.text))]
    assert all(isinstance(text, str) and text.strip() for text in texts)
    assert texts == [dataset.text.load(k) for k in range(len(dataset.text))]
    for side in dataset.sides:
        with pytest.raises((IndexError, OSError)):
            side.load(len(side))


def test_labels_are_aligned_and_in_range(dataset):
    for side in dataset.sides:
        if side.labels is not None:
            assert side.labels.shape == (len(side),) and side.labels.dtype == np.int64
            assert side.labels.min() >= 0
            assert dataset.class_names is None or side.labels.max() < len(dataset.class_names)
    if dataset.class_names is not None:
        assert all(isinstance(name, str) for name in dataset.class_names)
        assert dataset.image.labels is not None


def test_every_text_has_its_images(dataset):
    image, text = (
        Embeddings(
            np.zeros((len(side), 1)),
            side.modality,
            item_id=np.array(side.item_id),
            labels=side.labels,
            pair_on=side.pair_on,
        )
        for side in dataset.sides
    )
    i, _ = pair(image, text)
    assert set(i.tolist()) == set(range(len(image)))


def test_the_revision_is_stable_and_follows_the_files(dataset, config):
    """Those of the split and the language; their images, too."""
    assert isinstance(dataset.revision, str) and dataset.revision
    assert load_dataset(config).revision == dataset.revision
    if hasattr(config, "path"):
        folder = config.path if config.path.is_dir() else config.path.parent
        seen = {dataset.revision}
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            os.utime(file, ns=(1, 1))
            seen.add(load_dataset(config).revision)
        assert len(seen) > (len(dataset.image) if config.name in ("captions", "coco", "folder") else 1)


def test_sides_can_be_sent_to_another_process(dataset):
    for side in dataset.sides:
        again = pickle.loads(pickle.dumps(side.load))
        assert np.array_equal(np.asarray(again(1)), np.asarray(side.load(1)))


def test_the_config_names_its_data_set_and_survives_json(dataset, config):
    assert dataset.config == config
    assert dataset_from(json.loads(config.model_dump_json())) == config
    assert type(config) is config_class(config.name) is datasets[config.name].config


@pytest.mark.parametrize("name", INSTALLED)
def test_every_data_set_and_option_is_explained(name):
    entry = datasets[name]
    assert entry.config.model_fields["name"].default == name
    classes = [kind for kind in entry.config.__mro__ if issubclass(kind, DatasetConfig)]
    explained = " ".join(kind.__doc__ or "" for kind in classes)
    for option in entry.config.model_fields:
        assert re.search(rf"\b{option}\b", explained), option
