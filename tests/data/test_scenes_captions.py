"""The sentences about scenes: hand-written captions as the oracle, and the grammar of the table."""

import re

import pytest

from clip_geometry.data.scenes import class_names
from clip_geometry.data.scenes.captions import caption, vocabulary
from clip_geometry.data.scenes.layout import (
    BACKGROUNDS,
    CAPTIONS,
    COLOURS,
    MAIN_SIZES,
    PLACES,
    SHAPES,
    Scene,
    Thing,
    sample,
)

LANGUAGES = ("en", "de", "fr", "ru")


def thing(words: str) -> Thing:
    size, colour, shape = words.split()
    return Thing(SHAPES.index(shape) * len(COLOURS) + COLOURS.index(colour), size, 0, 0, 0, 0, (0, 0, 0))


def scene(main: str, place: str, background: str, *extras: str) -> Scene:
    """A scene whose caption n uses template n."""
    small = tuple(thing(f"tiny {words}") for words in extras)
    return Scene(0, "test", 0, thing(main), small, place, background, (0, 0, 0), tuple(range(CAPTIONS)))


CIRCLE = scene("huge red circle", "top left", "light grey", "blue star", "green square")
HEART = scene("small white heart", "bottom", "dark grey")
CRESCENT = scene("large orange crescent", "middle", "light blue", "black cross")
STAR = scene("huge purple star", "right", "beige")
RING = scene("small brown ring", "bottom right", "light green", "yellow triangle", "pink heart")
GREEN_STAR = scene("large green star", "top", "light grey", "pink ring")
BLACK_CRESCENT = scene("huge black crescent", "left", "beige")

# written by hand, each with the language's grammar in view, not by the program
WRITTEN = [
    (
        CIRCLE,
        0,
        "A huge red circle at the top left on a light grey background, along with a tiny blue "
        "star and a tiny green square.",
        "Ein riesiger roter Kreis oben links auf hellgrauem Hintergrund, dazu ein winziger blauer "
        "Stern und ein winziges "
        "grünes Quadrat.",
        "Un énorme cercle rouge en haut à gauche sur un fond gris clair, accompagné d'une "
        "minuscule étoile bleue et d'un "
        "minuscule carré vert.",
        "Огромный красный круг вверху слева на светло-сером фоне, а также крошечная синяя звезда "
        "и крошечный зелёный "
        "квадрат.",
    ),
    (
        HEART,
        1,
        "At the bottom there is a small white heart; the background is dark grey.",
        "Unten befindet sich ein kleines weißes Herz; der Hintergrund ist dunkelgrau.",
        "En bas se trouve un petit cœur blanc, et le fond est gris foncé.",
        "Внизу находится маленькое белое сердце, фон тёмно-серый.",
    ),
    (
        CRESCENT,
        2,
        "On a light blue background you can see a large orange crescent in the middle, as well as a tiny black cross.",
        "Auf hellblauem Hintergrund sieht man in der Mitte eine große orangefarbene Mondsichel "
        "und außerdem ein winziges "
        "schwarzes Kreuz.",
        "Sur un fond bleu clair, on voit un grand croissant orange au centre, ainsi qu'une minuscule croix noire.",
        "На голубом фоне виден большой оранжевый полумесяц в центре; кроме того, есть крошечный чёрный крест.",
    ),
    (
        STAR,
        3,
        "The picture shows a huge purple star on the right, against a beige background.",
        "Das Bild zeigt rechts einen riesigen violetten Stern vor beigefarbenem Hintergrund.",
        "L'image montre une énorme étoile violette à droite, devant un fond beige.",
        "На картинке можно увидеть огромную фиолетовую звезду справа на бежевом фоне.",
    ),
    (
        RING,
        4,
        "A picture of a small brown ring at the bottom right, a tiny yellow triangle and a tiny "
        "pink heart on a light green "
        "background.",
        "Ein Bild mit einem kleinen braunen Ring unten rechts, einem winzigen gelben Dreieck und "
        "einem winzigen rosa Herzen "
        "auf hellgrünem Hintergrund.",
        "Une image d'un petit anneau marron en bas à droite, d'un minuscule triangle jaune et "
        "d'un minuscule cœur rose sur "
        "fond vert clair.",
        "Картинка с маленьким коричневым кольцом внизу справа, с крошечным жёлтым треугольником и "
        "с крошечным розовым "
        "сердцем на светло-зелёном фоне.",
    ),
    (
        GREEN_STAR,
        0,
        "A large green star at the top on a light grey background, along with a tiny pink ring.",
        "Ein großer grüner Stern oben auf hellgrauem Hintergrund, dazu ein winziger rosa Ring.",
        "Une grande étoile verte en haut sur un fond gris clair, accompagnée d'un minuscule anneau rose.",
        "Большая зелёная звезда вверху на светло-сером фоне, а также крошечное розовое кольцо.",
    ),
    (
        GREEN_STAR,
        2,
        "On a light grey background you can see a large green star at the top, as well as a tiny pink ring.",
        "Auf hellgrauem Hintergrund sieht man oben einen großen grünen Stern und außerdem einen winzigen rosa Ring.",
        "Sur un fond gris clair, on voit une grande étoile verte en haut, ainsi qu'un minuscule anneau rose.",
        "На светло-сером фоне видна большая зелёная звезда вверху; кроме того, есть крошечное розовое кольцо.",
    ),
    (
        GREEN_STAR,
        4,
        "A picture of a large green star at the top and a tiny pink ring on a light grey background.",
        "Ein Bild mit einem großen grünen Stern oben und einem winzigen rosa Ring auf hellgrauem Hintergrund.",
        "Une image d'une grande étoile verte en haut et d'un minuscule anneau rose sur fond gris clair.",
        "Картинка с большой зелёной звездой вверху и с крошечным розовым кольцом на светло-сером фоне.",
    ),
    (
        BLACK_CRESCENT,
        4,
        "A picture of a huge black crescent on the left on a beige background.",
        "Ein Bild mit einer riesigen schwarzen Mondsichel links auf beigefarbenem Hintergrund.",
        "Une image d'un énorme croissant noir à gauche sur fond beige.",
        "Картинка с огромным чёрным полумесяцем слева на бежевом фоне.",
    ),
    (
        HEART,
        2,
        "On a dark grey background you can see a small white heart at the bottom.",
        "Auf dunkelgrauem Hintergrund sieht man unten ein kleines weißes Herz.",
        "Sur un fond gris foncé, on voit un petit cœur blanc en bas.",
        "На тёмно-сером фоне видно маленькое белое сердце внизу.",
    ),
]


@pytest.mark.parametrize(("scene", "number", "en", "de", "fr", "ru"), WRITTEN)
def test_captions_are_the_hand_written_ones(scene, number, en, de, fr, ru):
    assert [caption(scene, number, language) for language in LANGUAGES] == [en, de, fr, ru]


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


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_table_is_complete(language):
    words = vocabulary()[language]
    assert set(words["shapes"]) == set(SHAPES)
    assert set(words["colours"]) == set(COLOURS)
    assert set(words["sizes"]) == {*MAIN_SIZES, "tiny"}
    assert set(words["places"]) == set(PLACES)
    assert set(words["backgrounds"]) == set(BACKGROUNDS)
    assert len(words["templates"]) == CAPTIONS


def adjectives(language):
    words = vocabulary()[language]
    return [word for part in ("colours", "sizes") for word in words[part].values()]


def test_german_adjectives_after_ein():
    for word in adjectives("de"):
        if word == "rosa":
            continue
        stem = word["nom"][1].removesuffix("e")
        assert word["nom"] == [stem + "er", stem + "e", stem + "es"]
        assert word["acc"] == [stem + "en", stem + "e", stem + "es"]
        assert word["dat"] == [stem + "en"] * 3


def test_russian_adjectives():
    for word in adjectives("ru"):
        (masculine, feminine, neuter), acc, ins = word["nom"], word["acc"], word["ins"]
        stem, soft = feminine[:-2], feminine.endswith("яя")
        i = "и" if soft or stem[-1] in "гкхжчшщ" else "ы"  # no ы after velars and sibilants
        assert masculine in (stem + i + "й", stem + "ой")
        assert (feminine, neuter) == (stem + ("яя" if soft else "ая"), stem + ("ее" if soft else "ое"))
        assert acc == [masculine, stem + ("юю" if soft else "ую"), neuter]
        oblique = stem + ("ей" if soft else "ой")
        assert ins == [stem + i + "м", oblique, stem + i + "м"]


def test_french_feminines_end_in_e():
    for word in adjectives("fr"):
        masculine, feminine = word if isinstance(word, list) else (word, word)
        assert feminine.endswith("e") or word == "marron"
        assert feminine[:3] == masculine[:3]
