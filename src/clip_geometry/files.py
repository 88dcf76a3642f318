"""Atomic writes, locks that end with their process, and where a command may write a new file."""

import hashlib
import io
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

import numpy as np

from clip_geometry.config import digest
from clip_geometry.io.reading import checked, parse_json
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, shown

if TYPE_CHECKING:
    import pyarrow as pa

LOCK = ".lock"
CLAIM = ".claim.tmp"  # after the name of a file that a command is going to write


def npy_bytes(array: np.ndarray) -> bytes:
    """The content of a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def parquet_bytes(table: "pa.Table") -> bytes:
    """The content of a .parquet file."""
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def write_atomically(path: Path, data: bytes) -> str:
    """Writes `data` as `writing` does and returns its SHA-256 checksum."""
    with writing(path) as file:
        file.write(data)
    return hashlib.sha256(data).hexdigest()


def write_text(path: Path, text: str) -> None:
    """Writes a text to a file, whole or not at all; a link is followed, a device such as /dev/stdout is written to."""
    if is_device(path):
        sys.stdout.flush()  # it may be the same one
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    else:
        write_atomically(path.resolve(), text.encode())


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that is renamed to `path` when the block ends without an error.

    It has a temporary name in the same folder and is flushed to the disk before it is renamed, so `path` has the old
    content or the new, whenever the process is killed. An OSError names `path`, not the temporary file.
    """
    with _renamed(path, Path.touch) as temporary, temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Makes a folder that is renamed to `path` when the block ends without an error, with everything in it flushed to
    the disk.

    Raises InputError where there is something already, or where nothing can be written.
    """
    require_new_folder(path)
    with _refusing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_temporaries(path.parent, path.name)
        with _renamed(path, Path.mkdir) as temporary:
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():  # libraries do not flush what they write
                    with file.open("rb") as written:
                        os.fsync(written.fileno())


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Makes a sentence about `path` of an OSError."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write to {shown(path)}: {error.strerror or error}") from None


@contextmanager
def _renamed(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Makes a file or folder beside `path` and renames it at the end; until then it is locked."""
    import fcntl

    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with naming(path), _locked(temporary, make, fcntl.LOCK_EX):
            yield temporary
            if (claim := _claim(path)).is_file():
                claim.write_text(_stamp(temporary))
            temporary.replace(path)
            sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            _remove(temporary)
        raise


@contextmanager
def _locked(path: Path, make: Callable[[Path], None], kind: int) -> Iterator[None]:
    """Makes a file or folder and holds its lock. BlockingIOError: another process has it, and `kind` does not wait."""
    import fcntl

    while True:
        make(path)
        with _opened(path) as descriptor:
            try:
                fcntl.flock(descriptor, kind)
            except BlockingIOError:
                raise
            except OSError:  # a file system without locks, where `remove_temporaries` removes nothing either
                pass
            if os.fstat(descriptor).st_nlink:  # otherwise another process removed it before it was locked
                yield
                return


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Lets an OSError in the block name `path` instead of no file or a temporary one."""
    try:
        yield
    except OSError as error:
        if error.filename is None or is_temporary(Path(os.fsdecode(error.filename))):
            error.filename = str(path)
        raise


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The descriptor of a file or a folder; flock needs one that may be written to where a file can be."""
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def sync_folder(folder: Path) -> None:
    """Flushes the folder itself, so that a rename or a removal in it survives a power failure."""
    with _opened(folder) as descriptor:
        os.fsync(descriptor)


def is_temporary(path: Path) -> bool:
    return path.name.startswith(".") and path.suffix == ".tmp"


def remove_temporaries(folder: Path, name: str | None = None) -> None:
    """Removes what killed writers left of the file or folder `name`; None: of any file in the folder or below."""
    import fcntl

    for path in list(folder.rglob(".*.tmp") if name is None else folder.glob(f".{escape(name)}.*.tmp")):
        if path.name.endswith(CLAIM) and path.stat().st_size:
            continue  # it says whose file it is
        with suppress(OSError), _opened(path) as descriptor:  # it is being written, or gone
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes a JSON object with its own checksum."""
    text = json.dumps({**values, "checksum": digest(values)}, indent=1, ensure_ascii=False)
    write_atomically(path, f"{text}\n".encode())


def read_json(path: Path, schema: Any = dict[str, Any]) -> dict[str, Any] | None:
    """Reads what `write_json` wrote; None if the file is absent, damaged or does not match the schema.

    Any other OSError is raised, for example of a failing disk, because the file may be sound.
    """
    try:
        values = parse_json(path.read_bytes(), shown(path), dict[str, Any])
        return checked(values, shown(path), schema) if values.pop("checksum", None) == digest(values) else None
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, InputError):
        return None


@contextmanager
def exclusive(folder: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Holds the folder's lock. If another process has it, calls `on_wait` once and waits.

    The kernel releases the lock with its process, however that ends, so the lock file itself is never removed.
    """
    import fcntl  # POSIX only: reading works without it

    path = folder / LOCK
    with path.open("ab") as file:
        with naming(path):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_device(path: Path) -> bool:
    """Whether `path` is written to in place: /dev/null, /dev/stdout, a pipe of the shell (/dev/fd/63)."""
    streams = path.parts[:2] in (("/", "dev"), ("/", "proc")) and not path.is_dir() and not path.is_block_device()
    return path.is_char_device() or (streams and path.exists())


@contextmanager
def claimed(path: Path) -> Iterator[Path]:
    """Reserves a new file for this process until the block ends, and gives its path with "~" expanded.

    A file is new where there is none, an empty one, or one of a command that was killed before it had written all of
    its files; a device may always be written to. The reservation is a locked file beside it, .NAME.claim.tmp, so that
    nothing stands under the final name before the file is complete. A killed process leaves it without a lock, and the
    next one takes it over. It tells which file the killed process has put there, so that a command that writes several
    files can be repeated.

    Raises InputError for a file that exists or that another process writes, and where nothing can be written.
    """
    import fcntl

    path = expanded(path)
    if is_device(path):
        yield path
        return
    _require_new_file(path)
    claim = _claim(path)
    with ExitStack() as lock:
        with _refusing(path):
            try:
                lock.enter_context(_locked(claim, Path.touch, fcntl.LOCK_EX | fcntl.LOCK_NB))
            except BlockingIOError:
                raise InputError(f"another process writes {shown(path)}; choose another name") from None
        lock.callback(claim.unlink, missing_ok=True)
        remove_temporaries(claim.parent, path.resolve().name)
        _require_new_file(path)  # whoever held it before may have written it
        yield path


def _require_new_file(path: Path) -> None:
    require_folders_above(path)
    with _refusing(path):  # a link in a circle, say
        try:
            found = path.stat()
        except FileNotFoundError:
            if not path.resolve().parent.is_dir():  # a link is followed
                raise InputError(f"the folder {shown(path.parent)} does not exist; create it first") from None
            return
    if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for a reader
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "a pipe, a socket or a disk"
        raise InputError(f"{shown(path)} is {what}; the name of a new file was expected")
    claim = _claim(path)
    is_unfinished = claim.is_file() and claim.read_text() == _stamp(path)  # of a command that was killed before its end
    if found.st_size and not is_unfinished:
        with suppress(OSError):  # of a process that was killed after it had written the file
            remove_temporaries(path.resolve().parent, path.name)
        raise InputError(f"{shown(path)} exists; choose another name or remove it first")


def _claim(path: Path) -> Path:
    real = path.resolve()  # a link is followed
    return real.with_name(f".{real.name}{CLAIM}")


def _stamp(path: Path) -> str:
    """Tells a file from every other that may take its place, and stays when it is renamed."""
    found = path.stat()
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"


def require_folders_above(path: Path) -> None:
    """Raises InputError if a parent of `path` is a file."""
    for above in path.parents:
        if above.exists() and not above.is_dir():
            raise InputError(f"{shown(above)} is a file, not a folder, so {shown(path)} cannot be written")


def require_new_folder(path: Path) -> None:
    """Raises InputError unless a new folder can be written there: no file, and nothing in a folder that exists."""
    require_folders_above(path)
    if path.exists() and not path.is_dir():
        raise InputError(f"{shown(path)} is a file; a new folder was expected")
    if path.is_dir() and any(path.iterdir()):
        raise InputError(f"{shown(path)} is not empty, and nothing is overwritten; choose a new folder")
