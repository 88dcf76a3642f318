import os

import pytest

from clip_geometry.data import load_dataset
from clip_geometry.registry import InputError

SUFFIXES = ["jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "JPG"]


def _load(path, **options):
    return load_dataset("folder", path=path, **options)


def test_every_format_sorted_by_path_in_code_point_order(tmp_path, write_image):
    names = ["b/ä.png", "b/Z.png", "a.png", "B.png", "b/c/z.png", *(f"all/x.{suffix}" for suffix in SUFFIXES)]
    for name in names:
        write_image(tmp_path / name)
    (tmp_path / "notes.txt").touch()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden/x.png").touch()
    (tmp_path / "._a.png").touch()
    side = _load(tmp_path).image
    assert side is not None
    assert list(side.item_id) == sorted(names)
    assert side.item_id[0] == "B.png"
    assert all(side.load(k).mode == "RGB" for k in range(len(side)))


def test_sub_folders_are_classes(tmp_path, write_image):
    for name in ["sea_star/1.png", "cat/1.png", "cat/2.png"]:
        write_image(tmp_path / name)
    dataset = _load(tmp_path, prompt="a photo of a {}")
    assert dataset.class_names == ("cat", "sea_star")
    assert dataset.image is not None and dataset.image.labels is not None and dataset.text is not None
    assert dataset.image.labels.tolist() == [0, 0, 1]
    assert [dataset.text.load(k) for k in range(2)] == ["a photo of a cat", "a photo of a sea star"]
    assert _load(tmp_path).text is None


@pytest.mark.parametrize(
    "names",
    [["a/1.png", "a/2.png"], ["1.png", "2.png"], ["a/1.png", "b/1.png", "1.png"], ["a/1.png", "b/c/1.png"]],
    ids=["one class", "flat", "one image outside", "one deeper"],
)
def test_no_classes(tmp_path, write_image, names):
    for name in names:
        write_image(tmp_path / name)
    dataset = _load(tmp_path)
    assert dataset.class_names is None
    assert dataset.image is not None and dataset.image.labels is None
    with pytest.raises(InputError, match="has no subfolders for classes"):
        _load(tmp_path, prompt="a {}")


def test_an_empty_folder(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match="has no images"):
        _load(tmp_path)


def test_a_file_a_missing_path_and_a_split(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file; a folder of images was expected"):
        _load(tmp_path / "file")
    with pytest.raises(InputError, match="does not exist; a folder of images was expected"):
        _load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="unknown split 'train'; known are all"):
        _load(tmp_path, split="train")


def test_a_name_that_is_not_utf8(tmp_path, write_image):
    write_image(tmp_path / "a.png")
    try:
        (tmp_path / "a.png").rename(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png"))
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    with pytest.raises(InputError, match="is not UTF-8; rename it"):
        _load(tmp_path)


def test_an_unreadable_sub_folder_is_an_error_not_left_out(tmp_path, write_image, monkeypatch):
    write_image(tmp_path / "a/1.png")
    scandir = os.scandir

    def refuse(path):  # permissions do not stop root, under whom tests may run
        if str(path).endswith("/a"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match="a cannot be read: Permission denied"):
        _load(tmp_path)
