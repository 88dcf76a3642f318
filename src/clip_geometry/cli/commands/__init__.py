"""The commands of `clip-geometry`: their names, options and help, by subject."""

import functools
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from clip_geometry.cli import index, measure, stores
from clip_geometry.cli.commands import listing, maps
from clip_geometry.registry import of_packages

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
# in the order of the help
COMMANDS = {
    "measure": measure.measure,
    "embed": stores.embed,
    "fit": maps.fit,
    "apply": maps.apply,
    "ship": maps.ship,
    "export": stores.export,
    "compare": measure.compare,
    "diagnose": index.diagnose,
    "explore": index.explore,
    "list": listing.list_names,
}


def examples() -> dict[str, str]:
    """Examples of each command, and of the whole under its own name, as they end the help."""
    text = (Path(__file__).parents[1] / "examples.txt").read_text(encoding="utf-8")
    blocks = (block.partition("\n") for block in text.strip().split("\n\n"))
    return {name: lines for name, _, lines in blocks}


@functools.cache
def discovered() -> dict[str, Any]:
    """The commands of other packages: the entry points of the group `clip_geometry.commands` are functions as those of
    `COMMANDS`."""
    found = {}
    for entry in of_packages("clip_geometry.commands"):
        one = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        one.command(entry.name, context_settings=HELP_OPTIONS)(entry.load())
        found[entry.name] = _with_examples(entry.name, typer.main.get_command(one))
    return found


def _with_examples(name: str, command: Any) -> Any:
    if name in (known := examples()):
        command.epilog = f"\b\nExamples:\n{known[name]}"  # \b keeps lines as they are
    return command


class _Group(TyperGroup):
    """Commands, those of other packages included, whose help ends with examples, line by line."""

    def __init__(self, **given: Any):
        super().__init__(**given)
        for name, command in (("clip-geometry", self), *self.commands.items()):
            _with_examples(name, command)

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *discovered()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or discovered().get(cmd_name)


app = typer.Typer(
    name="clip-geometry",
    cls=_Group,
    help="Measures, explains and changes the geometry of multimodal (CLIP) embeddings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP_OPTIONS,
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"clip-geometry {version('clip-geometry')}")
        raise typer.Exit


@app.callback()
def _global(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="show throughput; may be given anywhere")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks of errors; may be given anywhere")] = False,
) -> None:
    pass


for name, command in COMMANDS.items():
    app.command(name)(command)
