"""`clip-geometry list`: what the other commands may name."""

from typing import Annotated

import typer

from clip_geometry.cli import completion
from clip_geometry.cli.lists import LISTS, all_lists, print_list


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
) -> None:
    """Lists what is available, or explains one of it."""
    print_list(what, name)
