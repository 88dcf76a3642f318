"""Checks, before anything is computed, where a command may write."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from clip_geometry.files import remove_temporaries
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, shown


def require_new_file(path: Path) -> Path:
    """Returns `path` with "~" expanded, if a new file can be written there: no file, an empty one, or a device."""
    path = expanded(path)
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        found = None
    except OSError as error:  # a link in a circle
        raise InputError(f"cannot write to {shown(path)}: {error.strerror}") from None
    if found is not None and not is_device(path):
        if stat.S_ISDIR(found.st_mode):
            raise InputError(f"{shown(path)} is a directory; the name of a new file was expected")
        if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for a reader
            raise InputError(f"{shown(path)} is a pipe, a socket or a disk; the name of a new file was expected")
        if found.st_size:
            raise InputError(f"{shown(path)} exists; choose another name or remove it first")
    if is_device(path):
        return path
    require_folders_above(path)
    folder = path.resolve().parent  # a link is followed
    if not folder.is_dir():
        raise InputError(
            f"the folder {shown(path.parent)} does not exist; a new file is written into an existing folder"
        )
    try:
        remove_temporaries(folder, path.name)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"cannot write to {shown(path)}: {error.strerror or error}") from None
    return path


def is_device(path: Path) -> bool:
    """Whether `path` is written to in place: /dev/null, /dev/stdout, a pipe of the shell (/dev/fd/63)."""
    streams = path.parts[:2] in (("/", "dev"), ("/", "proc")) and not path.is_dir() and not path.is_block_device()
    return path.is_char_device() or (streams and path.exists())


@contextmanager
def claimed(path: Path) -> Iterator[Path]:
    """`require_new_file`, reserved for this process until the block ends; a second process is refused.

    Meanwhile an empty, locked file stands there. It is removed if nothing has replaced it.
    """
    import fcntl

    path = require_new_file(path)
    if is_device(path):
        yield path
        return
    there = path.exists()
    with path.open("ab") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another process writes {shown(path)}; choose another name") from None
        except OSError:  # a file system without locks
            pass
        mine = os.fstat(claim.fileno())
        if mine.st_size or not mine.st_nlink:
            raise InputError(f"{shown(path)} exists; choose another name or remove it first")
        real = path.resolve()  # a link is followed
        try:
            yield path
        finally:
            with suppress(OSError):
                if not there and os.path.samestat(real.stat(), mine):
                    real.unlink()


def require_folders_above(path: Path) -> None:
    """Raises InputError if a parent of `path` is a file."""
    for above in path.parents:
        if above.exists() and not above.is_dir():
            raise InputError(f"{shown(above)} is a file, not a folder, so {shown(path)} cannot be written")
