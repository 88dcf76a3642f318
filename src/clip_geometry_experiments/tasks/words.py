"""Classification of words that have a vector: noun supersenses of WordNet, and parts of speech of CoDWoE."""

import re
from collections.abc import Collection
from pathlib import Path

from clip_geometry.data.tables import read_table
from clip_geometry.io.reading import read_json
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.corpora import shared_file
from clip_geometry_experiments.kit.word_vectors import find_files, read_words
from clip_geometry_experiments.tasks import base

FLAG = re.compile(r"word([12])\.attrs\.supersenses\.is_(\w+)")


class WordTaskConfig(base.FileTaskConfig):
    """Options of a task on words.

    Attributes:
        vectors: A file of word vectors, as in the model name words:PATH. Words without a vector are left out.
    """

    vectors: base.Located | None = None


def word_task(config: WordTaskConfig, labels_of: dict[str, set[str]]) -> base.Task:
    """Return a task with one example per word. Words without labels are dropped and counted.

    Args:
        config: Options of the task.
        labels_of: Word → its labels.
    """
    known: Collection[str] = read_words(find_files(config.vectors)).index if config.vectors else labels_of
    with_vector = {word: labels for word, labels in labels_of.items() if word in known}
    labeled = {word: labels for word, labels in with_vector.items() if labels}
    classes = sorted({label for labels in labeled.values() for label in labels})
    return base.multi_label_task(config, labeled, classes, dropped=len(with_vector) - len(labeled))


def word_file(config: WordTaskConfig, name: str, source: str) -> Path:
    """Return the file of a word task.

    Args:
        config: Options of the task.
        name: Name of the file in $CLIP_GEOMETRY_DATA/words.
        source: Where to get the file, for the end of the error message.

    Raises:
        InputError: If there is no file.
    """
    file = config.path or shared_file(f"words/{name}")
    if file is None:
        raise InputError(
            f"{config.name} is not in $CLIP_GEOMETRY_DATA/words ({name}); give path=…, or put it there: {source}"
        )
    return existing_file(file, f"a file of {config.name}")


class SupersenseConfig(WordTaskConfig):
    """Options of the task of noun supersenses.

    Attributes:
        path: A .json object that maps each word to its supersenses, or words_features.csv of
            github.com/altsoph/modality_shifts.
    """


def load_supersenses(config: SupersenseConfig) -> base.Task:
    """Load words with their supersenses."""
    source = "github.com/altsoph/modality_shifts, data/words_features.zip, or scripts/data/build.py with WordNet"
    file = word_file(config, "supersenses.json", source)
    if file.suffix == ".json":
        values = read_json(file, "a JSON object of words and the lists of their supersenses", dict[str, list[str]])
        return word_task(config, {word: set(labels) for word, labels in values.items()})
    # each row is a pair of words; a column wordN.attrs.supersenses.is_X tells whether word N has the supersense X
    table = read_table(file)
    matches = {name: FLAG.fullmatch(name) for name in table.names}
    flags = [(name, match[1], match[2]) for name, match in matches.items() if match is not None]
    if not flags or not {"word1", "word2"} <= set(table.names):
        raise InputError(
            f"{file} lacks word1, word2 or wordN.attrs.supersenses.is_X; expected words_features.csv, which has them"
        )
    words = {which: table.values(f"word{which}") for which in ("1", "2")}
    labels: dict[str, set[str]] = {word: set() for pair in zip(*words.values(), strict=True) for word in pair}
    for name, which, sense in flags:
        for word, value in zip(words[which], table.values(name), strict=True):
            if str(value) in ("True", "1", "1.0"):
                labels[word].add(sense)
    return word_task(config, labels)


base.tasks.add("supersense", base.TaskEntry(SupersenseConfig, load_supersenses))


class PosConfig(WordTaskConfig):
    """Options of the parts of speech of the words that CoDWoE (Mickus et al. 2022) defines, from English Wiktionary.

    Attributes:
        path: The file en.complete.csv of the full data set.
    """


def load_pos(config: PosConfig) -> base.Task:
    """Load words as they are written, each with the parts of speech of all its definitions."""
    source = "full_dataset/en.complete.csv in https://codwoe.atilf.fr/data/full_dataset.zip"
    table = read_table(word_file(config, "en.complete.csv", source))
    if not {"word", "pos"} <= set(table.names):
        raise InputError(f"{table.path} has no columns 'word' and 'pos'; expected {source}")
    labels: dict[str, set[str]] = {}
    for word, tag in zip(table.values("word"), table.values("pos"), strict=True):
        if isinstance(word, str) and word:
            labels.setdefault(word, set()).update([tag] if isinstance(tag, str) and tag else [])
    return word_task(config, labels)


base.tasks.add("pos", base.TaskEntry(PosConfig, load_pos))
