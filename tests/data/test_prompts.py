import pytest

from clip_geometry.data.prompts import class_prompts
from clip_geometry.registry import InputError


def test_one_text_per_class_which_pairs_on_the_label():
    side = class_prompts(["lawn_mower", "sea"], "a photo of a {}.", language="en")
    assert [side.load(k) for k in range(len(side))] == ["a photo of a lawn mower.", "a photo of a sea."]
    assert list(side.item_id) == ["class-0", "class-1"]
    assert side.labels is not None
    assert side.labels.tolist() == [0, 1]
    assert (side.modality, side.language, side.pair_on) == ("text", "en", "label")


def test_braces_in_a_class_name_stay():
    assert class_prompts(["{}"], "a {}").load(0) == "a {}"


@pytest.mark.parametrize(("prompt", "count"), [("a photo", 0), ("{} and {}", 2), ("", 0)])
def test_a_prompt_needs_exactly_one_place(prompt, count):
    with pytest.raises(InputError, match=rf"contains \{{\}} {count} times"):
        class_prompts(["sea"], prompt)
