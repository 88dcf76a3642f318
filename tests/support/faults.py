"""File operations that fail. Run as a script: a process whose forked children are commands, in which one does."""

import builtins
import errno
import fcntl
import io
import json
import mmap
import os
import resource
import sys
from contextlib import redirect_stdout
from multiprocessing import Value
from pathlib import Path
from typing import Any

MEGABYTE = 2**20
ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EIO", "EACCES")}
CALLS = [(os, name) for name in ("open", "read", "write", "sendfile", "fsync", "replace", "rename", "link", "mkdir")]
CALLS += [(os, name) for name in ("unlink", "remove", "rmdir", "scandir", "listdir")]
CALLS += [(fcntl, "flock"), (mmap, "mmap")]
real_open = builtins.open


class Faults:
    """Counts the operations on files under a folder, in this process and those it forks, and lets one of them fail.

    fail: its number, from 1 on, and the error; None only counts. log: where operations are noted, a line each. Of a
    write that fails, half is written. Of a file that is read, opening and the first read count.
    """

    def __init__(self, folder: str, fail: tuple[int, int] | None = None, log: str | None = None):
        self.folder, self.fail, self.log = os.path.realpath(folder), fail, log
        self.count: Any = Value("l", 0)

    def install(self) -> None:
        import pyarrow.parquet
        import safetensors

        in_other_languages = [(pyarrow.parquet, "ParquetFile"), (safetensors, "safe_open")]
        for module, name in CALLS + in_other_languages:
            setattr(module, name, self._failing(name, getattr(module, name)))
        io.open = builtins.open = self._open

    def error(self, operation: str, file: Any) -> OSError | None:
        """Counts an operation on a path or an open file; the error, if it is the one that fails."""
        name = self._name(file)
        if name is None:
            return None
        with self.count.get_lock():
            self.count.value += 1
            number = self.count.value
        if self.log is not None:
            with real_open(self.log, "a") as log:
                log.write(f"{operation} {os.path.relpath(name, self.folder)}\n")
        if self.fail is None or number != self.fail[0]:
            return None
        of_a_path = isinstance(file, str | bytes | os.PathLike)  # the system names the file in these only
        return OSError(self.fail[1], os.strerror(self.fail[1]), *[name] * of_a_path)

    def check(self, operation: str, file: Any) -> None:
        if error := self.error(operation, file):
            raise error

    def _name(self, file: Any) -> str | None:
        """Its path, if that is under the folder."""
        try:
            number = file if isinstance(file, int) else file.fileno() if hasattr(file, "fileno") else None
            name = os.path.abspath(os.fsdecode(file) if number is None else os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH100, PTH115
        except (OSError, TypeError, ValueError):
            return None
        return name if name == self.folder or name.startswith(self.folder + os.sep) else None

    def _failing(self, name: str, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if args:
                self.check(name, args[0])
            return function(*args, **options)

        return call

    def _open(self, file: Any, mode: str = "r", buffering: int = -1, *text: Any, opener: Any = None, **how: Any) -> Any:
        if isinstance(file, int) or self._name(file) is None:
            return real_open(file, mode, buffering, *text, opener=opener, **how)
        self.check(f"open {mode}", file)
        raw = _Raw(file, mode.replace("b", "").replace("t", ""), opener=opener)
        raw.faults = self
        if raw.readable() and raw.writable():
            buffered: Any = io.BufferedRandom(raw)
        else:
            buffered = io.BufferedReader(raw) if raw.readable() else io.BufferedWriter(raw)
        if "b" in mode:
            return raw if buffering == 0 else buffered
        wrapped: Any = io.TextIOWrapper(buffered, *text, **how)
        wrapped.mode = mode
        return wrapped


class _Raw(io.FileIO):
    faults: Faults
    was_read = False

    def write(self, data: Any) -> int:
        if error := self.faults.error("write", self):
            super().write(bytes(data)[: len(data) // 2])
            raise error
        return super().write(data)

    def _read(self) -> None:
        if not self.was_read:
            self.faults.check("read", self)
            self.was_read = True

    def read(self, size: int = -1) -> bytes:
        self._read()
        return super().read(size)

    def readall(self) -> bytes:
        self._read()
        return super().readall()

    def readinto(self, buffer: Any) -> int:
        self._read()
        return super().readinto(buffer)


def _command(job: dict[str, Any]) -> None:
    """A command line, in a folder; what it prints goes into pipes."""
    from clip_geometry.cli import main

    os.setsid()  # so that those it starts can be told
    os.chdir(job["folder"])
    for number, name in ((0, os.devnull), (1, job["out"]), (2, job["err"])):
        os.dup2(os.open(name, os.O_RDWR), number)
    sys.stdout, sys.stderr = (real_open(number, "w", closefd=False) for number in (1, 2))
    sys.argv = ["clip-geometry", *job["argv"]]
    if "faults" in job:
        Faults(job["folder"], **job["faults"]).install()
    for name, size in job.get("limits", {}).items():
        if name == "RLIMIT_AS":  # beyond what the process has
            size += int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(getattr(resource, name), (size, size))
    main()


def _warm_up(folder: str, commands: list[list[str]]) -> None:
    """Runs the commands in this process, so that its children need neither import nor build what they all need."""
    from clip_geometry.cli import main

    os.chdir(folder)
    for command in commands:
        sys.argv = ["clip-geometry", *command]
        try:
            with redirect_stdout(sys.stderr):
                main()
        except SystemExit as end:
            if end.code:
                raise


if __name__ == "__main__":
    from clip_geometry.display import style
    from clip_geometry_experiments.kit import training
    from support.forks import serve

    training.SECONDS, training.SHARE = 0, float("inf")  # a checkpoint after each step
    style._encoded = lambda figure, kind: f"a figure as {kind}".encode()  # drawing would take most of the time
    _warm_up(sys.argv[1], json.loads(sys.argv[2]))
    serve(_command)
