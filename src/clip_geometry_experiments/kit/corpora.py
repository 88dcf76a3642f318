"""Corpora as data sets of sentences whose words may have part-of-speech tags.

They come from the user's own files, from files in $CLIP_GEOMETRY_DATA, or from the Hugging Face hub.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from clip_geometry.config import digest
from clip_geometry.data import base
from clip_geometry.data.base import words_of
from clip_geometry.data.tables import SUFFIXES, Table, read_lines, read_table
from clip_geometry.io.reading import first_line, is_not_fetched
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, did_you_mean

TEXTS = (".txt", ".tokens")
CHUNK = 1000  # sentences per call of the tokenizer
UNLIMITED = 10**9  # sub-words
TRACE = "-NONE-"  # tag of the empty elements of a treebank, which stand for no spoken word
WORD_COLUMNS, TAG_COLUMNS = ("tokens", "words", "sentence", "text"), ("tags", "pos_tags", "pos")


class Sentence(str):
    """Words joined by spaces: an ordinary string with the attributes `words` and `tags`.

    Args:
        words: The words of the sentence.
        tags: The part of speech of each word, "" if it is unknown. Default: "" for all words.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]

    def __new__(cls, words: Sequence[str], tags: Sequence[str] | None = None) -> "Sentence":
        sentence = super().__new__(cls, " ".join(words))
        sentence.words = tuple(words)
        sentence.tags = ("",) * len(words) if tags is None else tuple(tags)
        return sentence

    def __reduce__(self) -> tuple[type["Sentence"], tuple[tuple[str, ...], tuple[str, ...]]]:
        """Pickle the words and tags, because the method of str would pass the text as the words."""
        return Sentence, (self.words, self.tags)


def tags_of(text: str) -> tuple[str, ...]:
    """Return one tag for each word of `words_of(text)`; the tags are "" if the text is an ordinary string."""
    return text.tags if isinstance(text, Sentence) else ("",) * len(words_of(text))


class InWindows(base.WithoutClasses):
    """Options of a corpus that is read as sentences, or as running text in windows that fill a model's context.

    Attributes:
        window: Length of a window in sub-words, special tokens included. Default: no windows, so each item is a
            sentence. Windows run across sentences but never split a word, so a window may be a few sub-words short. The
            last window holds the remaining words.
        tokenizer: The model whose sub-words are counted: a model name as in `hidden-states:NAME`, without that prefix.
    """

    window: int | None = Field(default=None, ge=8)
    tokenizer: str | None = None

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.window is None) != (self.tokenizer is None):
            raise ValueError("one of window and tokenizer is missing; expected both or neither")
        return self


class CorpusConfig(base.FilesConfig, InWindows):
    """Options of a corpus of the user's own. Words with the tag -NONE- and sentences without words are left out.

    Attributes:
        path: A table (.parquet, .jsonl, …) with one sentence per row, or a text file (.txt, .tokens) with one per line.
        words: The column with the words of a sentence, as a list or as text with spaces between words. Default: the
            first of WORD_COLUMNS that the table has.
        tags: The column with a tag for each word. Default: the first of TAG_COLUMNS that the table has.
    """

    name: str = "corpus"
    words: str | None = None
    tags: str | None = None


def load(config: CorpusConfig) -> base.Dataset:
    """Load a corpus of the user's own."""
    path = existing_file(config.path, f"a corpus ({' '.join((*SUFFIXES, *TEXTS))})")
    is_text = path.suffix.lower() in TEXTS
    table = Table(path, ("sentence",), lambda _: read_lines(path)) if is_text else read_table(path)
    words = config.words or next((name for name in WORD_COLUMNS if name in table.names), None)
    if words is None:
        raise InputError(
            f"{path} has no column {' or '.join(WORD_COLUMNS)}; name one of {', '.join(table.names)} with words=…"
        )
    tags = config.tags or next((name for name in TAG_COLUMNS if name in table.names), None)
    return dataset_of(config, table, sentences_of(table, words, tags))


def dataset_of(config: InWindows, table: Table, sentences: Iterable[tuple[str, Sentence]]) -> base.Dataset:
    """Return a data set whose text side holds sentences, or windows if the config has a window.

    Args:
        config: Options of the corpus.
        table: The table that the sentences come from.
        sentences: (item_id, sentence) pairs.

    Raises:
        InputError: If there are no sentences.
    """
    items = list(sentences)
    revision = table.revision()
    if not items:
        raise InputError(f"{table.path} has no sentence with a word in it")
    if config.window is not None and config.tokenizer is not None:
        from clip_geometry_experiments.kit.hidden_states import tokenizer_of

        tokenizer, tokenizer_digest = tokenizer_of(config.tokenizer)
        items = list(windows(items, tokenizer, config.window))
        revision = digest({"table": revision, "by": tokenizer_digest})
    texts = [sentence for _, sentence in items]
    text = base.Side("text", [item_id for item_id, _ in items], texts.__getitem__, language=config.language)
    return base.Dataset(config=config, revision=revision, text=text)


def windows(sentences: Sequence[tuple[str, Sentence]], tokenizer: Any, size: int) -> Iterator[tuple[str, Sentence]]:
    """Yield (item_id, window) pairs, where a window holds as many consecutive words as fit into `size` sub-words.

    The item_id is that of the first word's sentence and the number of the word in that sentence, such as 7:0.

    Args:
        sentences: (item_id, sentence) pairs.
        tokenizer: The tokenizer that counts sub-words.
        size: Sub-words per window, special tokens included.

    Raises:
        InputError: If `size` exceeds the context of the tokenizer's model.
    """
    from clip_geometry_experiments.kit.hidden_states import in_sub_words

    if size > tokenizer.model_max_length:
        raise InputError(f"window is {size}, but the tokenizer's model reads {tokenizer.model_max_length} sub-words")
    names = [f"{item}:{k}" for item, sentence in sentences for k in range(len(sentence.words))]
    words = [word for _, sentence in sentences for word in sentence.words]
    tags = [tag for _, sentence in sentences for tag in sentence.tags]
    counts = [0]  # number of sub-words of each word, after a leading 0
    for start in range(0, len(sentences), CHUNK):
        chunk = [sentence for _, sentence in sentences[start : start + CHUNK]]
        for text in in_sub_words(tokenizer, chunk, UNLIMITED):
            counts.extend(np.bincount(text.word[text.word >= 0], minlength=len(text.words)).tolist())
    totals = np.cumsum(counts)  # number of sub-words before each word
    room = size - tokenizer.num_special_tokens_to_add()
    start = 0
    while start < len(words):
        stop = max(start + 1, int(np.searchsorted(totals, totals[start] + room, side="right")) - 1)
        # the first word of a text may be divided into other sub-words than in the middle of a sentence
        while stop > start + 1 and len(tokenizer(" ".join(words[start:stop]), verbose=False)["input_ids"]) > size:
            stop -= 1
        yield names[start], Sentence(words[start:stop], tags[start:stop])
        start = stop


def sentences_of(table: Table, words: str, tags: str | None) -> Iterator[tuple[str, Sentence]]:
    """Yield (row number from 0 as a string, sentence) for each sentence that has words.

    Args:
        table: The table.
        words: The column of the words.
        tags: The column of the tags; None for no tags.

    Raises:
        InputError: If a column is missing, a cell is not a list of words, or a sentence has fewer or more tags than
            words.
    """
    for name in filter(None, (words, tags)):
        if name not in table.names:
            hint = did_you_mean(name, table.names) or f"; it has {', '.join(table.names)}"
            raise InputError(f"{table.path} has no column {name!r}{hint}")
    word_cells = table.values(words)
    tag_cells = table.values(tags) if tags else [None] * len(word_cells)
    for row, (word_cell, tag_cell) in enumerate(zip(word_cells, tag_cells, strict=True)):
        sentence = _strings(word_cell, table, words, row)
        marks = None
        if tag_cell is not None:
            marks = _strings(tag_cell, table, tags or "", row)
            if len(marks) != len(sentence):
                raise InputError(f"row {row + 1} of {table.path} has {len(sentence)} words but {len(marks)} tags")
            spoken = [k for k, mark in enumerate(marks) if mark != TRACE]
            sentence = [sentence[k] for k in spoken]
            marks = [marks[k] for k in spoken]
        if sentence:
            yield str(row), Sentence(sentence, marks)


def _strings(cell: Any, table: Table, name: str, row: int) -> Sequence[str]:
    """Return the words of a cell, which holds a list or text with spaces between words."""
    if isinstance(cell, str):
        cell = cell.split()
    if not isinstance(cell, list) or not all(
        isinstance(word, str) and word.strip() and base.is_unicode(word) for word in cell
    ):
        raise InputError(
            f"row {row + 1} of column {name!r} in {table.path} is neither a list of words that are not empty nor text"
        )
    return cell


base.datasets.add("corpus", base.DatasetEntry(CorpusConfig, load))


class SharedCorpusConfig(base.KnownSplits, InWindows):
    """Options of a corpus that is a parquet file.

    Attributes:
        path: The file. Default: FILE in $CLIP_GEOMETRY_DATA/text.
        split: "all", the only split.
    """

    SPLITS = ("all",)
    FILE: ClassVar[str]
    split: str = "all"
    path: Path | None = None


class TreebankConfig(SharedCorpusConfig):
    """Options of NLTK's sample of the Penn Treebank: 3,914 sentences of the Wall Street Journal."""

    FILE = "treebank_sample.parquet"
    name: str = "treebank"


class BrownConfig(SharedCorpusConfig):
    """Options of the Brown corpus (Francis and Kučera 1964), with part-of-speech tags."""

    FILE = "brown.parquet"
    name: str = "brown"


def shared_file(name: str) -> Path | None:
    """Return the path of a file in $CLIP_GEOMETRY_DATA, or None if it is not there."""
    shared = os.environ.get("CLIP_GEOMETRY_DATA")
    file = Path(shared or "").expanduser() / name
    return file if shared and file.is_file() else None


def load_shared(config: SharedCorpusConfig) -> base.Dataset:
    """Load a corpus from its parquet file."""
    path = config.path or shared_file(f"text/{config.FILE}")
    if path is None:
        raise InputError(
            f"the corpus {config.name} needs its file: set CLIP_GEOMETRY_DATA to a folder with text/{config.FILE}, or "
            "give the file with path=…"
        )
    table = read_table(path)
    return dataset_of(config, table, sentences_of(table, "tokens", "tags"))


base.datasets.add("treebank", base.DatasetEntry(TreebankConfig, load_shared))
base.datasets.add("brown", base.DatasetEntry(BrownConfig, load_shared))


class HubCorpusConfig(base.KnownSplits, InWindows):
    """Options of a corpus on the Hugging Face hub, which has one parquet file per split and one line of text per row.

    Attributes:
        REPOSITORY, REVISION, FILE, COLUMN: Where the text is; braces in FILE stand for the split.
        path: A file with the text of the split, which is read instead of a download.
        split: One of SPLITS.
    """

    SPLITS = ("train", "validation", "test")
    REPOSITORY: ClassVar[str]
    REVISION: ClassVar[str]
    FILE: ClassVar[str]
    COLUMN: ClassVar[str]
    path: Path | None = None

    def divide(self, row: str, line: Sentence) -> Iterator[tuple[str, Sentence]]:
        """Yield the (item_id, sentence) pairs of a line."""
        yield row, line


class PTBConfig(HubCorpusConfig):
    """Options of the Penn Treebank as prepared by Mikolov: lowercase, with rare words as <unk> and numbers as N."""

    REPOSITORY, REVISION = "ptb-text-only/ptb_text_only", "refs/convert/parquet"
    FILE, COLUMN = "penn_treebank/{}/0000.parquet", "sentence"
    name: str = "ptb"


class WikiText2Config(HubCorpusConfig):
    """Options of WikiText-2 (Merity et al. 2016), in the version with all words.

    Paragraphs are split into sentences after the words ".", "?" and "!". Headings are left out. The item_id is the
    number of the row and of the sentence in it, such as 7.0 or 7.1.
    """

    REPOSITORY, REVISION = "Salesforce/wikitext", "main"
    FILE, COLUMN = "wikitext-2-raw-v1/{}-00000-of-00001.parquet", "text"
    name: str = "wikitext2"

    def divide(self, row: str, line: Sentence) -> Iterator[tuple[str, Sentence]]:
        """Yield the (item_id, sentence) pairs of a line; a heading yields none."""
        if line.words[0] == line.words[-1] == "=":  # a heading
            return
        start = number = 0
        for place, word in enumerate(line.words, start=1):
            if word in (".", "?", "!") or place == len(line.words):
                yield f"{row}.{number}", Sentence(line.words[start:place])
                start = place
                number = number + 1


@contextmanager
def fetching(what: str, instead: str) -> Iterator[None]:
    """Turn errors of the Hugging Face hub's client into one InputError: no network, no such file, or not in the cache.

    Args:
        what: What is fetched, for the message.
        instead: What the user can do instead, for the message.
    """
    try:
        yield
    except Exception as error:
        if not (is_not_fetched(error) or isinstance(error, ImportError | ValueError)):
            raise
        why = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"{what} could not be fetched from huggingface.co ({why}); {instead}") from None


def load_from_hub(config: HubCorpusConfig) -> base.Dataset:
    """Load a corpus from the Hugging Face hub, or from the file at `path` if it is given."""
    from huggingface_hub import hf_hub_download

    if config.path is not None:
        path = existing_file(config.path, f"a table ({' '.join(SUFFIXES)}) with the column {config.COLUMN!r}")
    else:
        file = config.FILE.format(config.split)
        instead = f"download {file} of {config.REPOSITORY} elsewhere and give it with path=…"
        with fetching(f"{config.name}, split {config.split},", instead):
            path = Path(hf_hub_download(config.REPOSITORY, file, repo_type="dataset", revision=config.REVISION))
    table = read_table(path)
    lines = sentences_of(table, config.COLUMN, None)
    return dataset_of(config, table, (part for row, line in lines for part in config.divide(row, line)))


base.datasets.add("ptb", base.DatasetEntry(PTBConfig, load_from_hub))
base.datasets.add("wikitext2", base.DatasetEntry(WikiText2Config, load_from_hub))
