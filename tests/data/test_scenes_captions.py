"""The sentences about scenes: hand-written captions as the oracle, and the grammar of the table."""

import re
from pathlib import Path

import pytest

from clip_geometry.catalog import read_yaml
from clip_geometry.data.scenes import caption, class_names, vocabulary
from clip_geometry.data.scenes.draw import CAPTIONS, COLOURS, SHAPES, Scene, Thing, sample

LANGUAGES = ("en", "de", "fr", "ru")


def thing(words: str) -> Thing:
    size, colour, shape = words.split()
    return Thing(SHAPES.index(shape) * len(COLOURS) + COLOURS.index(colour), size, 0, 0, 0, 0, (0, 0, 0))


def scene(main: str, place: str, background: str, *extras: str) -> Scene:
    """A scene whose caption n uses template n."""
    small = tuple(thing(f"tiny {words}") for words in extras)
    return Scene(0, "test", 0, thing(main), small, place, background, (0, 0, 0), tuple(range(CAPTIONS)))


CIRCLE = scene("huge red circle", "top left", "light grey", "blue star", "green square")
SCENES = {
    "circle": CIRCLE,
    "heart": scene("small white heart", "bottom", "dark grey"),
    "crescent": scene("large orange crescent", "middle", "light blue", "black cross"),
    "star": scene("huge purple star", "right", "beige"),
    "ring": scene("small brown ring", "bottom right", "light green", "yellow triangle", "pink heart"),
    "green_star": scene("large green star", "top", "light grey", "pink ring"),
    "black_crescent": scene("huge black crescent", "left", "beige"),
}


@pytest.mark.parametrize("written", read_yaml(Path(__file__).with_name("written_captions.yaml")))
def test_captions_are_the_hand_written_ones(written):
    shown = SCENES[written["scene"]]
    assert {each: caption(shown, written["number"], each) for each in LANGUAGES} == {
        each: written[each] for each in LANGUAGES
    }


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", {0: "red circle", 35: "purple star", 69: "white heart", 77: "brown crescent"}),
        ("de", {0: "roter Kreis", 11: "orangefarbenes Quadrat", 66: "rosa Herz", 74: "blaue Mondsichel"}),
        ("fr", {9: "cercle blanc", 35: "étoile violette", 49: "croix blanche", 57: "anneau marron"}),
        ("ru", {2: "жёлтый круг", 34: "синяя звезда", 54: "синее кольцо", 68: "чёрное сердце"}),
    ],
)
def test_class_names(language, expected):
    names = class_names(language)
    assert len(set(names)) == 80
    assert {label: names[label] for label in expected} == expected


def forms(word) -> set[str]:
    """All forms of a word of the table."""
    if isinstance(word, dict):
        return {form for part in word.values() for form in forms(part)}
    return set(word) if isinstance(word, list) else {word}


@pytest.mark.parametrize("language", LANGUAGES)
def test_five_captions_differ_and_state_shape_colour_size_place_and_background(language):
    words = vocabulary()[language]
    for k in range(300):
        one = sample(7, "train", k)
        captions = [caption(one, n, language) for n in range(CAPTIONS)]
        assert len(set(captions)) == CAPTIONS
        stated = [
            words["sizes"][one.main.size],
            words["colours"][one.main.colour],
            words["shapes"][one.main.shape]["noun"],
            words["places"][one.place],
            words["backgrounds"][one.background],
        ]
        for text in captions:
            assert all(any(form.lower() in text.lower() for form in forms(word)) for word in stated)
            assert text[0].isupper()
            assert text.endswith(".")
            assert not re.search(r"\s\s|\s[,.;]|[{}\[\]]", text)


def test_small_objects_are_named_in_three_of_the_five_captions():
    named = [sum("tiny" in caption(CIRCLE, n) for n in range(CAPTIONS)), caption(CIRCLE, 4).count("tiny")]
    assert named == [3, 2]
