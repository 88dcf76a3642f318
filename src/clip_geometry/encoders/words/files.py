"""Files of word vectors: an index of the words is kept, the vectors stay in the file until they are asked for.

Three million words of 300 columns are 3.6 GB, of which an experiment wants a few thousand rows.
"""

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clip_geometry.paths import existing_file
from clip_geometry.reading import read_json, read_npy, read_text
from clip_geometry.registry import InputError, shown

VECTORS = "a file of word vectors"
LISTS = (".json", ".txt")


@dataclass(frozen=True)
class WordVectors:
    """index: word → its place. rows: places → their vectors, (n, dim) float32."""

    index: dict[str, int]
    dim: int
    rows: Callable[[Sequence[int]], np.ndarray]


def find_files(path: Path) -> list[Path]:
    """The file of vectors and, for .npy, the list of words beside it."""
    path = existing_file(path, VECTORS)
    if path.suffix in (".gz", ".zip", ".xz", ".bz2"):
        raise InputError(f"{shown(path)} is compressed; unpack it, so that single rows can be read")
    if path.suffix != ".npy":
        return [path]
    beside = [path.with_suffix(suffix) for suffix in LISTS if path.with_suffix(suffix).is_file()]
    if not beside:
        raise InputError(
            f"{shown(path)} has no list of its words beside it: {path.stem}.json or {path.stem}.txt was expected"
        )
    return [path, beside[0]]


def read_words(files: Sequence[Path]) -> WordVectors:
    path = files[0]
    if path.suffix == ".npy":
        return _read_array(path, files[1])
    return _read_binary(path) if path.suffix == ".bin" else _read_text(path)


def _first_places(words: Sequence[str]) -> dict[str, int]:
    """A word that comes twice is found where it comes first, as in gensim."""
    index: dict[str, int] = {}
    for place, word in enumerate(words):
        index.setdefault(word, place)
    return index


# --- .npy


def _read_array(path: Path, words_path: Path) -> WordVectors:
    array = read_npy(path, what=VECTORS)
    words = _read_list(words_path)
    if array.ndim != 2 or array.dtype.kind != "f" or len(array) != len(words):
        raise InputError(
            f"{shown(path)} holds {array.dtype} of shape {array.shape}; one row of floating-point numbers for each "
            f"of the {len(words)} words in {words_path.name} was expected"
        )
    return WordVectors(_first_places(words), array.shape[1], lambda places: array[list(places)].astype(np.float32))


def _read_list(path: Path) -> list[str]:
    if path.suffix == ".json":
        return read_json(path, "a list of words", list[str])
    text = read_text(path, "a list of words")
    return text.removesuffix("\n").split("\n")  # not splitlines, which would split at rarer characters too


# --- word2vec, binary: "words dim\n", then for each word its bytes, a space, dim float32 and perhaps a newline


def _read_binary(path: Path) -> WordVectors:
    data = _mapped(path)
    header = _header(data[: data.find(b"\n") + 1])
    if header is None:
        raise InputError(
            f"{shown(path)} does not begin with the number of its words and columns, as word2vec's .bin do"
        )
    count, dim = header
    if count * (4 * dim + 1) > len(data):
        raise InputError(
            f"{shown(path)} announces {count} words of {dim} columns, more than its {len(data)} bytes hold"
        )
    words, starts = [], np.empty(count, dtype=np.int64)
    position = data.find(b"\n") + 1
    for place in range(count):
        space = data.find(b" ", position)
        if space < 0 or space + 1 + 4 * dim > len(data):
            raise InputError(f"{shown(path)} ends after {place} of the {count} words that it announces")
        words.append(_decoded(data[position:space].lstrip(b"\n")))
        starts[place] = space + 1
        position = space + 1 + 4 * dim

    def rows(places: Sequence[int]) -> np.ndarray:
        vectors = [np.frombuffer(data, "<f4", dim, int(starts[place])) for place in places]
        return np.stack(vectors).astype(np.float32) if vectors else np.empty((0, dim), np.float32)

    return WordVectors(_first_places(words), dim, rows)


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _decoded(word: bytes) -> str:
    """Bytes that are no UTF-8 (there are some in every large file) become a word that no text equals."""
    return word.decode("utf-8", errors="surrogateescape")


def _header(line: bytes) -> tuple[int, int] | None:
    parts = line.split()
    if len(parts) != 2 or not all(part.isdigit() and len(part) < 16 for part in parts) or not int(parts[1]):
        return None
    return int(parts[0]), int(parts[1])


# --- text: a word and its numbers on a line; word2vec's begins with "words dim", GloVe's with the first word


def _read_text(path: Path) -> WordVectors:
    data = _mapped(path)
    first = data.readline()
    header = _header(first)
    dim = header[1] if header else len(first.split()) - 1
    if dim < 1:
        raise InputError(f"{shown(path)} is no text of word vectors: its first line is {_decoded(first[:40])!r}")
    data.seek(len(first) if header else 0)
    words, starts = [], []
    for number, (start, line) in enumerate(_lines(data), start=2 if header else 1):
        # most words have no space, and counting is much faster than splitting
        cut = line.find(b" ") if line.count(b" ") == dim else len(line) - len(_last_fields(line, dim)) - 1
        if cut < 1:
            raise InputError(
                f"{shown(path)}, line {number}: a word and {dim} numbers were expected (binary files end in .bin)"
            )
        words.append(_decoded(line[:cut]))
        starts.append(start + cut + 1)
    if header and len(words) != header[0]:
        raise InputError(f"{shown(path)} announces {header[0]} words and holds {len(words)}")

    def rows(places: Sequence[int]) -> np.ndarray:
        return np.array([_numbers(data, starts[place], dim, path) for place in places], np.float32).reshape(-1, dim)

    return WordVectors(_first_places(words), dim, rows)


def _lines(data: mmap.mmap) -> Iterator[tuple[int, bytes]]:
    """(where it begins, the line without spaces at its end, tabs as spaces), empty lines left out."""
    while line := data.readline():
        stripped = line.rstrip().replace(b"\t", b" ")  # of the same length, so that places hold
        if stripped:
            yield data.tell() - len(line), stripped


def _last_fields(line: bytes, dim: int) -> bytes:
    """The numbers, where the word itself has spaces, as ". . ." in GloVe has; the whole line where there are fewer."""
    return b" ".join(line.rsplit(b" ", dim)[1:]) if line.count(b" ") > dim else line


def _numbers(data: mmap.mmap, start: int, dim: int, path: Path) -> list[float]:
    data.seek(start)
    fields = data.readline().split()
    try:
        numbers = [float(field) for field in fields]
    except ValueError:
        numbers = []
    if len(numbers) != dim:
        raise InputError(f"{shown(path)}: {_decoded(b' '.join(fields[:3]))} … are no {dim} numbers")
    return numbers
