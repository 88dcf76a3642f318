"""Options that several commands have."""

from typing import Annotated, Literal

import typer

from clip_geometry.cli import completion
from clip_geometry.cli.arguments import measure_names, step_names

Overrides = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", show_default=False)]
EngineName = Annotated[
    Literal["local", "ray"], typer.Option("--engine", help="ray: processes on this machine or a cluster")
]
Steps = Annotated[
    str | None,
    typer.Option(
        help="steps before measuring, e.g. normalize,center[pooled]", autocompletion=completion.several(step_names)
    ),
]
MeasureNames = Annotated[
    str | None,
    typer.Option(help="names, e.g. isoscore,silhouette[cosine]", autocompletion=completion.several(measure_names)),
]
Address = Annotated[str | None, typer.Option(help="address of a Ray cluster; auto on one of its machines")]
Modality = Annotated[str | None, typer.Option("--as", help="modality of the rows, such as image or text")]
NoNormalize = Annotated[bool, typer.Option("--no-normalize", help="leave the rows the lengths that the map gives")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …; auto uses a GPU if there is one")]
