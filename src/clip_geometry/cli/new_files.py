"""Where a command may write: said before anything is computed."""

from pathlib import Path
from tempfile import TemporaryFile

from clip_geometry.registry import InputError


def require_new_file(path: Path) -> Path:
    """`path` with "~" expanded, if a new file can be written there. Empty files may be replaced, devices written to."""
    path = path.expanduser()
    if path.is_dir():
        raise InputError(f"{path} is a directory; the name of a new file was expected")
    if path.is_file() and path.stat().st_size:
        raise InputError(f"{path} exists; choose another name or remove it first")
    if path.exists() and not path.is_file():
        return path
    require_folders_above(path)
    folder = path.resolve().parent  # a link is followed
    if not folder.is_dir():
        raise InputError(f"the folder {path.parent} does not exist; a new file is written into an existing folder")
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror or error}") from None
    return path


def require_folders_above(path: Path) -> None:
    """Says which part of `path` is a file where only a folder can be."""
    for above in path.parents:
        if above.exists() and not above.is_dir():
            raise InputError(f"{above} is a file, not a folder, so {path} cannot be written")
