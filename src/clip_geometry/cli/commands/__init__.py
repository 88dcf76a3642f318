"""The commands of `clip-geometry`: their names, options and help, by subject."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from clip_geometry.cli.commands import index, maps, measuring, runs, stores

# in the order of the help
COMMANDS = {
    "run": runs.run,
    "init": runs.init,
    "measure": measuring.measure,
    "embed": stores.embed,
    "fit": maps.fit,
    "apply": maps.apply,
    "ship": maps.ship,
    "export": stores.export,
    "compare": measuring.compare,
    "diagnose": index.diagnose,
    "explore": index.explore,
    "list": runs.list_names,
}


def examples() -> dict[str, str]:
    """Examples of each command, and of the whole under its own name, as they end the help."""
    text = (Path(__file__).parents[1] / "examples.txt").read_text(encoding="utf-8")
    blocks = (block.partition("\n") for block in text.strip().split("\n\n"))
    return {name: lines for name, _, lines in blocks}


class _WithExamples(TyperGroup):
    """Commands whose help ends with examples, line by line."""

    def __init__(self, **given: Any):
        super().__init__(**given)
        found = examples()
        for name, command in (("clip-geometry", self), *self.commands.items()):
            if name in found:
                command.epilog = f"\b\nExamples:\n{found[name]}"  # \b keeps lines as they are


app = typer.Typer(
    name="clip-geometry",
    cls=_WithExamples,
    help="Measures, explains and changes the geometry of multimodal (CLIP) embeddings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
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
