"""The commands `run` and `init`, which are entry points of the group `clip_geometry.commands`."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from clip_geometry.cli.options import Device, Overrides, require
from clip_geometry.registry import InputError, printable
from clip_geometry_experiments.run.config import find_config, shipped_configs
from clip_geometry_experiments.run.lists import experiment_names

TEMPLATES = {path.stem: path for path in sorted(Path(__file__).with_name("templates").glob("*.yaml"))}


def run(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG", help="a YAML file, or a name: list configs", autocompletion=lambda: [*shipped_configs()]
        ),
    ],
    overrides: Overrides = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="run the small version of the config, in seconds")] = False,
    published: Annotated[
        bool, typer.Option("--published", help="run the paper's own model and data; a folder of configs runs them all")
    ] = False,
    runs: Annotated[Path, typer.Option(help="folder of all runs")] = Path("runs"),
    device: Device = "auto",
) -> None:
    """Runs a config and writes a report. Running it again resumes.

    The folder runs/NAME-HASH has config.yaml, results.jsonl, figures and report.html.
    """
    if smoke and published:
        raise InputError("--smoke and --published were both given; choose one of them")
    if not published:
        check_config(config, overrides or [])

    from clip_geometry.config import parse_overrides
    from clip_geometry.paths import expanded

    changes = parse_overrides(overrides or [])
    command = shlex.join(["clip-geometry", *sys.argv[1:]])
    if not published:
        from clip_geometry_experiments.run.runner import run as run_config

        report = run_config(config, changes, smoke=smoke, runs=expanded(runs), device=device, command=command)
        print(printable(f"report: {report}"))
        return

    from clip_geometry_experiments.run.runner import RECORDED, own_setups, run_papers, statement

    statement(own_setups(config)).print()
    reports, failed = run_papers(config, changes, runs=expanded(runs), device=device, command=command)
    for report in reports:
        print(printable(f"report: {report}"))
    if reports:
        print(printable(f"rows beside published numbers: {expanded(runs) / RECORDED}"))
    if failed:
        raise InputError(
            f"{len(failed)} of {len(failed) + len(reports)} configs did not run: {', '.join(failed)}; the notes above "
            "say why, and the same command continues"
        )


def init(
    what: Annotated[Literal["measure", "train"], typer.Argument(help="what the config is for")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="the new file", show_default="WHAT.yaml")] = None,
) -> None:
    """Writes a commented config to start from.

    It runs without changes, and its comments say which lines to change for your own data.
    """
    from clip_geometry.files import claimed, write_atomically

    target = out or Path(f"{what}.yaml")
    command = f"clip-geometry run {shlex.quote(str(target))}"
    text = TEMPLATES[what].read_text(encoding="utf-8").replace(f"clip-geometry run {what}.yaml", command)
    with claimed(target) as mine:
        write_atomically(mine, text.encode())
    print(printable(f"config: {target}"))
    print(printable(f"next: {command}"))


def check_config(config: Path, overrides: Sequence[str]) -> None:
    """Check that the config exists and that its experiments are known, without importing torch or the experiments.

    The experiments are not checked if an override, the smoke section or a sweep may replace them.

    Raises:
        InputError: If the config does not exist or an experiment is unknown.
    """
    from clip_geometry.config import read_yaml

    values: Any = read_yaml(find_config(config))
    if any("experiment" in str(key) for key in (*overrides, values.get("smoke"), values.get("sweep"))):
        return
    parts = values.get("parts")
    for part in parts if isinstance(parts, list) else [values]:
        name = part.get("experiment") if isinstance(part, dict) else None
        if isinstance(name, str):
            require("experiment", name, experiment_names(), "clip-geometry list experiments")
