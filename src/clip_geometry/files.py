"""Files: present or one clear error, there whole or not at all, and a lock that dies with its process."""

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from clip_geometry.config import digest
from clip_geometry.registry import InputError

if TYPE_CHECKING:
    import pyarrow as pa

LOCK = ".lock"


def existing_file(path: Path, what: str) -> Path:
    """`path` with "~" expanded, if it is a file that is not empty; `what` names it in the error."""
    path = path.expanduser()
    if path.is_dir():
        raise InputError(f"{path} is a directory; {what} was expected")
    if not path.exists():
        raise InputError(f"{path} does not exist; {what} was expected")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty (0 bytes); {what} was expected")
    return path


def existing_folder(path: Path, what: str) -> Path:
    """`path` with "~" expanded, if it is a directory; `what` names it in the error."""
    path = path.expanduser()
    if not path.exists():
        raise InputError(f"{path} does not exist; {what} was expected")
    if not path.is_dir():
        raise InputError(f"{path} is a file; {what} was expected")
    return path


def first_line(error: Exception) -> str:
    """What a library complains of, short enough for one sentence of ours."""
    return str(error).strip().partition("\n")[0]


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
    """Writes `data` under a temporary name in the same folder, flushes it to the disk and renames it.

    Whoever opens `path` sees the old content or the new, whenever the process is killed. Returns the SHA-256. An
    OSError names `path`, not the temporary file.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)
        raise
    sync_folder(path.parent)
    return hashlib.sha256(data).hexdigest()


def sync_folder(folder: Path) -> None:
    """Flushes the folder itself, so that a rename or a removal in it survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_temporary(path: Path) -> bool:
    return path.name.startswith(".") and path.suffix == ".tmp"


def remove_temporaries(folder: Path) -> None:
    """Removes what killed writers left. Only for the holder of the lock: any temporary is stale then."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes a JSON object that carries its own checksum."""
    text = json.dumps({**values, "checksum": digest(values)}, indent=1, ensure_ascii=False)
    write_atomically(path, f"{text}\n".encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """What `write_json` wrote; None where the file is absent or damaged."""
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(values, dict) or values.pop("checksum", None) != digest(values):
        return None
    return values


@contextmanager
def exclusive(folder: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Holds the folder's lock; calls `on_wait` once if another process has it, then waits.

    The kernel frees the lock with its process, however that ends, so the lock file itself is never removed.
    """
    import fcntl  # POSIX only: reading works without it

    with (folder / LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
