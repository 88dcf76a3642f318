"""Corpora from the Hugging Face hub: one parquet file a split, with a line of text a row."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from clip_geometry.data.base import Dataset, DatasetEntry, datasets
from clip_geometry.data.corpus import dataset_of, sentences_of
from clip_geometry.data.corpus_words import Sentence
from clip_geometry.data.tables import SUFFIXES, Table, read_table
from clip_geometry.data.traits import KnownSplits, WithoutClasses
from clip_geometry.paths import existing_file
from clip_geometry.reading import first_line
from clip_geometry.registry import InputError


class HubCorpusConfig(KnownSplits, WithoutClasses):
    """path: a file with the split's text, in place of the one that is fetched. split: one of SPLITS."""

    SPLITS = ("train", "validation", "test")
    path: Path | None = None


class PTBConfig(HubCorpusConfig):
    """The Penn Treebank as Mikolov prepared it: lower-cased, rare words as <unk>, numbers as N."""

    name: str = "ptb"


class WikiText2Config(HubCorpusConfig):
    """WikiText-2 (Merity et al. 2016), the version with all words. Paragraphs are cut behind words that are a full
    stop, question mark or exclamation mark; headings are left out. item_id: row and number, such as 7.0, 7.1."""

    name: str = "wikitext2"


@dataclass(frozen=True)
class HubFile:
    """Where a split lies; braces in `file` stand for its name. column: of the text. divide: a row into sentences."""

    repository: str
    file: str
    column: str
    revision: str
    divide: Callable[[str, Sentence], Iterable[tuple[str, Sentence]]]


def load(source: HubFile, config: HubCorpusConfig) -> Dataset:
    table = _table(source, config)
    lines = sentences_of(table, source.column, None)
    return dataset_of(config, table, (part for row, line in lines for part in source.divide(row, line)))


def _table(source: HubFile, config: HubCorpusConfig) -> Table:
    if config.path is not None:
        return read_table(
            existing_file(config.path, f"a table ({' '.join(SUFFIXES)}) with the column {source.column!r}")
        )
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    file = source.file.format(config.split)
    try:
        path = hf_hub_download(source.repository, file, repo_type="dataset", revision=source.revision)
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise InputError(
            f"{config.name}, split {config.split}, could not be fetched from huggingface.co and is not in its cache "
            f"({type(error).__name__}: {first_line(error)}); download {file} of {source.repository} elsewhere and give "
            "it with path=…"
        ) from None
    return read_table(Path(path))


def whole(row: str, line: Sentence) -> Iterator[tuple[str, Sentence]]:
    yield row, line


def paragraph(row: str, line: Sentence) -> Iterator[tuple[str, Sentence]]:
    """The sentences of a paragraph; none of a heading, which stands between signs of equality."""
    if line.words[0] == line.words[-1] == "=":
        return
    start = number = 0
    for place, word in enumerate(line.words, start=1):
        if word in (".", "?", "!") or place == len(line.words):
            yield f"{row}.{number}", Sentence(line.words[start:place])
            start, number = place, number + 1


PTB = HubFile("ptb-text-only/ptb_text_only", "penn_treebank/{}/0000.parquet", "sentence", "refs/convert/parquet", whole)
WIKITEXT2 = HubFile("Salesforce/wikitext", "wikitext-2-raw-v1/{}-00000-of-00001.parquet", "text", "main", paragraph)

datasets.add("ptb", DatasetEntry(PTBConfig, partial(load, PTB), "the Penn Treebank of language models, from the hub"))
datasets.add(
    "wikitext2", DatasetEntry(WikiText2Config, partial(load, WIKITEXT2), "WikiText-2 in sentences, from the hub")
)
