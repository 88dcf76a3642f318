"""The sentences about a scene, in four languages; the words come from vocabulary.yaml, inflected there."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from clip_geometry.config import read_yaml
from clip_geometry.data.scenes.layout import COLOURS, SHAPES, Scene, Thing

_GENDERS = "mfn"


@cache
def vocabulary() -> dict[str, Any]:
    """Return the content of vocabulary.yaml."""
    return read_yaml(Path(__file__).with_name("vocabulary.yaml"))


def _form(word: str | list | Mapping, case: str, gender: str) -> str:
    """Return the form of a word of the table: a mapping is by case, a list by gender, a string is invariable."""
    if isinstance(word, Mapping):
        word = word[case]
    return word if isinstance(word, str) else word[_GENDERS.index(gender)]


@dataclass(frozen=True)
class _Phrase:
    """Words that agree in gender; a format string gives their case: "{main:dat}"."""

    pattern: str
    words: Mapping[str, Any]
    gender: str

    def __format__(self, case: str) -> str:
        return self.pattern.format(**{name: _form(word, case, self.gender) for name, word in self.words.items()})


def _object(words: Mapping[str, Any], thing: Thing) -> _Phrase:
    shape = words["shapes"][thing.shape]
    parts = {
        "article": words.get("article", ""),
        "size": words["sizes"][thing.size],
        "colour": words["colours"][thing.colour],
        "shape": shape["noun"],
    }
    return _Phrase(words["phrase"], parts, shape["gender"])


def caption(scene: Scene, number: int, language: str = "en") -> str:
    """Return caption 0, …, 4 of a scene, in its own order of templates; number n means the same in every language."""
    words = vocabulary()[language]
    template = words["templates"][scene.order[number]]
    main = _object(words, scene.main)
    fillers = {
        "main": main,
        "place": words["places"][scene.place],
        "background": _Phrase("{word}", {"word": words["backgrounds"][scene.background]}, "m"),
        "agree": _form(template.get("agree", ""), "", main.gender),
        **{name: _object(words, thing) for name, thing in zip("ab", scene.extras, strict=False)},
    }
    extras = template["extras"][len(scene.extras)] if "extras" in template else ""
    text = template["text"].format(**fillers, extras=extras.format(**fillers))
    return text[0].upper() + text[1:]


@cache
def class_names(language: str = "en") -> tuple[str, ...]:
    """Return the 80 class names in the order of the labels, such as "red circle", in the nominative."""
    words = vocabulary()[language]
    names = []
    for shape in SHAPES:
        noun = words["shapes"][shape]
        for colour in COLOURS:
            parts = {"colour": words["colours"][colour], "shape": noun["noun"]}
            names.append(format(_Phrase(words["class_name"], parts, noun["gender"]), "nom"))
    return tuple(names)
