"""Word vectors from a file. A "text" is one word, which is looked up exactly as written, including case.

An index of the words is kept in memory; the vectors stay in the file until they are needed. Three million words with
300 columns take 3.6 GB, of which an experiment needs a few thousand rows.
"""

import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clip_geometry.config import digest
from clip_geometry.data import path_of
from clip_geometry.encoders.base import Encoder, EncoderConfig, EncoderEntry, Tokens, encoders
from clip_geometry.encoders.runtime import DTYPES
from clip_geometry.files import sha256_of
from clip_geometry.io.reading import parsed_number, read_json, read_npy
from clip_geometry.paths import existing_file
from clip_geometry.registry import InputError, shown

VECTORS = "a file of word vectors"


@dataclass(frozen=True)
class WordVectors:
    """Word vectors that are read on demand.

    Attributes:
        index: Word → its position in the file.
        dim: Dimension of the vectors.
        rows: Function that takes positions and returns their vectors, (n, dim) float32.
    """

    index: dict[str, int]
    dim: int
    rows: Callable[[Sequence[int]], np.ndarray]


def find_files(path: Path) -> list[Path]:
    """Return the file of vectors and, for .npy, the list of words beside it.

    Raises:
        InputError: If a file is missing or compressed.
    """
    path = existing_file(path, VECTORS)
    if path.suffix in (".gz", ".zip", ".xz", ".bz2"):
        raise InputError(f"{shown(path)} is compressed; unpack it, so that single rows can be read")
    return [path, existing_file(path.with_suffix(".json"), "a list of its words")] if path.suffix == ".npy" else [path]


def read_words(files: Sequence[Path]) -> WordVectors:
    """Read the index of the files of `find_files`, and return it with a reader of the vectors."""
    path = files[0]
    if path.suffix != ".npy":
        return _read_binary(path) if path.suffix == ".bin" else _read_text(path)
    array = read_npy(path, what=VECTORS)
    words = read_json(files[1], "a list of words", list[str])
    if array.ndim != 2 or array.dtype.kind != "f" or len(array) != len(words):
        raise InputError(
            f"{shown(path)} holds {array.dtype} of shape {array.shape}; expected one row of floating-point numbers for "
            f"each of the {len(words)} words in {files[1].name}"
        )
    return WordVectors(_first_positions(words), array.shape[1], lambda places: array[list(places)].astype(np.float32))


def _first_positions(words: Sequence[str]) -> dict[str, int]:
    """Return word → position. For a word that appears twice, the first position counts, as in gensim."""
    index: dict[str, int] = {}
    for position, word in enumerate(words):
        index.setdefault(word, position)
    return index


# --- binary word2vec: "words dim\n", then for each word its bytes, a space, dim float32 and perhaps a newline


def _read_binary(path: Path) -> WordVectors:
    """Read a word2vec .bin file; vectors are read from the mapped file only when they are requested."""
    data = _mapped(path)
    header = _header(data[: data.find(b"\n") + 1])
    if header is None:
        raise InputError(
            f"{shown(path)} does not begin with the number of its words and columns; expected a word2vec .bin file"
        )
    count, dim = header
    words, starts = [], []
    position = data.find(b"\n") + 1
    for place in range(count):
        space = data.find(b" ", position)
        if space < 0 or space + 1 + 4 * dim > len(data):
            raise InputError(f"{shown(path)} ends after {place} of the {count} words that it announces")
        words.append(_decoded(data[position:space].lstrip(b"\n")))
        starts.append(space + 1)
        position = space + 1 + 4 * dim

    def rows(places: Sequence[int]) -> np.ndarray:
        vectors = [np.frombuffer(data, "<f4", dim, starts[place]) for place in places]
        return np.array(vectors, np.float32).reshape(-1, dim)

    return WordVectors(_first_positions(words), dim, rows)


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _decoded(word: bytes) -> str:
    """Decode a word. Every large file has some invalid UTF-8; it becomes a word that is equal to no text."""
    return word.decode("utf-8", errors="surrogateescape")


def _header(line: bytes) -> tuple[int, int] | None:
    """Return the numbers of words and columns in the first line; None if it is not such a header."""
    parts = line.split()
    if len(parts) != 2 or not all(part.isdigit() and len(part) < 16 for part in parts) or not int(parts[1]):
        return None
    return int(parts[0]), int(parts[1])


# --- text: one word and its numbers per line; word2vec begins with "words dim", GloVe with the first word


def _read_text(path: Path) -> WordVectors:
    """Read a text file of word vectors; vectors are parsed from the mapped file only when they are requested."""
    data = _mapped(path)
    first = data.readline()
    header = _header(first)
    dim = header[1] if header else len(first.split()) - 1
    if dim < 1:
        raise InputError(f"{shown(path)} is not a text of word vectors: its first line is {_decoded(first[:40])!r}")
    data.seek(len(first) if header else 0)
    words, starts = [], []
    number = 1 if header else 0
    while line := data.readline():
        start = data.tell() - len(line)
        line = line.rstrip().replace(b"\t", b" ")  # same length: positions stay valid
        if not line:
            continue
        number += 1
        # counting spaces is much faster than splitting; a word may itself contain spaces, such as ". . ." in GloVe
        spaces = line.count(b" ")
        cut = 0
        if spaces == dim:
            cut = line.find(b" ")
        elif spaces > dim:
            cut = len(line.rsplit(b" ", dim)[0])
        if cut < 1:
            raise InputError(
                f"{shown(path)}, line {number}, is not a word and {dim} numbers (binary files end in .bin)"
            )
        words.append(_decoded(line[:cut]))
        starts.append(start + cut + 1)
    if header and len(words) != header[0]:
        raise InputError(f"{shown(path)} announces {header[0]} words, but holds {len(words)}")

    def row(place: int) -> list[float]:
        data.seek(starts[place])
        fields = data.readline().split()
        try:
            numbers = [parsed_number(field) for field in fields]
        except ValueError:
            numbers = []
        if len(numbers) != dim:
            raise InputError(f"{shown(path)}: {_decoded(b' '.join(fields[:3]))} … are not {dim} numbers")
        return numbers

    def rows(places: Sequence[int]) -> np.ndarray:
        return np.array([row(place) for place in places], np.float32).reshape(-1, dim)

    return WordVectors(_first_positions(words), dim, rows)


# --- the encoder


class WordsConfig(EncoderConfig):
    """words:PATH: word vectors: word2vec (text, .bin), GloVe, .npy with a list of words beside it.

    PATH is NAME.npy with the words in NAME.json, a word2vec .bin file, or a text file in the word2vec or GloVe format.
    ~ and $VARIABLE in PATH are expanded. There is no projection, so features=pooled gives the same rows.
    """


def find(config: EncoderConfig) -> list[Path]:
    """Return the file of vectors and, for .npy, the file of words."""
    return find_files(path_of(config.name))


def revision(config: EncoderConfig) -> str:
    """Return a hash of the files."""
    return digest([sha256_of(path) for path in find(config)])


def load(config: EncoderConfig, device: torch.device) -> "WordEncoder":
    """Load the encoder of a file of word vectors."""
    files = find(config)
    return WordEncoder(config, read_words(files), {"name": files[0].name, "sha256": sha256_of(files[0])}, device)


class WordEncoder(Encoder):
    """An encoder that looks words up. An unknown word is an error, because a zero row would be a plausible point."""

    modalities = frozenset({"text"})

    def __init__(self, config: EncoderConfig, words: WordVectors, weights: Mapping[str, Any], device: torch.device):
        self.config = config
        self.device = device
        self.words = words
        self._weights = weights

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        unknown = [text for text in texts if text not in self.words.index]
        if unknown:
            first = ", ".join(map(repr, unknown[:5]))
            raise InputError(
                f"{len(unknown)} of {len(texts)} words have no vector in {self._weights['name']}: {first}"
                f"{', …' if len(unknown) > 5 else ''}; leave them out or write them as the file does, because words "
                "are looked up exactly, including case"
            )
        return Tokens(torch.tensor([self.words.index[text] for text in texts], dtype=torch.long), truncated=0)

    def text_features(self, tokens: Tokens) -> Tensor:
        rows = torch.from_numpy(self.words.rows(tokens.inputs.tolist()))
        return rows.to(DTYPES[self.config.precision]).float()

    def describe(self) -> dict[str, Any]:
        return {
            "weights": dict(self._weights),
            "dim": {"text": self.words.dim},
            "parameters": len(self.words.index) * self.words.dim,
            "activation": "",
            "preprocessing": None,
            "tokenizer": "a text is one word, looked up exactly",
            "context_length": None,
            "logit_scale": None,
            "logit_bias": None,
        }


encoders.add("words", EncoderEntry(WordsConfig, load, revision, find))
