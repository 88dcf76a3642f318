"""`clip-geometry list`: what the other commands may name."""

import json
from typing import Annotated

import typer

from clip_geometry.cli import completion
from clip_geometry.cli.options import JsonFile
from clip_geometry.cli.lists import LISTS, all_lists, list_table
from clip_geometry.display.table import WIDTH


def list_names(
    what: Annotated[
        str,
        typer.Argument(
            metavar="LIST",
            help=", ".join(LISTS),
            autocompletion=lambda incomplete: [*all_lists()],
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="explain this one in full", autocompletion=completion.listed_name),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Lists what is available, or explains one of it."""
    found = list_table(what, name)
    found.print(most=WIDTH)
    if json_file is not None:
        from clip_geometry.files import write_text  # imports NumPy

        write_text(json_file, json.dumps(found.as_dict(), indent=1, ensure_ascii=False) + "\n")
