import pytest
from open_clip import OPENAI_IMAGENET_TEMPLATES

from clip_geometry.data.prompts import class_prompts
from clip_geometry.registry import InputError


def test_one_text_per_class_which_pairs_on_the_label():
    side = class_prompts(["lawn_mower", "sea"], "a photo of a {}.", language="en")
    assert [side.load(k) for k in range(len(side))] == ["a photo of a lawn mower.", "a photo of a sea."]
    assert list(side.item_id) == ["class-0", "class-1"]
    assert side.labels is not None
    assert side.labels.tolist() == [0, 1]
    assert (side.modality, side.language, side.pair_on) == ("text", "en", "label")


def test_the_underscores_of_class_names_are_kept_on_request():
    side = class_prompts(["lawn_mower", "{}"], "a photo of a {_}.")
    assert [side.load(k) for k in range(2)] == ["a photo of a lawn_mower.", "a photo of a {}."]


@pytest.mark.parametrize(("prompt", "count"), [("a photo", 0), ("{} and {}", 2), ("{} and {_}", 2), ("", 0)])
def test_a_prompt_needs_exactly_one_place(prompt, count):
    with pytest.raises(InputError, match=rf"has \{{\}} {count} times"):
        class_prompts(["sea"], prompt)


def test_a_named_set_gives_several_texts_per_class():
    side = class_prompts(["lawn_mower", "sea"], "clip-cifar")
    assert len(side) == 36
    assert side.load(0) == "a photo of a lawn mower." and side.load(18) == "a photo of a sea."
    assert side.labels is not None and side.labels.tolist() == [0] * 18 + [1] * 18
    assert len(set(side.item_id)) == 36 and side.item_id[19] == "class-1-1"
    assert class_prompts(["sea"], "paper").load(0) == "low-resolution photo of a sea"


def test_the_templates_of_imagenet():
    side = class_prompts(["lawn_mower", "sea"], "clip-imagenet")
    assert len(side) == 160 and len({side.load(k) for k in range(160)}) == 160
    assert side.load(0) == "a bad photo of a lawn mower." and side.load(159) == "a tattoo of the sea."
    assert [side.load(k) for k in range(80)] == [each("lawn mower") for each in OPENAI_IMAGENET_TEMPLATES]


def test_a_named_set_in_another_language_is_an_error():
    assert class_prompts(["яблоко"], "paper-ru", language="ru").load(0) == "изображение яблоко"
    for prompt, language in (("paper-ru", "en"), ("clip-cifar", "ru")):
        with pytest.raises(InputError, match=f"prompt '{prompt}' is written in"):
            class_prompts(["sea"], prompt, language=language)
