"""Corpora: sentences whose words are given, with their parts of speech where those are known."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from clip_geometry.data.base import Dataset, DatasetConfig, DatasetEntry, Side, datasets
from clip_geometry.data.corpus_words import Sentence
from clip_geometry.data.files import FilesConfig, is_unicode, read_lines
from clip_geometry.data.tables import SUFFIXES, Table, read_table
from clip_geometry.data.traits import OneSplit, WithoutClasses
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, did_you_mean

TEXTS = (".txt", ".tokens")
TRACE = "-NONE-"  # the tag of what a treebank adds where nothing is said
WORD_COLUMNS, TAG_COLUMNS = ("tokens", "words", "sentence", "text"), ("tags", "pos_tags", "pos")


class CorpusConfig(FilesConfig, WithoutClasses):
    """path: a table (.parquet, .jsonl, …) with a sentence a row, or a text file (.txt, .tokens) with one a line.

    words: the column with the list of a sentence's words, or with text that spaces divide into them; default: the
    first of WORD_COLUMNS that the table has. tags: the column with a tag for each word, default: the first of
    TAG_COLUMNS that the table has. Words with the tag -NONE- are left out, and sentences without words too.
    """

    name: str = "corpus"
    words: str | None = None
    tags: str | None = None


def load(config: CorpusConfig) -> Dataset:
    path = existing_file(config.path, f"a corpus ({' '.join((*SUFFIXES, *TEXTS))})")
    if path.suffix.lower() in TEXTS:
        if config.words or config.tags:
            raise InputError(f"{path} is a text file, it has no columns; leave words and tags out")
        table = Table(path, ("sentence",), lambda _: read_lines(path))
        return corpus_of(config, table, "sentence", None)
    table = read_table(path)
    words = config.words or next((name for name in WORD_COLUMNS if name in table.names), None)
    if words is None:
        raise InputError(
            f"{path} has no column {' or '.join(WORD_COLUMNS)}; name one of {', '.join(table.names)} with words=…"
        )
    tags = config.tags or next((name for name in TAG_COLUMNS if name in table.names), None)
    return corpus_of(config, table, words, tags)


def corpus_of(config: DatasetConfig, table: Table, words: str, tags: str | None) -> Dataset:
    """A text side of `Sentence`s; item_id is the row in the table, from 0."""
    return dataset_of(config, table, sentences_of(table, words, tags))


def dataset_of(config: DatasetConfig, table: Table, sentences: Iterable[tuple[str, Sentence]]) -> Dataset:
    """sentences: with their item_id."""
    kept = list(sentences)
    if not kept:
        raise InputError(f"{table.path} has no sentence with a word in it")
    texts = [sentence for _, sentence in kept]
    text = Side("text", [item for item, _ in kept], texts.__getitem__, language=config.language)
    return Dataset(config=config, revision=table.revision(), text=text)


def sentences_of(table: Table, words: str, tags: str | None) -> Iterator[tuple[str, Sentence]]:
    """(row from 0 as a string, sentence) of each sentence that has words."""
    for name in filter(None, (words, tags)):
        if name not in table.names:
            hint = did_you_mean(name, table.names) or f"; it has {', '.join(table.names)}"
            raise InputError(f"{table.path} has no column {name!r}{hint}")
    lines = table.values(words)
    marks = table.values(tags) if tags else [None] * len(lines)
    for row, (line, mark) in enumerate(zip(lines, marks, strict=True)):
        split = _strings(line, table, words, row)
        if mark is None:
            kept, kinds = split, None
        else:
            kinds = _strings(mark, table, tags or "", row)
            if len(kinds) != len(split):
                raise InputError(f"row {row + 1} of {table.path} has {len(split)} words but {len(kinds)} tags")
            there = [k for k, kind in enumerate(kinds) if kind != TRACE]
            kept, kinds = [split[k] for k in there], [kinds[k] for k in there]
        if kept:
            yield str(row), Sentence(kept, kinds)


def _strings(cell: Any, table: Table, name: str, row: int) -> Sequence[str]:
    """The words of a cell: a list, or text with spaces between them."""
    if isinstance(cell, str):
        cell = cell.split()
    if not isinstance(cell, list) or not all(
        isinstance(each, str) and each.strip() and is_unicode(each) for each in cell
    ):
        raise InputError(
            f"row {row + 1} of column {name!r} in {table.path} is no list of words that are not empty, and no text"
        )
    return cell


datasets.add(
    "corpus", DatasetEntry(CorpusConfig, load, "sentences in words, with tags if there are any: your table or text")
)


# --- those at hand


class SharedCorpusConfig(OneSplit, WithoutClasses):
    """path: the parquet file; default: in $CLIP_GEOMETRY_DATA/text. split: "all"."""

    path: Path | None = None


class TreebankConfig(SharedCorpusConfig):
    """The sample of the Penn Treebank that NLTK has: 3914 sentences of the Wall Street Journal."""

    name: str = "treebank"


class BrownConfig(SharedCorpusConfig):
    """The Brown corpus (Francis and Kučera 1964), tagged."""

    name: str = "brown"


FILES = {"treebank": "treebank_sample.parquet", "brown": "brown.parquet"}


def load_shared(config: SharedCorpusConfig) -> Dataset:
    path, file = config.path, FILES[config.name]
    if path is None:
        shared = os.environ.get("CLIP_GEOMETRY_DATA")
        if not shared:
            raise InputError(
                f"the corpus {config.name} needs its file: set CLIP_GEOMETRY_DATA to a folder with text/{file}, or "
                "give the file with path=…"
            )
        path = Path(shared).expanduser() / "text" / file
    return corpus_of(config, read_table(path), "tokens", "tags")


datasets.add("treebank", DatasetEntry(TreebankConfig, load_shared, "sentences of the Penn Treebank's sample, tagged"))
datasets.add("brown", DatasetEntry(BrownConfig, load_shared, "the Brown corpus, tagged"))
