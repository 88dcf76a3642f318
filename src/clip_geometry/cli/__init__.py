"""The command line. The commands are in `commands`, and import what is slow to import themselves."""

import io
import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from clip_geometry.cli.commands import app
from clip_geometry.memory import return_large_blocks
from clip_geometry.progress import Settings, note
from clip_geometry.registry import MOST, InputError, printable, shortened, shown

INTERRUPTED = 130


def main() -> None:
    """Runs the command line. Errors of the user are one sentence and status 2, with a traceback only under --debug."""
    # Before torch is imported, which reads it: threads of OpenMP spin 300,000 times before they sleep. Where others use
    # the same cores, that makes a table of 500 pairs take 50 to 70 s instead of 20 to 34. Not spinning at all
    # (OMP_WAIT_POLICY=PASSIVE) is as good there, but takes 15 s instead of 8 on an idle machine.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    return_large_blocks()
    _prepare_streams()
    seen, show_foreign = set(), warnings.showwarning

    def show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        """Prints a warning of ours in one line, like an error, and the same line once."""
        if not category.__module__.startswith("clip_geometry."):
            show_foreign(message, category, *place, **more)
        elif str(message) not in seen:
            seen.add(str(message))
            _complain(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        try:
            _run()
        finally:
            Settings.verbose = False  # for who calls main() and goes on
            try:
                sys.stdout.flush()  # before Python does so at exit, where an error could no longer be reported
            except OSError as error:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                if not isinstance(error, BrokenPipeError):  # which is `| head`, and no error
                    _complain(f"standard output cannot be written to: {error.strerror}")
                raise SystemExit(1 if isinstance(error, BrokenPipeError) else 2) from None


def _prepare_streams() -> None:
    """Opens closed streams on /dev/null, so that no other file takes their number and receives what is written to them,
    and replaces characters that the terminal's encoding lacks by question marks."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                os.fstat(number)
                continue
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if number == 0 else "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _complain(message: str) -> None:
    """One line, however long the names in it are."""
    note(f"clip-geometry: {shortened(printable(message), MOST)}")


def _run() -> None:
    anywhere = {"--debug", "-v", "--verbose"}
    arguments = [argument for argument in sys.argv[1:] if argument not in anywhere]
    given = anywhere.intersection(sys.argv[1:])
    debug = "--debug" in given
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    Settings.verbose = bool(given - {"--debug"})
    try:
        status = app(args=arguments, prog_name="clip-geometry", standalone_mode=False)
    except InputError as error:
        if debug:
            raise
        _complain(str(error))
        raise SystemExit(2) from None
    except BrokenPipeError:  # `| head` has seen enough
        raise SystemExit(1) from None
    except OSError as error:  # permissions, a full disk
        if debug:
            raise
        _complain_of_memory(error)
        what = (
            f"cannot use {shown(Path(str(error.filename)))}" if error.filename else "a file cannot be written or read"
        )
        _complain(f"{what}: {error.strerror or error}")
        raise SystemExit(2) from None
    except Exception as error:
        usage = getattr(error, "format_message", None)  # typer's, of a command line that it cannot read
        if usage is None:
            if not debug:
                _complain_of_memory(error)
            raise
        path = getattr(getattr(error, "ctx", None), "command_path", "clip-geometry")
        if type(error).__name__ == "NoArgsIsHelpError":  # no command was given
            with suppress(BrokenPipeError):  # `| head` has seen enough
                print(usage())
        else:
            said = " ".join(usage().split()).rstrip(".").replace("Value error, ", "")  # as typer's parser puts it
            _complain(f"{said} (see {path} --help)")
        raise SystemExit(2) from None
    if status == INTERRUPTED:  # typer's way of Ctrl-C
        resumes = f"; the same {command} command continues" if command in ("embed", "run") else ""
        _complain(f"interrupted{resumes}")
    raise SystemExit(status)  # None, as a command gives, is success


def _complain_of_memory(error: Exception) -> None:
    """Ends the command where memory ran out, which libraries report by several kinds of errors."""
    from clip_geometry.memory import is_out_of_memory, out_of_memory

    if is_out_of_memory(error):
        _complain(out_of_memory(error))
        raise SystemExit(2) from None
