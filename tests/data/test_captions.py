import json

import numpy as np
import pytest

from clip_geometry.data import load_dataset
from clip_geometry.embeddings import Embeddings, pair
from clip_geometry.registry import InputError


def _table(path, rows):
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    return path


def _load(path, **options):
    return load_dataset("captions", path=path, **options)


def _texts(dataset):
    return [dataset.text.load(k) for k in range(len(dataset.text))]


@pytest.fixture
def five_each(tmp_path, write_image):
    """Fifteen captions of three images; the images interleave and first appear as c, a, b."""
    names = ["c.png", "a.png", "b.png"] * 5
    for seed, name in enumerate(names[:3]):
        write_image(tmp_path / name, seed)
    return _table(tmp_path / "t.jsonl", [{"image": name, "en": f"{name} {k // 3}"} for k, name in enumerate(names)])


def test_five_captions_of_an_image_are_five_pairs(five_each):
    dataset = _load(five_each)
    assert dataset.image is not None and dataset.text is not None
    assert list(dataset.image.item_id) == ["c.png", "a.png", "b.png"]
    sides = [
        Embeddings(np.zeros((len(side), 2)), side.modality, item_id=np.array(side.item_id)) for side in dataset.sides
    ]
    i, j = pair(*sides)
    assert len(i) == 15
    captions = _texts(dataset)
    assert [captions[k] for k in j] == [f"{name} {k}" for name in ("c.png", "a.png", "b.png") for k in range(5)]
    assert [dataset.image.item_id[k] for k in i] == [captions[k].split()[0] for k in j]


def test_language_columns(tmp_path):
    path = _table(tmp_path / "t.jsonl", [{"en": "a cat", "de": "eine Katze"}, {"en": "a dog", "de": "ein Hund"}])
    dataset = _load(path, language="de")
    assert _texts(dataset) == ["eine Katze", "ein Hund"]
    assert dataset.text is not None and dataset.text.language == "de"
    assert list(dataset.text.item_id) == ["0", "1"]
    assert list(dataset.text.item_id) == list(getattr(_load(path).text, "item_id", ()))
    assert dataset.image is None
    with pytest.raises(InputError, match=r"has no captions in 'fr'; its languages are en, de$"):
        _load(path, language="fr")


@pytest.mark.parametrize("column", ["caption", "text", "title", "sentence"])
@pytest.mark.parametrize("image", ["image", "file_name", "filename", "filepath", "image_path", "path", "image_id"])
def test_usual_column_names(tmp_path, column, image):
    dataset = _load(_table(tmp_path / "t.jsonl", [{"id": 3, image: "x.png", column: "a cat"}]), language="sv")
    assert _texts(dataset) == ["a cat"]
    assert dataset.text is not None
    assert (list(dataset.text.item_id), dataset.text.language) == (["x.png"], "sv")


def test_columns_by_name(tmp_path):
    rows = [{"image": "no", "caption": "no", "picture": 17, "words": "yes"}]
    dataset = _load(_table(tmp_path / "t.jsonl", rows), image_column="picture", caption_column="words")
    assert dataset.text is not None
    assert (_texts(dataset), list(dataset.text.item_id)) == (["yes"], ["17"])


def test_images_from_another_folder(tmp_path, write_image, five_each):
    write_image(tmp_path / "photos/b.png", seed=9, size=(3, 4))
    image = _load(five_each, images=tmp_path / "photos").image
    assert image is not None
    assert image.load(2).size == (3, 4)
    with pytest.raises(FileNotFoundError):
        image.load(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": "empty"}, r"none of the 3 images, such as 'c.png', is in the folder"),
        ({"images": "nowhere"}, "does not exist; a folder of images was expected"),
        ({"image_column": "imag"}, "has no column 'imag'; did you mean 'image'"),
        ({"prompt": "a {}"}, "a prompt needs class names"),
        ({"split": "train"}, "unknown split 'train'; known are all"),
        ({"path": "."}, "is a directory; a table"),
        ({"path": "words.jsonl"}, r"has no caption column; name one of id, words with caption_column="),
        ({"path": "words.jsonl", "caption_column": "words", "images": "."}, "has no image column"),
    ],
)
def test_errors(tmp_path, five_each, options, message):
    (tmp_path / "empty").mkdir()
    _table(tmp_path / "words.jsonl", [{"id": 1, "words": "a cat"}])
    places = {name: tmp_path / value for name, value in options.items() if name in ("path", "images")}
    with pytest.raises(InputError, match=message):
        _load(**{"path": five_each, **options, **places})


@pytest.fixture
def long_table(tmp_path, write_image):
    """Three images with a caption in each of three languages, one row each, German and English alternating."""
    for seed, name in enumerate(["a.png", "b.png", "c.png"]):
        write_image(tmp_path / name, seed)
    rows = [
        {"image": "b.png", "caption": "ein Bus", "language": "de"},
        {"image": "a.png", "caption": "a cat", "language": "en"},
        {"image": "a.png", "caption": "eine Katze", "language": "de"},
        {"image": "b.png", "caption": "a bus", "language": "en"},
        {"image": "c.png", "caption": "un chien", "language": "fr"},
    ]
    return tmp_path / "t.jsonl", rows


@pytest.mark.parametrize("column", ["language", "lang", "locale"])
def test_a_language_column_chooses_rows(long_table, column):
    path, rows = long_table
    _table(path, [{**{key: row[key] for key in ("image", "caption")}, column: row["language"]} for row in rows])
    for language, texts, ids in (
        ("de", ["ein Bus", "eine Katze"], ["b.png", "a.png"]),
        ("en", ["a cat", "a bus"], ["a.png", "b.png"]),
        ("fr", ["un chien"], ["c.png"]),
    ):
        dataset = _load(path, language=language)
        assert dataset.text is not None and dataset.image is not None
        assert (_texts(dataset), dataset.text.language) == (texts, language)
        assert list(dataset.text.item_id) == list(dataset.image.item_id) == ids
    assert _texts(_load(path)) == ["a cat", "a bus"]
    with pytest.raises(InputError, match=rf"has no rows with {column}='ru'; its languages are de, en, fr$"):
        _load(path, language="ru")


def test_rows_of_a_language_without_images_keep_their_numbers(long_table):
    path, rows = long_table
    _table(path, [{"words": row["caption"], "lang": row["language"]} for row in rows])
    text = _load(path, language="de", caption_column="words").text
    assert text is not None
    assert ([text.load(k) for k in range(len(text))], list(text.item_id)) == (["ein Bus", "eine Katze"], ["0", "2"])


def test_a_column_per_language_goes_before_a_language_column(tmp_path):
    rows = [{"en": "a cat", "de": "eine Katze", "language": "en"}, {"en": "a dog", "de": "ein Hund", "language": "de"}]
    assert _texts(_load(_table(tmp_path / "t.jsonl", rows), language="de")) == ["eine Katze", "ein Hund"]


def test_no_column_of_images_is_taken_for_a_language(five_each):
    with pytest.raises(InputError, match=r"has no captions in 'image'; its languages are en$"):
        _load(five_each, language="image")


def test_missing_images_stay_listed_and_fail_when_loaded(tmp_path, write_image):
    write_image(tmp_path / "b.png")
    side = _load(_table(tmp_path / "t.jsonl", [{"image": f"{name}.png", "en": name} for name in "ab"])).image
    assert side is not None and list(side.item_id) == ["a.png", "b.png"]
    assert side.load(1).size == (7, 5)
    with pytest.raises(FileNotFoundError):
        side.load(0)


def test_no_image_at_all(tmp_path):
    table = _table(tmp_path / "t.jsonl", [{"image": name, "en": "a cat"} for name in ("a.png", "x" * 300)])
    assert _load(table).image is None
    with pytest.raises(InputError, match=r"none of the 2 images, such as 'a.png', is in the folder"):
        _load(table, images=tmp_path)
