import gzip

import pytest

from clip_geometry.data.tables import language_files, read_aligned
from clip_geometry.registry import InputError


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
