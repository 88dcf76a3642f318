"""The command line: the commands of this package and of other packages, and the reporting of their errors."""

import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from clip_geometry.cli import doctor, gate, index, lists, maps, measure, stores
from clip_geometry.memory import is_out_of_memory, out_of_memory, return_large_blocks
from clip_geometry.progress import note
from clip_geometry.registry import MOST, InputError, of_packages, printable, shortened, shown

INTERRUPTED = 130
# in the order of --help
COMMANDS = {
    "measure": measure.measure,
    "embed": stores.embed,
    "fit": maps.fit,
    "apply": maps.apply,
    "migrate": maps.migrate,
    "ship": maps.ship,
    "export": stores.export,
    "compare": measure.compare,
    "diagnose": index.diagnose,
    "compress": index.compress,
    "match": index.match,
    "gate": gate.gate,
    "explore": index.explore,
    "list": lists.list_names,
    "doctor": doctor.doctor,
}
HELP = {"help_option_names": ["-h", "--help"]}


def examples() -> dict[str, str]:
    """Return the examples at the end of the help, by command; those of the whole program are under its own name."""
    text = Path(__file__).with_name("examples.txt").read_text(encoding="utf-8")
    blocks = (block.partition("\n") for block in text.strip().split("\n\n"))
    return {name: f"\b\nExamples:\n{lines}" for name, _, lines in blocks}  # \b keeps the line breaks


EXAMPLES = examples()


class _Group(TyperGroup):
    """The commands of this package and of other packages, which are imported when they are called or listed.

    The entry points of the group `clip_geometry.commands` are functions like those in `COMMANDS`.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *(entry.name for entry in of_packages("clip_geometry.commands"))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is None:
            for entry in of_packages("clip_geometry.commands"):
                if entry.name == cmd_name:
                    only = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
                    _add(only, entry.name, entry.load())
                    command = typer.main.get_command(only)
        return command


def _add(app: typer.Typer, name: str, command: Callable) -> None:
    app.command(name, epilog=EXAMPLES.get(name), context_settings=HELP)(command)


app = typer.Typer(
    name="clip-geometry",
    cls=_Group,
    help="Measures, explains and changes the geometry of multimodal (CLIP) embeddings.",
    epilog=EXAMPLES["clip-geometry"],
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP,
)
for name, command in COMMANDS.items():
    _add(app, name, command)


def _print_version(is_given: bool) -> None:
    """Print the version and exit, for the option --version."""
    if is_given:
        from importlib.metadata import version

        print(f"clip-geometry {version('clip-geometry')}")
        raise typer.Exit


@app.callback()
def _global(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks of errors; may be given anywhere")] = False,
) -> None:
    pass  # typer calls this before the subcommand; it only declares the options of the whole command


def main() -> None:
    """Run the command line. A user error prints one sentence and exits with status 2; --debug shows the traceback."""
    # Set before torch is imported, which reads it. OpenMP threads spin 300,000 times before they sleep. If other
    # processes use the same cores, a table of 500 pairs then takes 50 to 70 s instead of 20 to 34 s. Not spinning at
    # all (OMP_WAIT_POLICY=PASSIVE) is as good there, but takes 15 s instead of 8 s on an idle machine.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    return_large_blocks()
    _prepare_streams()
    with warnings.catch_warnings():
        warnings.showwarning = _on_one_line(warnings.showwarning)
        try:
            _run()
        finally:
            _flush()


def _prepare_streams() -> None:
    """Prepare standard streams that are closed or whose encoding is limited.

    Closed streams are opened on /dev/null, so that no other file gets their descriptor and receives their output.
    Characters that the terminal's encoding lacks are replaced by question marks.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                os.fstat(number)
                continue
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if number == 0 else "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _flush() -> None:
    """Flush standard output before Python does so at exit, when an error can no longer be reported."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # e.g. `| head`, which is not an error
            raise SystemExit(1) from None
        _report(f"standard output cannot be written to: {error.strerror}")
        raise SystemExit(2) from None


def _on_one_line(show_foreign: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for `warnings.showwarning` that prints warnings of this package on one line, each once."""
    seen = set()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not category.__module__.startswith("clip_geometry."):
            show_foreign(message, category, *place, **more)
        elif str(message) not in seen:
            seen.add(str(message))
            _report(f"warning: {message}")

    return show


def _report(message: str) -> None:
    """Print a message as one line on stderr, shortened if it is too long."""
    note(f"clip-geometry: {shortened(printable(message), MOST)}")


def _run() -> None:
    """Run the command line, and exit with status 2 and one sentence after an error of the user."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        status = app(args=arguments, prog_name="clip-geometry", standalone_mode=False)
    except BrokenPipeError:  # `| head` has seen enough
        raise SystemExit(1) from None
    except Exception as error:
        sentence = _sentence(error)
        if hasattr(error, "format_message"):  # a usage error of typer
            _report_usage_error(error)
        elif "--debug" in sys.argv or sentence is None:
            traceback.print_exc()  # with status 2, since 1 is an answer of `gate check`
        else:
            _report(sentence)
        raise SystemExit(2) from None
    if status == INTERRUPTED:  # typer's status after Ctrl-C
        command = next((argument for argument in arguments if not argument.startswith("-")), "")
        hint = f"; run the same {command} command again to continue" if command in ("embed", "run") else ""
        _report(f"interrupted{hint}")
    raise SystemExit(status)  # commands return None, which means success


def _report_usage_error(error: Any) -> None:
    """Print the message of a typer error and a hint at --help; without any command, print the help."""
    if type(error).__name__ == "NoArgsIsHelpError":  # no command was given
        with suppress(BrokenPipeError):  # `| head` has seen enough
            print(error.format_message())
        return
    path = getattr(getattr(error, "ctx", None), "command_path", "clip-geometry")
    message = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    _report(f"{message} (see {path} --help)")


def _sentence(error: Exception) -> str | None:
    """Return the message for an error of the user, the disk or the memory; None for a bug."""
    if isinstance(error, InputError):
        return str(error)
    if is_out_of_memory(error):
        return out_of_memory(error)
    if isinstance(error, OSError):  # permissions, a full disk
        problem = "a file cannot be written or read"
        if error.filename:
            problem = f"cannot use {shown(Path(str(error.filename)))}"
        return f"{problem}: {error.strerror or error}"
    return None
