"""Atomic writes, locks that end with their process, and checks of whether a command may write a new file."""

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
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from uuid import uuid4

import numpy as np

from clip_geometry.config import Config, digest, validate
from clip_geometry.io.reading import checked, parse_json
from clip_geometry.paths import existing_file, expanded
from clip_geometry.registry import InputError, shown

if TYPE_CHECKING:
    import pyarrow as pa

LOCK = ".lock"
T = TypeVar("T", bound=Config)
CLAIM = ".claim.tmp"  # suffix of the file that reserves the name of a file to be written


def npy_bytes(array: np.ndarray) -> bytes:
    """Return an array as the bytes of a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def parquet_bytes(table: "pa.Table") -> bytes:
    """Return a table as the bytes of a .parquet file."""
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def write_atomically(path: Path, data: bytes) -> str:
    """Write `data` atomically, as `writing` does, and return its SHA-256 checksum."""
    with writing(path) as file:
        file.write(data)
    return hashlib.sha256(data).hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write text to a file, completely or not at all. Links are followed; devices are written in place."""
    if is_device(path):
        sys.stdout.flush()  # `path` may be standard output, too
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    else:
        write_atomically(path.resolve(), text.encode())


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that is renamed to `path` when the block ends without an error.

    The temporary file is in the same folder and is flushed to disk before it is renamed. So `path` has either the old
    or the new content, whenever the process is killed. An OSError names `path`, not the temporary file.
    """
    with _renamed(path, Path.touch) as temporary, temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Make a temporary folder that is renamed to `path` when the block ends without an error.

    Everything in it is flushed to disk before it is renamed.

    Raises:
        InputError: `path` is a file or a folder that is not empty, or it cannot be written.
    """
    require_new_folder(path)
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_temporaries(path.parent, path.name)
        with _renamed(path, Path.mkdir) as temporary:
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():  # libraries do not flush the files they write
                    with file.open("rb") as written:
                        os.fsync(written.fileno())


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Convert an OSError in the block to an InputError about `path`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write to {shown(path)}: {error.strerror or error}") from None


@contextmanager
def _renamed(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Make a temporary file or folder beside `path`, keep it locked, and rename it to `path` at the end."""
    import fcntl

    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with naming(path), _locked(temporary, make, fcntl.LOCK_EX):
            yield temporary
            claim = _claim(path)
            if claim.is_file():
                claim.write_text(_stamp(temporary))
            temporary.replace(path)
            sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            _remove(temporary)
        raise


@contextmanager
def _locked(path: Path, make: Callable[[Path], None], kind: int) -> Iterator[None]:
    """Make a file or folder and hold its lock.

    Raises BlockingIOError if another process holds the lock and `kind` does not wait for it.
    """
    import fcntl

    while True:
        make(path)
        with _opened(path) as descriptor:
            try:
                fcntl.flock(descriptor, kind)
            except BlockingIOError:
                raise
            except OSError:  # the file system has no locks; `remove_temporaries` removes nothing there either
                pass
            if os.fstat(descriptor).st_nlink:  # otherwise another process removed the file before it was locked
                yield
                return


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Make an OSError in the block name `path` if it names no file or a temporary one."""
    try:
        yield
    except OSError as error:
        if error.filename is None or is_temporary(Path(os.fsdecode(error.filename))):
            error.filename = str(path)
        raise


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a file for reading and writing, because flock may need a writable descriptor, or a folder for reading."""
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a file, or a folder with its content."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def sync_folder(folder: Path) -> None:
    """Flush the folder itself to disk, so that a rename or removal in it survives a power failure."""
    with _opened(folder) as descriptor:
        os.fsync(descriptor)


def is_temporary(path: Path) -> bool:
    return path.name.startswith(".") and path.suffix == ".tmp"


def remove_temporaries(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files and folders that killed writers left behind.

    Args:
        folder: The folder to clean.
        name: The file or folder in it that was being written. None: any, including those in subfolders.
    """
    import fcntl

    for path in list(folder.rglob(".*.tmp") if name is None else folder.glob(f".{escape(name)}.*.tmp")):
        if path.name.endswith(CLAIM) and path.stat().st_size:
            continue  # a claim that identifies the file which a killed command wrote
        with suppress(OSError), _opened(path) as descriptor:  # OSError: another process is writing or removed it
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object together with its checksum."""
    text = json.dumps({**values, "checksum": digest(values)}, indent=1, ensure_ascii=False)
    write_atomically(path, f"{text}\n".encode())


def read_json(path: Path, schema: Any = dict[str, Any]) -> dict[str, Any] | None:
    """Read a file written by `write_json`; return None if it is missing, damaged or does not match the schema.

    Any other OSError, such as one from a failing disk, is raised, because the file itself may be intact.
    """
    try:
        values = parse_json(path.read_bytes(), shown(path), dict[str, Any])
        checksum = values.pop("checksum", None)
        return checked(values, shown(path), schema) if checksum == digest(values) else None
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, InputError):
        return None


def read_saved(path: str | Path, schema: type[T], *, format: int, what: str, writer: str) -> T:
    """Read a file written by `write_json` that a user names; its fields "format" and "version" say who wrote it.

    Raises:
        InputError: The file is missing, damaged, of another format or something else.
    """
    file = existing_file(path, f"a file written by {writer}")
    values = parse_json(file.read_bytes(), shown(file), dict[str, Any])
    if not schema.model_fields.keys() <= values.keys():
        raise InputError(f"{shown(file)} is JSON, but not {what}; expected a file written by {writer}")
    if values.pop("checksum", None) != digest(values):
        raise InputError(f"{shown(file)} is damaged, its checksum does not hold; copy it again or write it again")
    if values["format"] != format:
        raise InputError(f"{shown(file)} has format {shown(values['format'])}; this version reads format {format}")
    return validate(schema, values, shown(file))


@contextmanager
def exclusive(folder: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the folder's lock in the block. If another process holds it, call `on_wait` once and wait.

    The kernel releases the lock when the process ends, for whatever reason, so the lock file itself is never removed.
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
    """Return whether `path` is written in place: /dev/null, /dev/stdout or a pipe of the shell (/dev/fd/63)."""
    may_be_stream = path.parts[:2] in (("/", "dev"), ("/", "proc")) and not path.is_dir() and not path.is_block_device()
    return path.is_char_device() or (may_be_stream and path.exists())


@contextmanager
def claimed(path: Path) -> Iterator[Path]:
    """Reserve a new file for this process until the block ends, and give its path with "~" expanded.

    A file counts as new if it does not exist, if it is empty, or if the command that wrote it was killed before it had
    written all of its files. A device may always be written to.

    The reservation is a locked file beside it, .NAME.claim.tmp, so that the final name does not exist before the file
    is complete. If a process is killed, its reservation remains without a lock, and the next process takes it over.
    The reservation identifies the file that the killed process wrote, so that a command that writes several files can
    be run again.

    Raises:
        InputError: The file exists, another process is writing it, or it cannot be written.
    """
    import fcntl

    path = expanded(path)
    if is_device(path):
        yield path
        return
    _require_new_file(path)
    claim = _claim(path)
    with ExitStack() as lock:
        with _explained(path):
            try:
                lock.enter_context(_locked(claim, Path.touch, fcntl.LOCK_EX | fcntl.LOCK_NB))
            except BlockingIOError:
                raise InputError(f"another process is writing {shown(path)}; choose another name") from None
        lock.callback(claim.unlink, missing_ok=True)
        remove_temporaries(claim.parent, path.resolve().name)
        _require_new_file(path)  # the previous holder of the reservation may have written it
        yield path


def _require_new_file(path: Path) -> None:
    """Raise InputError unless a new file can be written at the path."""
    require_folders_above(path)
    with _explained(path):  # a circular link, for example
        try:
            status = path.stat()
        except FileNotFoundError:
            if not path.resolve().parent.is_dir():  # links are followed
                raise InputError(f"the folder {shown(path.parent)} does not exist; create it first") from None
            return
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for a reader
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "a pipe, a socket or a disk"
        raise InputError(f"{shown(path)} is {kind}; the name of a new file was expected")
    claim = _claim(path)
    is_unfinished = claim.is_file() and claim.read_text() == _stamp(path)  # the command that wrote it was killed
    if status.st_size and not is_unfinished:
        with suppress(OSError):  # a process that was killed after it had written the file left its claim
            remove_temporaries(path.resolve().parent, path.name)
        raise InputError(f"{shown(path)} exists; choose another name or remove it first")


def _claim(path: Path) -> Path:
    real = path.resolve()  # links are followed
    return real.with_name(f".{real.name}{CLAIM}")


def _stamp(path: Path) -> str:
    """Return text that identifies a file: it stays the same when the file is renamed and differs for a replacement."""
    status = path.stat()
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"


def require_folders_above(path: Path) -> None:
    """Raise InputError if a parent of `path` is a file."""
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise InputError(f"{shown(parent)} is a file, not a folder, so {shown(path)} cannot be written")


def require_new_folder(path: Path) -> None:
    """Raise InputError if `path` is a file or a folder that is not empty, or if one of its parents is a file."""
    require_folders_above(path)
    if path.exists() and not path.is_dir():
        raise InputError(f"{shown(path)} is a file; a new folder was expected")
    if path.is_dir() and any(path.iterdir()):
        raise InputError(f"{shown(path)} is not empty, and nothing is overwritten; choose a new folder")
