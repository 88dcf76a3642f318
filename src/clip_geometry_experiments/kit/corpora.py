"""Corpora: sentences as words, with their parts of speech if known; the user's own, shared ones, and the hub's."""

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
CHUNK = 1000  # sentences that are tokenized at a time
UNLIMITED = 10**9  # sub-words
TRACE = "-NONE-"  # the tag of what a treebank adds where nothing is said
WORD_COLUMNS, TAG_COLUMNS = ("tokens", "words", "sentence", "text"), ("tags", "pos_tags", "pos")


class Sentence(str):
    """Words joined by spaces: an ordinary string with the attributes `words` and `tags`.

    tags: The part of speech of each word, "" if unknown.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]

    def __new__(cls, words: Sequence[str], tags: Sequence[str] | None = None) -> "Sentence":
        sentence = super().__new__(cls, " ".join(words))
        sentence.words = tuple(words)
        sentence.tags = ("",) * len(words) if tags is None else tuple(tags)
        return sentence

    def __reduce__(self) -> tuple[type["Sentence"], tuple[tuple[str, ...], tuple[str, ...]]]:
        """For other processes: str's own method would pass the text as the words."""
        return Sentence, (self.words, self.tags)


def tags_of(text: str) -> tuple[str, ...]:
    """Return one tag for each of `words_of`."""
    return text.tags if isinstance(text, Sentence) else ("",) * len(words_of(text))


class InWindows(base.WithoutClasses):
    """A corpus, as sentences, or as running text in windows that fill a model's context.

    Attributes:
        window: Sub-words of a window, special tokens included; default: an item is a sentence. Windows run across
            sentences and divide no word, and so may be a few sub-words short; the last has what remains.
        tokenizer: The model whose sub-words are counted: a name that `hidden-states:` reads, without that prefix.
    """

    window: int | None = Field(default=None, ge=8)
    tokenizer: str | None = None

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.window is None) != (self.tokenizer is None):
            raise ValueError("window and tokenizer belong together, and one of them is missing")
        return self


class CorpusConfig(base.FilesConfig, InWindows):
    """A corpus of the user's own. Words with the tag -NONE- are left out, and so are sentences without words.

    Attributes:
        path: A table (.parquet, .jsonl, …) with a sentence per row, or a text file (.txt, .tokens) with one per line.
        words: The column with the list of a sentence's words, or with text that spaces divide into them; default: the
            first of WORD_COLUMNS that the table has.
        tags: The column with a tag for each word; default: the first of TAG_COLUMNS that the table has.
    """

    name: str = "corpus"
    words: str | None = None
    tags: str | None = None


def load(config: CorpusConfig) -> base.Dataset:
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
    """Return a data set with a text side of (item_id, sentence or window)."""
    kept, revision = list(sentences), table.revision()
    if not kept:
        raise InputError(f"{table.path} has no sentence with a word in it")
    if config.window is not None and config.tokenizer is not None:
        from clip_geometry_experiments.kit.hidden_states import tokenizer_of

        tokenizer, digested = tokenizer_of(config.tokenizer)
        kept, revision = list(windows(kept, tokenizer, config.window)), digest({"table": revision, "by": digested})
    texts = [sentence for _, sentence in kept]
    text = base.Side("text", [item for item, _ in kept], texts.__getitem__, language=config.language)
    return base.Dataset(config=config, revision=revision, text=text)


def windows(sentences: Sequence[tuple[str, Sentence]], tokenizer: Any, size: int) -> Iterator[tuple[str, Sentence]]:
    """Yield (item_id, words that follow each other): as many at a time as fit into `size` sub-words of the tokenizer.

    item_id is that of the sentence of the first word and the word's number there, such as 7:0.
    """
    from clip_geometry_experiments.kit.hidden_states.rows import in_sub_words

    if size > tokenizer.model_max_length:
        raise InputError(f"window is {size}, but the tokenizer's model reads {tokenizer.model_max_length} sub-words")
    names = [f"{item}:{k}" for item, sentence in sentences for k in range(len(sentence.words))]
    words = [word for _, sentence in sentences for word in sentence.words]
    tags = [tag for _, sentence in sentences for tag in sentence.tags]
    counts = [0]  # of sub-words up to each word
    for start in range(0, len(sentences), CHUNK):
        for text in in_sub_words(tokenizer, [each for _, each in sentences[start : start + CHUNK]], UNLIMITED):
            counts.extend(np.bincount(text.word[text.word >= 0], minlength=len(text.words)).tolist())
    reached, start = np.cumsum(counts), 0
    room = size - tokenizer.num_special_tokens_to_add()
    while start < len(words):
        stop = max(start + 1, int(np.searchsorted(reached, reached[start] + room, side="right")) - 1)
        # a word may have other sub-words where it begins the text
        while stop > start + 1 and len(tokenizer(" ".join(words[start:stop]), verbose=False)["input_ids"]) > size:
            stop -= 1
        yield names[start], Sentence(words[start:stop], tags[start:stop])
        start = stop


def sentences_of(table: Table, words: str, tags: str | None) -> Iterator[tuple[str, Sentence]]:
    """Yield (row from 0 as a string, sentence) for each sentence that has words."""
    for name in filter(None, (words, tags)):
        if name not in table.names:
            hint = did_you_mean(name, table.names) or f"; it has {', '.join(table.names)}"
            raise InputError(f"{table.path} has no column {name!r}{hint}")
    lines = table.values(words)
    marks = table.values(tags) if tags else [None] * len(lines)
    for row, (line, mark) in enumerate(zip(lines, marks, strict=True)):
        kept, kinds = _strings(line, table, words, row), None
        if mark is not None:
            kinds = _strings(mark, table, tags or "", row)
            if len(kinds) != len(kept):
                raise InputError(f"row {row + 1} of {table.path} has {len(kept)} words but {len(kinds)} tags")
            there = [k for k, kind in enumerate(kinds) if kind != TRACE]
            kept, kinds = [kept[k] for k in there], [kinds[k] for k in there]
        if kept:
            yield str(row), Sentence(kept, kinds)


def _strings(cell: Any, table: Table, name: str, row: int) -> Sequence[str]:
    """Return the words of a cell: a list, or text with spaces between them."""
    if isinstance(cell, str):
        cell = cell.split()
    if not isinstance(cell, list) or not all(
        isinstance(each, str) and each.strip() and base.is_unicode(each) for each in cell
    ):
        raise InputError(
            f"row {row + 1} of column {name!r} in {table.path} is no list of words that are not empty, and no text"
        )
    return cell


base.datasets.add("corpus", base.DatasetEntry(CorpusConfig, load))


class SharedCorpusConfig(base.KnownSplits, InWindows):
    """A corpus whose parquet file is at `path`; default: FILE in $CLIP_GEOMETRY_DATA/text. split: "all"."""

    SPLITS = ("all",)
    FILE: ClassVar[str]
    split: str = "all"
    path: Path | None = None


class TreebankConfig(SharedCorpusConfig):
    """NLTK's sample of the Penn Treebank: 3,914 sentences of the Wall Street Journal."""

    FILE = "treebank_sample.parquet"
    name: str = "treebank"


class BrownConfig(SharedCorpusConfig):
    """The Brown corpus (Francis and Kučera 1964), tagged."""

    FILE = "brown.parquet"
    name: str = "brown"


def shared_file(name: str) -> Path | None:
    """A file of $CLIP_GEOMETRY_DATA, None if it is not there."""
    shared = os.environ.get("CLIP_GEOMETRY_DATA")
    file = Path(shared or "").expanduser() / name
    return file if shared and file.is_file() else None


def load_shared(config: SharedCorpusConfig) -> base.Dataset:
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
    """A corpus of the Hugging Face hub: one parquet file per split, with a line of text per row.

    Attributes:
        REPOSITORY, REVISION, FILE, COLUMN: Where the text is; braces in FILE stand for the split.
        path: A file with the text of the split, instead of fetching it.
        split: One of SPLITS.
    """

    SPLITS = ("train", "validation", "test")
    REPOSITORY: ClassVar[str]
    REVISION: ClassVar[str]
    FILE: ClassVar[str]
    COLUMN: ClassVar[str]
    path: Path | None = None

    def divide(self, row: str, line: Sentence) -> Iterator[tuple[str, Sentence]]:
        """Yield (item_id, sentence) of a line."""
        yield row, line


class PTBConfig(HubCorpusConfig):
    """The Penn Treebank as Mikolov prepared it: lowercased, rare words as <unk>, numbers as N."""

    REPOSITORY, REVISION = "ptb-text-only/ptb_text_only", "refs/convert/parquet"
    FILE, COLUMN = "penn_treebank/{}/0000.parquet", "sentence"
    name: str = "ptb"


class WikiText2Config(HubCorpusConfig):
    """WikiText-2 (Merity et al. 2016), the version with all words.

    Paragraphs are split after words that are a full stop, question mark or exclamation mark; headings are left out.
    item_id is the row and the number of the sentence, such as 7.0, 7.1.
    """

    REPOSITORY, REVISION = "Salesforce/wikitext", "main"
    FILE, COLUMN = "wikitext-2-raw-v1/{}-00000-of-00001.parquet", "text"
    name: str = "wikitext2"

    def divide(self, row: str, line: Sentence) -> Iterator[tuple[str, Sentence]]:
        if line.words[0] == line.words[-1] == "=":  # a heading
            return
        start = number = 0
        for place, word in enumerate(line.words, start=1):
            if word in (".", "?", "!") or place == len(line.words):
                yield f"{row}.{number}", Sentence(line.words[start:place])
                start, number = place, number + 1


@contextmanager
def fetching(what: str, instead: str) -> Iterator[None]:
    """One sentence for what a client of the Hugging Face hub raises: no network, no such file, not in the cache."""
    try:
        yield
    except Exception as error:
        if not (is_not_fetched(error) or isinstance(error, ImportError | ValueError)):
            raise
        why = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"{what} could not be fetched from huggingface.co ({why}); {instead}") from None


def load_from_hub(config: HubCorpusConfig) -> base.Dataset:
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
