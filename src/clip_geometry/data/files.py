"""Files behind a data set: their lines, and a revision that changes when they do."""

from collections.abc import Iterable
from errno import EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR
from pathlib import Path

from clip_geometry.config import digest
from clip_geometry.reading import read_text

# errors that mean a missing file; others, such as those of a failing disk, are raised: a sound file is not missing
NOT_THERE = (ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG)


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text file, without blank ones at its end.

    Only line feeds end a line, since captions may hold rarer line ends.
    """
    return [line.removesuffix("\r") for line in read_text(path, "a text file").rstrip("\r\n").split("\n")]


def is_unicode(text: str) -> bool:
    """Return False for lone surrogates, which file names and JSON may bring and no output file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def revision(root: Path, names: Iterable[str]) -> str:
    """Return the hash of names (relative to `root`), sizes and modification times; a missing file counts as missing."""
    facts: list[list[str | int]] = []
    for name in names:
        facts.append([name])
        try:
            status = (root / name).stat()
        except ValueError:  # a NUL in the name
            continue
        except OSError as error:
            if error.errno not in NOT_THERE:
                raise
            continue
        facts[-1] += [status.st_size, status.st_mtime_ns]
    return digest(facts)
