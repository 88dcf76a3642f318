"""The registry of formats: how a file or folder is recognized, and what reads it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clip_geometry import catalog
from clip_geometry.embeddings import Embeddings
from clip_geometry.reading import damaged
from clip_geometry.registry import InputError, Registry

Sides = dict[str, Embeddings]  # by modality, UNNAMED where the file does not name it


@dataclass(frozen=True)
class Format:
    """A way to store embeddings.

    Its module imports the format's library when a file is read, so that registering it costs nothing.

    Args:
        read: Path → modality → embeddings.
        recognizes: Whether a folder is one of this format, by the names in it. None: it has files only.

    The other arguments are those that catalog.yaml explains.
    """

    read: Callable[[Path], Sides]
    recognizes: Callable[[Path], bool] | None
    title: str
    holds: str
    streams: str = ""
    suffixes: Sequence[str] = ()
    folders: bool = False
    package: str | None = None
    limits: str = ""
    by_name: bool = True


formats: Registry[Format] = Registry("format", "clip-geometry list formats")


def register(name: str, read: Callable[[Path], Sides], recognizes: Callable[[Path], bool] | None = None) -> None:
    """Register a format that catalog.yaml describes."""
    formats.add(name, Format(read, recognizes, **catalog.read(Path(__file__).parent)[name]))


def by_suffix() -> Mapping[str, Format]:
    """Suffix → format."""
    return {suffix: each for each in formats.values() for suffix in each.suffixes}


@contextmanager
def reading_with(path: Path, kind: str) -> Iterator[None]:
    """Turn what a library raises for a damaged file into one sentence: nearly anything, and panics of Rust, which are
    no Exception."""
    try:
        yield
    except InputError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        # without the places in the library's own source that FAISS and Lance name
        said = re.sub(r"^Error in .* at \S+:\d+: |, /\S+:\d+.*", "", str(error), flags=re.DOTALL)
        raise damaged(path, kind, error if isinstance(error, OSError) else said or type(error).__name__) from None
