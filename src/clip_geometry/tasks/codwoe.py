"""Parts of speech of the words that CoDWoE (Mickus et al. 2022) defines, from English Wiktionary."""

from pathlib import Path
from typing import Any

from clip_geometry.data.tables import read_table
from clip_geometry.reading import read_json
from clip_geometry.registry import InputError
from clip_geometry.tasks.base import Task, TaskEntry, tasks
from clip_geometry.tasks.words import WordTaskConfig, word_file, word_task

FILES = ("en.complete.csv", "full_dataset/en.complete.csv", "codwoe/en.complete.csv", "en.trial.complete.json")
SOURCE = "full_dataset/en.complete.csv in https://codwoe.atilf.fr/data/full_dataset.zip"


class PosConfig(WordTaskConfig):
    """path: en.complete.csv of the full data set, or one of the .complete.json files of the shared task."""


def load(config: PosConfig) -> Task:
    """A word has every part of speech that one of its definitions has; words are told apart as they are written."""
    file = word_file(config, FILES, SOURCE)
    words, tags = _columns(file)
    labels: dict[str, set[str]] = {}
    for word, tag in zip(words, tags, strict=True):
        if isinstance(word, str) and word:
            labels.setdefault(word, set()).update([tag] if isinstance(tag, str) and tag else [])
    return word_task(config, labels)


def _columns(file: Path) -> tuple[list[Any], list[Any]]:
    if file.suffix == ".json":
        entries = read_json(file, "a JSON list of definitions", list[dict[str, Any]])
        names = {name for entry in entries for name in entry}
        columns = {name: [entry.get(name) for entry in entries] for name in ("word", "pos")}
    else:
        table = read_table(file)
        names = set(table.names)
        columns = {name: table.values(name) for name in ("word", "pos") if name in names}
    if not {"word", "pos"} <= names:
        raise InputError(f"{file} has no 'word' and 'pos', which the files of the competition leave out; take {SOURCE}")
    return columns["word"], columns["pos"]


tasks.add("pos", TaskEntry(PosConfig, load, "words and their parts of speech (CoDWoE, English)"))
