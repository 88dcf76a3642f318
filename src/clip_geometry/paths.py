"""Checks of paths from users; errors are explained in one sentence."""

import errno
import os
import stat
from pathlib import Path

from clip_geometry.registry import InputError, instance, shown


def expanded(path: str | Path) -> Path:
    """Expand "~" in a path. Raises InputError if the user does not exist or no file can have this name."""
    path = Path(instance(path, str | os.PathLike, "path", "text or a Path"))
    try:
        path = path.expanduser()
        path.lstat()
    except RuntimeError:
        raise InputError(f"{shown(path)} begins with a user that does not exist; write the folder's name out") from None
    except ValueError:
        raise InputError(f"{shown(path)} is not a path: a name cannot contain a NUL character") from None
    except OSError as error:
        if error.errno not in _ABSENT:
            raise InputError(f"{shown(path)} cannot be used: {error.strerror}") from None
    return path


_ABSENT = (errno.ENOENT, errno.ENOTDIR)  # callers that expect a file report these errors themselves


def existing_file(path: str | Path, what: str) -> Path:
    """Expand "~" and require a file that is not empty; `what` names it in error messages."""
    path = expanded(path)
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{shown(path)} does not exist; {what} was expected") from None
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be read: {error.strerror}; {what} was expected") from None
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{shown(path)} is a directory; {what} was expected")
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for a writer
        raise InputError(f"{shown(path)} is a device or a pipe; {what} was expected")
    if status.st_size == 0:
        raise InputError(f"{shown(path)} is empty (0 bytes); {what} was expected")
    if not os.access(path, os.R_OK):
        raise InputError(f"{shown(path)} cannot be read: permission denied; {what} was expected")
    return path


def existing(path: str | Path, what: str) -> Path:
    """Expand "~" and require a directory or a file that is not empty; `what` names it in error messages."""
    path = expanded(path)
    return path if path.is_dir() else existing_file(path, what)


def existing_folder(path: str | Path, what: str) -> Path:
    """Expand "~" and require a directory; `what` names it in error messages."""
    path = expanded(path)
    if not path.is_dir():
        problem = "is a file" if path.exists() else "does not exist"
        raise InputError(f"{shown(path)} {problem}; {what} was expected")
    return path
