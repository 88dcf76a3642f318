import pytest

from clip_geometry.modalities import RESERVED, modality_name, plural
from clip_geometry.registry import InputError


@pytest.mark.parametrize("name", ["image", "text_de", "points3d", "text-ru", "point cloud", "CLIP.v2", "a"])
def test_names(name):
    assert modality_name(name) == name


@pytest.mark.parametrize(
    "name", [*RESERVED, "", " image", "text-to-image", "a+b", "a,b", "[a]", "a/b", "..", "1", None, 3]
)
def test_what_is_no_name(name):
    with pytest.raises(InputError, match="is not a modality name"):
        modality_name(name)


def test_plural():
    assert [plural(name) for name in ("image", "text", "audio")] == ["images", "texts", "audio rows"]
