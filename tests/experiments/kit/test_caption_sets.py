"""The published sets of parallel captions, in the layouts they come in: multi30k, xtd10, wikicaps."""

import gzip

import pytest

from clip_geometry.data import load_dataset, resolve_dataset
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.caption_sets import language_files, read_aligned

NAMES = ["cat.png", "dog.png", "bus.png"]
XTD10 = "de, en, es, fr, it, jp, ko, pl, ru, tr, zh"


def _text(name, **options):
    text = load_dataset(resolve_dataset(name, **options)).text
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


@pytest.mark.parametrize("place", ["", "data/task1/raw"])
@pytest.mark.parametrize("language", ["en", "de", "fr", "cs"])
def test_multi30k_from_its_repository(multi30k_folder, place, language):
    text = _text("multi30k", path=multi30k_folder / place, language=language)
    assert [text.load(k) for k in range(3)] == [f"{thing} ({language})" for thing in ("cat", "dog", "bus")]
    assert (list(text.item_id), text.language) == (NAMES, language)


def test_multi30k_splits(multi30k_folder):
    assert list(_text("multi30k", path=multi30k_folder, split="train").item_id) == ["0", "1", "2"]
    assert list(_text("multi30k", path=multi30k_folder, split="test_2017_mscoco").item_id) == NAMES
    with pytest.raises(InputError, match=r"has no captions in 'cs'; its languages are de, en, fr$"):
        _text("multi30k", path=multi30k_folder, split="test_2017_mscoco", language="cs")
    with pytest.raises(InputError, match=r"holds no val split of multi30k; expected multi30k_<split>.parquet or data/"):
        _text("multi30k", path=multi30k_folder, split="val")
    with pytest.raises(InputError, match="unknown split 'test'; did you mean 'test_2016_flickr'"):
        resolve_dataset("multi30k", split="test")


@pytest.mark.parametrize("language", XTD10.split(", "))
def test_xtd10_from_its_repository(xtd10_folder, language):
    text = _text("xtd10", path=xtd10_folder, language=language)
    assert [text.load(k) for k in range(3)] == [f"{thing} ({language})" for thing in ("cat", "dog", "bus")]
    assert (list(text.item_id), text.language) == (NAMES, language)


def test_xtd10_errors(xtd10_folder, tmp_path):
    with pytest.raises(InputError, match=rf"has no captions in 'ja'; its languages are {XTD10}$"):
        _text("xtd10", path=xtd10_folder, language="ja")
    with pytest.raises(InputError, match=r"unknown split 'val'; known are test$"):
        resolve_dataset("xtd10", split="val")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty holds no test split of xtd10; expected xtd10.parquet or \{XTD10,MIC"):
        _text("xtd10", path=tmp_path / "empty")
    with pytest.raises(InputError, match="nowhere does not exist; a folder that holds xtd10 was expected"):
        _text("xtd10", path=tmp_path / "nowhere")
    names = xtd10_folder / "XTD10/test_image_names.txt"
    names.write_text(names.read_text() + "more.png\n")
    with pytest.raises(InputError, match=r"test_image_names.txt has 4 lines and .*test_1kcaptions_de.txt 3; line k of"):
        _text("xtd10", path=xtd10_folder)
    names.unlink()
    assert list(_text("xtd10", path=xtd10_folder).item_id) == ["0", "1", "2"]


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
        ({}, "English captions of three sets of images; say pair=de-en, fr-en or ru-en$"),
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
    with pytest.raises(InputError, match="line 4, has 2 fields between tabs; expected are 3: image, de, en"):
        _text("wikicaps", path=wikicaps_folder, language="de")


def test_without_a_shared_folder(monkeypatch):
    monkeypatch.delenv("CLIP_GEOMETRY_DATA", raising=False)
    with pytest.raises(
        InputError, match="xtd10 is looked for in CLIP_GEOMETRY_DATA, which is not set; give its folder"
    ):
        _text("xtd10")


def test_images_need_image_names(multi30k_folder):
    with pytest.raises(InputError, match=r"multi30k has no image column .* to find images with"):
        _text("multi30k", path=multi30k_folder, split="train", images=multi30k_folder)
    with pytest.raises(InputError, match="a prompt needs class names"):
        resolve_dataset("multi30k", path=multi30k_folder, prompt="a {}")


# line-aligned text files


@pytest.fixture
def folder(tmp_path):
    for name in (
        "train.de",
        "train.en.gz",
        "train.txt",
        "train.en.bak",
        "train.pt-BR",
        "val.de",
        "en/train",
        "fr/train",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    return tmp_path


def _codes(template):
    return {language: file.name for language, file in language_files(template).items()}


def test_languages_are_read_off_the_names(folder):
    assert _codes(folder / "train.{language}") == {"de": "train.de", "en": "train.en.gz", "pt-BR": "train.pt-BR"}
    assert _codes(folder / "{language}/train") == {"en": "train", "fr": "train"}
    assert _codes(folder / "none.{language}") == _codes(folder / "nowhere/train.{language}") == {}


def test_relative_names_and_names_that_look_like_patterns(folder, monkeypatch):
    (folder / "[a-z]*").mkdir()
    (folder / "[a-z]*/x.it").write_text("x\n")
    monkeypatch.chdir(folder)
    assert _codes((folder / "[a-z]*" / "x.{language}").relative_to(folder)) == {"it": "x.it"}


def test_an_unpacked_file_goes_before_its_archive(folder):
    (folder / "train.en").write_text("unpacked\n")
    assert _codes(folder / "train.{language}")["en"] == "train.en"


def test_columns_and_image_names(tmp_path):
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.de.gz").write_bytes(gzip.compress(b"eins\nzwei"))
    (tmp_path / "names").write_text("COCO_1.jpeg#367178\n#7.png\n")
    files = {"de": tmp_path / "a.de.gz", "en": tmp_path / "a.en"}
    table = read_aligned(tmp_path, files, tmp_path / "names")
    assert {name: table.strings(name) for name in table.names} == {
        "de": ["eins", "zwei"],
        "en": ["one", "two"],
        "image": ["COCO_1.jpeg", "#7.png"],
    }
    assert table.languages == ("de", "en")
    assert read_aligned(tmp_path, files).names == ("de", "en")


@pytest.mark.parametrize("name", ["a.de", "names"])
def test_another_number_of_lines(tmp_path, name):
    for file in ("a.en", "a.de", "names"):
        (tmp_path / file).write_text("one\ntwo\nthree\n" if file == name else "one\ntwo\n")
    with pytest.raises(InputError, match=rf"{name} has 3 lines and .*a.en 2; line k of each must be about the same"):
        read_aligned(tmp_path, {"en": tmp_path / "a.en", "de": tmp_path / "a.de"}, tmp_path / "names")


def test_an_empty_line_is_an_empty_cell_and_an_empty_file_an_error(tmp_path):
    (tmp_path / "a.en").write_text("one\n\nthree\n")
    table = read_aligned(tmp_path / "a.{language}", {"en": tmp_path / "a.en"})
    with pytest.raises(InputError, match=r"row 2 of column 'en' in .*a.{language} is empty"):
        table.strings("en")
    (tmp_path / "a.en").write_text("")
    with pytest.raises(InputError, match=r"a.en is empty \(0 bytes\); a text file was expected"):
        read_aligned(tmp_path, {"en": tmp_path / "a.en"})
