"""Configs from the command line: run one, write one to start from, list what they may name."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from clip_geometry.cli import completion
from clip_geometry.cli.commands.options import Device, Overrides
from clip_geometry.cli.early import check_config, shipped
from clip_geometry.registry import InputError, did_you_mean, listed, printable, shown

TEMPLATES = {path.stem: path for path in sorted((Path(__file__).parents[1] / "templates").glob("*.yaml"))}


def run(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG", help="a YAML file, or a name: list configs", autocompletion=completion.config),
    ],
    overrides: Overrides = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="run the small version of the config, in seconds")] = False,
    runs: Annotated[Path, typer.Option(help="folder of all runs")] = Path("runs"),
    device: Device = "auto",
) -> None:
    """Runs a config and writes a report; run again, it resumes.

    The folder runs/NAME-HASH has config.yaml, results.jsonl, figures and report.html.
    """
    check_config(config, overrides or [])

    from clip_geometry.config import parse_overrides
    from clip_geometry.paths import expanded
    from clip_geometry_experiments.run.runner import run as run_config

    command = shlex.join(["clip-geometry", *sys.argv[1:]])
    report = run_config(
        config, parse_overrides(overrides or []), smoke=smoke, runs=expanded(runs), device=device, command=command
    )
    print(printable(f"report: {report}"))


def init(
    what: Annotated[
        str,
        typer.Argument(
            metavar="diagnose|measure|train",
            help="what the config is for",
            autocompletion=completion.one_of("diagnose", "measure", "train"),
        ),
    ],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="the new file", show_default="WHAT.yaml")] = None,
) -> None:
    """Writes a commented config to start from.

    It runs as it is, and says which lines to change for your own data.
    """
    from clip_geometry.files import claimed, write_atomically

    if what not in TEMPLATES:
        near = did_you_mean(what, TEMPLATES) or f"; known are {listed(TEMPLATES)}"
        raise InputError(f"there is no config to start from for {shown(what)}{near}")
    target = out or Path(f"{what}.yaml")
    command = f"clip-geometry run {shlex.quote(str(target))}"
    text = TEMPLATES[what].read_text(encoding="utf-8").replace(f"clip-geometry run {what}.yaml", command)
    with claimed(target) as mine:
        write_atomically(mine, text.encode())
    print(printable(f"config: {target}"))
    print(printable(f"next: {command}"))


def list_names(
    what: Annotated[
        str,
        typer.Argument(
            metavar="measures|evaluators|models|datasets|formats|tasks|transforms|repairs|checks|experiments|configs",
            autocompletion=lambda incomplete: [*shipped()["index"], "models"],
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="explain this one in full", autocompletion=completion.listed_name),
    ] = None,
) -> None:
    """Lists what is available, or explains one of it."""
    from clip_geometry.cli.lists import print_list

    print_list(what, name)
