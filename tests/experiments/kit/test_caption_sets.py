"""The published sets of parallel captions, found by name: multi30k, xtd10, wikicaps."""

import pytest

from clip_geometry.data import load_dataset, resolve_dataset
from clip_geometry.registry import InputError

NAMES = ["cat.png", "dog.png", "bus.png"]
XTD10 = "de, en, es, fr, it, jp, ko, pl, ru, tr, zh"


def _text(name, **options):
    text = load_dataset(name, **options).text
    assert text is not None
    return text


def _texts(name, **options):
    text = _text(name, **options)
    return [text.load(k) for k in range(len(text))]


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """An empty folder CLIP_GEOMETRY_DATA."""
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("CLIP_GEOMETRY_DATA", str(tmp_path / "shared"))
    return tmp_path / "shared"


@pytest.mark.parametrize("language", ["en", "de", "fr", "cs"])
def test_multi30k(multi30k_folder, language):
    text = _text("multi30k", path=multi30k_folder, language=language)
    assert [text.load(k) for k in range(3)] == [f"{thing} ({language})" for thing in ("cat", "dog", "bus")]
    assert (list(text.item_id), text.language) == (NAMES, language)


def test_multi30k_splits(multi30k_folder):
    assert list(_text("multi30k", path=multi30k_folder, split="train").item_id) == ["0", "1", "2"]
    assert list(_text("multi30k", path=multi30k_folder, split="test_2017_mscoco").item_id) == NAMES
    with pytest.raises(InputError, match=r"has no captions in 'cs'; its languages are de, en, fr$"):
        _text("multi30k", path=multi30k_folder, split="test_2017_mscoco", language="cs")
    with pytest.raises(InputError, match=r"the val split of multi30k is not in .* expected multi30k_<split>.parquet"):
        _text("multi30k", path=multi30k_folder, split="val")
    with pytest.raises(InputError, match="unknown split 'test'; did you mean 'test_2016_flickr'"):
        resolve_dataset("multi30k", split="test")


@pytest.mark.parametrize("language", XTD10.split(", "))
def test_xtd10(xtd10_folder, language):
    text = _text("xtd10", path=xtd10_folder, language=language)
    assert [text.load(k) for k in range(3)] == [f"{thing} ({language})" for thing in ("cat", "dog", "bus")]
    assert (list(text.item_id), text.language) == (NAMES, language)


def test_xtd10_errors(xtd10_folder, tmp_path):
    with pytest.raises(InputError, match=rf"has no captions in 'ja'; its languages are {XTD10}$"):
        _text("xtd10", path=xtd10_folder, language="ja")
    with pytest.raises(InputError, match=r"unknown split 'val'; known are test$"):
        resolve_dataset("xtd10", split="val")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"the test split of xtd10 is not in .*empty; .* expected xtd10.parquet"):
        _text("xtd10", path=tmp_path / "empty")
    with pytest.raises(InputError, match="nowhere does not exist; a folder that holds xtd10 was expected"):
        _text("xtd10", path=tmp_path / "nowhere")


@pytest.mark.parametrize("place", ["", "wikicaps_v1.0"])
@pytest.mark.parametrize("other", ["de", "fr", "ru"])
def test_wikicaps_pairs(wikicaps_folder, place, other):
    path = wikicaps_folder / place
    foreign = _text("wikicaps", path=path, language=other, split="dev")
    english = _text("wikicaps", path=path, language="en", pair=f"{other}-en", split="dev")
    assert [foreign.load(k) for k in range(3)] == [f'" {thing} ({other})' for thing in ("cat", "dog", "bus")]
    assert english.load(0) == f"cat (en of {other}, dev)"
    assert (foreign.language, english.language) == (other, "en")
    assert list(foreign.item_id) == list(english.item_id) == NAMES
    assert _texts("wikicaps", path=path, language="en", pair=f"{other}-en")[0] == f"cat (en of {other}, test)"


def test_wikicaps_errors(wikicaps_folder):
    for options, message in (
        ({}, "English captions of three sets of images; choose one with pair=de-en, fr-en or ru-en$"),
        ({"language": "es"}, "wikicaps has no captions in 'es'; its languages are de, fr, ru, en$"),
        (
            {"language": "ru", "pair": "de-en"},
            "pair de-en of wikicaps has no captions in 'ru'; its languages are de, en$",
        ),
        ({"language": "ru", "pair": "en-ru"}, "key 'pair' is 'en-ru'"),
        ({"language": "ru", "split": "train"}, "unknown split 'train'; known are dev, test$"),
    ):
        with pytest.raises(InputError, match=message):
            resolve_dataset("wikicaps", path=wikicaps_folder, **options)
    file = wikicaps_folder / "wikicaps_v1.0/img_de-en.tok.lc.filtered.test"
    file.write_text(file.read_text() + "x.png\teine Katze\n")
    with pytest.raises(InputError, match="line 4, has 2 fields between tabs; expected 3: image, de, en"):
        _text("wikicaps", path=wikicaps_folder, language="de")


def test_without_a_shared_folder(monkeypatch):
    monkeypatch.delenv("CLIP_GEOMETRY_DATA", raising=False)
    with pytest.raises(InputError, match="xtd10 is not in CLIP_GEOMETRY_DATA, which is not set; give its folder"):
        _text("xtd10")


def test_images_need_image_names(multi30k_folder):
    with pytest.raises(InputError, match=r"multi30k_train.parquet has no image column .*; name it with image_column="):
        _text("multi30k", path=multi30k_folder, split="train", images=multi30k_folder)
    with pytest.raises(InputError, match="a prompt needs class names"):
        resolve_dataset("multi30k", path=multi30k_folder, prompt="a {}")
