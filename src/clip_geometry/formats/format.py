"""The registry of formats: how a file or folder is recognized, and what reads it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clip_geometry.embeddings import Embeddings
from clip_geometry.reading import damaged
from clip_geometry.registry import InputError, Registry

Sides = dict[str, Embeddings]  # by modality, UNNAMED where the file does not name it


@dataclass(frozen=True)
class Format:
    """A way to store embeddings.

    Its module imports the format's library when a file is read, so that registering it costs nothing.

    Args:
        title: What users call it.
        holds: What is read from where: rows, modalities, ids, labels, metadata.
        streams: How rows larger than memory are read; "" if they have to fit.
        read: Path → modality → embeddings.
        suffixes: Of its files, or of folders that are named after it, in lower case.
        recognizes: Whether a folder is one of this format, by the names in it. None: it has files only.
        package: The library that reading needs beside this package.
        limits: What is refused or left out.
        by_name: Whether a file in a folder of image.X and text.X is taken for a modality by its name.
    """

    title: str
    holds: str
    streams: str
    read: Callable[[Path], Sides]
    suffixes: tuple[str, ...] = ()
    recognizes: Callable[[Path], bool] | None = None
    package: str | None = None
    limits: str = ""
    by_name: bool = True


formats: Registry[Format] = Registry("format", "clip-geometry list formats")


def by_suffix() -> Mapping[str, Format]:
    """Suffix → format."""
    return {suffix: each for each in formats.values() for suffix in each.suffixes}


def format_of_folder(folder: Path) -> Format | None:
    return next((each for each in formats.values() if each.recognizes and each.recognizes(folder)), None)


@contextmanager
def reading_with(path: Path, kind: str) -> Iterator[None]:
    """Turn what a library raises for a damaged file, which is nearly anything, into one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise damaged(path, kind, error if str(error) else type(error).__name__) from None
