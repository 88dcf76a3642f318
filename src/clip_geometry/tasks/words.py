"""Tasks on words: which words have a vector, and the noun supersenses of WordNet."""

import re
from collections.abc import Collection
from pathlib import Path

from clip_geometry.data.tables import read_table
from clip_geometry.encoders.words import find_files, read_words
from clip_geometry.paths import existing_file
from clip_geometry.reading import read_json
from clip_geometry.registry import InputError
from clip_geometry.tasks.base import FileTaskConfig, Located, Task, TaskEntry, multi_label_task, tasks
from clip_geometry.tasks.text import file_at, shared_folder

FLAG = re.compile(r"word([12])\.attrs\.supersenses\.is_(\w+)")


class WordTaskConfig(FileTaskConfig):
    """vectors: a file of word vectors, as the model words:PATH names it; words that are not in it are left out."""

    vectors: Located | None = None


class SupersenseConfig(WordTaskConfig):
    """path: a .json object, word → its supersenses; or words_features.csv of github.com/altsoph/modality_shifts."""


def word_task(config: WordTaskConfig, labels_of: dict[str, set[str]]) -> Task:
    """One example per word. Classes are the labels that occur, sorted; words without any are dropped and counted."""
    known: Collection[str] = read_words(find_files(config.vectors)).index if config.vectors else labels_of
    kept = {word: labels for word, labels in labels_of.items() if word in known}
    labelled = {word: labels for word, labels in kept.items() if labels}
    classes = sorted({label for labels in labelled.values() for label in labels})
    return multi_label_task(config, labelled, classes, dropped=len(kept) - len(labelled))


def word_file(config: WordTaskConfig, names: tuple[str, ...], source: str) -> Path:
    """The file of a word task. source: where to get it, the end of the error's sentence."""
    file = file_at(config, names, shared_folder("words"))
    if file is None:
        raise InputError(
            f"{config.name} is not in $CLIP_GEOMETRY_DATA/words ({' or '.join(names)}); give path=…, or put it there: "
            f"{source}"
        )
    return existing_file(file, f"a file of {config.name}")


def load_supersenses(config: SupersenseConfig) -> Task:
    source = "github.com/altsoph/modality_shifts, data/words_features.zip; or docs/data.md makes it from WordNet"
    file = word_file(config, ("supersenses.json", "words_features.csv"), source)
    labels = _from_json(file) if file.suffix == ".json" else _from_pairs(file)
    return word_task(config, labels)


def _from_json(file: Path) -> dict[str, set[str]]:
    values = read_json(file, "a JSON object of words and the lists of their supersenses", dict[str, list[str]])
    return {word: set(labels) for word, labels in values.items()}


def _from_pairs(file: Path) -> dict[str, set[str]]:
    """Rows are pairs of words; a column wordN.attrs.supersenses.is_X says whether word N has the supersense X."""
    table = read_table(file)
    flags = [(name, match[1], match[2]) for name in table.names if (match := FLAG.fullmatch(name))]
    if not flags or not {"word1", "word2"} <= set(table.names):
        raise InputError(f"{file} lacks word1, word2 or wordN.attrs.supersenses.is_X; words_features.csv has them")
    words = {which: table.values(f"word{which}") for which in ("1", "2")}
    labels: dict[str, set[str]] = {word: set() for pair in zip(*words.values(), strict=True) for word in pair}
    for name, which, sense in flags:
        for word, value in zip(words[which], table.values(name), strict=True):
            if str(value) in ("True", "1", "1.0"):
                labels[word].add(sense)
    return labels


tasks.add("supersense", TaskEntry(SupersenseConfig, load_supersenses, "nouns and their WordNet supersenses"))
