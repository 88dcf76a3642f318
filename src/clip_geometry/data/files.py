"""Files behind a data set: their configs, their text, and a revision that changes when they do."""

import gzip
import zlib
from collections.abc import Iterable
from pathlib import Path

from clip_geometry.config import digest
from clip_geometry.data.traits import OneSplit, WithoutClasses
from clip_geometry.registry import InputError


class FilesConfig(OneSplit):
    """A set made of the user's own files, which come without splits: `split` stays "all"."""

    path: Path


class CaptionsOnly(WithoutClasses):
    """Captions and, in the folder `images`, the images they name."""

    images: Path | None = None


class CaptionedConfig(FilesConfig, CaptionsOnly):
    """Captions from the user's own files."""


def read_text(path: Path) -> str:
    """The UTF-8 text of a file, unpacked if it is a .gz, without a byte order mark; line ends as they are."""
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file in UTF-8") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError(f"{path} cannot be unpacked, it is truncated or no gzip file") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, which end at line feeds only (captions may hold rarer line ends); blank ones at the
    end are none."""
    return [line.removesuffix("\r") for line in read_text(path).rstrip("\r\n").split("\n")]


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
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return ()
    return status.st_size, status.st_mtime_ns
