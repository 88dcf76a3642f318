"""Files behind a data set: their configs, their text, and a revision that changes when they do."""

from collections.abc import Iterable
from errno import EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR
from pathlib import Path

from clip_geometry.config import digest
from clip_geometry.data.traits import OneSplit, WithoutClasses
from clip_geometry.reading import read_text

# Errors of a file that is missing. Others rise, as of a disk that fails: a sound file would count as missing for good.
NOT_THERE = (ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG)


class FilesConfig(OneSplit):
    """A set made of the user's own files, which come without splits: `split` stays "all"."""

    path: Path


class CaptionsOnly(WithoutClasses):
    """Captions and, in the folder `images`, the images they name."""

    images: Path | None = None


class CaptionedConfig(FilesConfig, CaptionsOnly):
    """Captions from the user's own files."""


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, which end at line feeds only (captions may hold rarer line ends); blank ones at the
    end are none."""
    return [line.removesuffix("\r") for line in read_text(path, "a text file").rstrip("\r\n").split("\n")]


def is_unicode(text: str) -> bool:
    """False for lone surrogates, which file names and JSON may bring and no output file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def revision(root: Path, names: Iterable[str]) -> str:
    """Hash of names (relative to `root`), sizes and modification times; a missing file counts as missing."""
    return digest([[name, *_size_and_time(root / name)] for name in names])


def _size_and_time(path: Path) -> tuple[int, int] | tuple[()]:
    try:
        status = path.stat()
    except ValueError:  # a NUL in the name
        return ()
    except OSError as error:
        if error.errno not in NOT_THERE:
            raise
        return ()
    return status.st_size, status.st_mtime_ns
