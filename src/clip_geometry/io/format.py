"""The registry of formats: how a file or folder is recognized, what reads it and what writes it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clip_geometry import catalog
from clip_geometry.embeddings import Embeddings
from clip_geometry.registry import Registry

Sides = dict[str, Embeddings]  # by modality, UNNAMED where the file does not name it
Sets = Mapping[str, Embeddings]
# (sets, place, out) → file → what it is: writes into the new folder `place`, which is called `out` when all is written
Writer = Callable[[Sets, Path, Path], dict[str, str]]


@dataclass(frozen=True)
class Format:
    """A way to store embeddings.

    Its module imports the format's library when a file is read, so that registering it costs nothing.

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
    module: str = ""


_entries = catalog.read(Path(__file__).parent)
_modules = [entry.get("module", name.replace("-", "_")) for name, entry in _entries.items()]
formats: Registry[Format] = Registry(
    "format", "clip-geometry list formats", more=[f"clip_geometry.io.{module}" for module in dict.fromkeys(_modules)]
)


def register(
    name: str,
    read: Callable[[Path], Sides],
    recognizes: Callable[[Path], bool] | None = None,
    write: Writer | None = None,
) -> None:
    """Register a format that catalog.yaml describes."""
    formats.add(name, Format(read, recognizes, write, **_entries[name]))


def by_suffix() -> Mapping[str, Format]:
    """Suffix → format."""
    return {suffix: formats[name] for name in _entries for suffix in formats[name].suffixes}
