import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clip_geometry.data import cifar, load_dataset
from clip_geometry.registry import InputError

FILE = "test-00000-of-00001.parquet"


def _load(path, name="cifar100", **options):
    return load_dataset(name, path=path, **options)


def _multiset(dataset):
    image = dataset.image
    return Counter((np.asarray(image.load(k)).tobytes(), int(image.labels[k])) for k in range(len(image)))


@pytest.mark.parametrize("labels", ["fine", "coarse"])
def test_images_labels_and_names(cifar_parquet, cifar_rows, labels):
    found = _load(cifar_parquet, labels=labels)
    expected = zip((image.tobytes() for image in cifar_rows["pixels"]), cifar_rows[f"{labels}_label"], strict=True)
    assert _multiset(found) == Counter(expected)
    assert found.class_names is not None and len(found.class_names) == {"fine": 5, "coarse": 2}[labels]
    assert list(found.image.item_id)[:2] == ["parquet-test-0", "parquet-test-1"]
    (cifar_parquet / "cifar100").mkdir()
    (cifar_parquet / FILE).rename(cifar_parquet / "cifar100" / FILE)
    assert _multiset(_load(cifar_parquet, labels=labels)) == _multiset(found)


def test_cifar10(cifar10_parquet, cifar_rows):
    found = _load(cifar10_parquet, "cifar10", prompt="a {}")
    expected = zip((image.tobytes() for image in cifar_rows["pixels"]), cifar_rows["label"], strict=True)
    assert _multiset(found) == Counter(expected)
    assert found.class_names == ("airplane", "automobile", "bird", "cat", "deer")
    assert found.text.load(4) == "a deer"


def test_russian_names_of_a_hundred_classes():  # in their order: real/test_data_real.py
    names = cifar.russian_names()
    assert len(names) == len(set(names.values())) == 100
    assert all(re.fullmatch("[а-яё]+( [а-яё]+)*", name) for name in names.values())
    assert {"ray": "скат", "seal": "тюлень", "can": "жестяная банка"}.items() <= names.items()
    content = json.loads(Path(cifar.__file__).with_name("cifar100_ru.json").read_text(encoding="utf-8"))
    assert {"source", "review"} <= content.keys()
    assert all(names[name] != word for name, word in content["ruclip_differs"].items())


def test_languages_of_the_class_names(cifar_parquet, monkeypatch):
    dataset = _load(cifar_parquet, prompt="изображение {}", language="ru")
    words = ("яблоко", "кровать", "газонокосилка", "выдра", "сосна")  # of the fixture's classes
    assert [dataset.text.load(k) for k in range(len(dataset.text))] == [f"изображение {word}" for word in words]
    assert (dataset.text.language, dataset.class_names[0]) == ("ru", "apple")
    monkeypatch.setattr(cifar, "russian_names", lambda: {"apple": "яблоко"})
    assert _load(cifar_parquet, language="ru").text is None
    with pytest.raises(InputError, match="'bed' is not a class of CIFAR-100 and has no name in 'ru'"):
        _load(cifar_parquet, prompt="{}", language="ru")


def test_an_image_that_does_not_decode_is_an_oserror(cifar_parquet):
    table = pq.read_table(cifar_parquet / FILE)
    cells = table["img"].to_pylist()
    cells[0]["bytes"], cells[1]["bytes"], cells[2] = None, cells[1]["bytes"][:50], None
    column = pa.array(cells, table.schema.field("img").type)
    pq.write_table(table.set_column(0, table.schema.field("img"), column), cifar_parquet / FILE)
    image = _load(cifar_parquet).image
    for k in range(3):
        with pytest.raises(OSError):
            image.load(k)
    assert image.load(3).size == (32, 32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "nowhere"}, "does not exist; a folder of cifar100 was expected"),
        ({"path": FILE}, "is a file; a folder of cifar100 was expected"),
        ({"split": "train"}, "has no train split; expected train-00000-of-00001.parquet in it"),
        ({"split": "trian"}, "unknown split 'trian'; did you mean 'train'"),
        ({"split": "xyzzy"}, "unknown split 'xyzzy'; known are train, test"),
        ({"labels": "medium"}, "key 'labels' is 'medium'"),
        ({"language": "de"}, "key 'language' is 'de': input should be 'en' or 'ru'"),
        ({"language": "ru", "labels": "coarse", "prompt": "{}"}, "is not a class of CIFAR-100 and has no name in 'ru'"),
        ({"name": "cifar10", "labels": "coarse"}, "unknown key 'labels'"),
        ({"name": "cifar10", "language": "ru"}, "key 'language' is 'ru': input should be 'en'"),
        (
            {"name": "cifar10"},
            "is not cifar10 as published on .* expected the columns 'img'.* and 'label'",
        ),
    ],
)
def test_wrong_options(cifar_parquet, options, message):
    with pytest.raises(InputError, match=message):
        _load(cifar_parquet / options.pop("path", ""), **options)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.drop_columns(["img"]),
        lambda t: t.drop_columns(["fine_label"]),
        lambda t: t.replace_schema_metadata(None),
        lambda t: t.replace_schema_metadata({"huggingface": json.dumps({"info": 1})}),
        lambda t: t.set_column(0, "img", t["coarse_label"]),
        lambda t: t.slice(0, 0),
        lambda t: t.set_column(1, "fine_label", [[5] * len(t)]),
        lambda t: t.set_column(1, "fine_label", [[None] * len(t)]),
    ],
)
def test_a_file_of_something_else(cifar_parquet, change):
    pq.write_table(change(pq.read_table(cifar_parquet / FILE)), cifar_parquet / FILE)
    with pytest.raises(
        InputError,
        match=r"is not cifar100 as published on .* expected the columns 'img'.* and 'fine_label'",
    ):
        _load(cifar_parquet)


def test_the_default_is_the_shared_folder_and_otherwise_the_hub(tmp_path, cifar_parquet, monkeypatch):
    """Which keeps what it has fetched; the name of the file there is that of its repository."""
    import huggingface_hub

    fetched = []

    def download(repository, file, repo_type):
        fetched.append((repository, file, repo_type))
        if not (tmp_path / "cifar100").exists():
            raise huggingface_hub.errors.LocalEntryNotFoundError("no network")
        return str(tmp_path / "cifar100" / FILE)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setenv("CLIP_GEOMETRY_DATA", str(tmp_path))
    with pytest.raises(
        InputError, match=r"could not be fetched from huggingface\.co .* give a folder with cifar100/test-"
    ):
        load_dataset("cifar100")
    expected = _multiset(_load(cifar_parquet))
    cifar_parquet.rename(tmp_path / "cifar100")
    assert _multiset(load_dataset("cifar100")) == expected and len(fetched) == 1
    monkeypatch.delenv("CLIP_GEOMETRY_DATA")
    assert _multiset(load_dataset("cifar100")) == expected
    assert fetched[-1] == ("uoft-cs/cifar100", f"cifar100/{FILE}", "dataset")
