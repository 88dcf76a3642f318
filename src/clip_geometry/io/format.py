"""The formats: how a file or folder is recognized, what reads it and what writes it."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from clip_geometry import catalog
from clip_geometry.embeddings import Embeddings

Sides = dict[str, Embeddings]  # by modality, UNNAMED where the file does not name it
Sets = Mapping[str, Embeddings]
# (sets, place, out) → file → what it is: writes into the new folder `place`, which is called `out` when all is written
Writer = Callable[[Sets, Path, Path], dict[str, str]]


@dataclass(frozen=True)
class Format:
    """A way to store embeddings.

    Its module imports the format's library when a file is read, so that listing it costs nothing.

    Args:
        read: Path → modality → embeddings.
        recognizes: Whether a folder is one of this format, by the names in it. None: it has files only.
        write: Writes sets for `export`. None: the format is only read.

    The other arguments are those that catalog.yaml explains.
    """

    read: Callable[[Path], Sides]
    recognizes: Callable[[Path], bool] | None
    write: Writer | None
    title: str
    holds: str
    streams: str = ""
    suffixes: Sequence[str] = ()
    folders: bool = False
    package: str | None = None
    limits: str = ""
    by_name: bool = True


@functools.cache
def formats() -> Mapping[str, Format]:
    """Name → format, as in catalog.yaml: the module of that name, with `read`, and maybe `recognizes` and `write`."""
    found = {}
    for name, entry in catalog.read(Path(__file__).parent).items():
        module = import_module(f"clip_geometry.io.{name.replace('-', '_')}")
        recognizes, write = (getattr(module, function, None) for function in ("recognizes", "write"))
        found[name] = Format(module.read, recognizes, write, **entry)
    return found


def by_suffix() -> Mapping[str, Format]:
    """Suffix → format."""
    return {suffix: each for each in formats().values() for suffix in each.suffixes}
