"""The papers' own setups: what a config needs to run the paper's model and data, and runs of whole papers."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from clip_geometry.config import read_yaml, validate
from clip_geometry.display.table import Table, TableColumn
from clip_geometry.paths import expanded
from clip_geometry.progress import note
from clip_geometry.registry import InputError, listed, shown
from clip_geometry_experiments.published.recorded import record_run
from clip_geometry_experiments.run.config import PUBLISHED, find_config, shipped_configs
from clip_geometry_experiments.run.runner import Needs, run

RECORDED = "reproduction"  # folder inside the folder of all runs, like docs/reproduction


def needs_of(path: Path) -> Needs | None:
    """Return what the paper's own setup of a config needs; None if the config does not have that setup."""
    section = read_yaml(path).get(PUBLISHED)
    if not isinstance(section, dict):
        return None
    return validate(Needs, {key: section[key] for key in Needs.model_fields if key in section}, f"{path}: {PUBLISHED}")


def own_setups(given: str | Path) -> dict[Path, Needs]:
    """Return the configs that have the paper's own setup, with what they need.

    Args:
        given: One config, or a folder of configs such as `tyshchuk2023`.

    Raises:
        InputError: If no config has such a setup.
    """
    folder = expanded(given)
    name = Path(given).as_posix().removeprefix("configs/").rstrip("/")
    paths = [path for known, path in shipped_configs().items() if known.startswith(f"{name}/")]
    if folder.is_dir():
        paths = sorted(folder.glob("*.yaml"))
    needs = {path: needs_of(path) for path in paths or [find_config(given)]}
    setups = {path: of_config for path, of_config in needs.items() if of_config}
    if not setups:
        raise InputError(f"{shown(given)} has no config with a section '{PUBLISHED}', the setup of a paper")
    return setups


def statement(setups: Mapping[Path, Needs]) -> Table:
    """Return a table of what the runs download, what has to be fetched beforehand, and how long they take."""
    rows, downloads, fetched = [], {}, {}
    for path, needs in setups.items():
        downloads |= needs.downloads
        fetched |= needs.fetch
        rows.append([path.stem, listed(needs.downloads), listed(needs.fetch), f"{needs.hours:g}"])
    hours = sum(needs.hours for needs in setups.values())
    sizes = [
        f"{name}: {'size unknown' if size is None else f'{size:g} GB'}"
        for name, size in {**downloads, **fetched}.items()
    ]
    total = (
        f"{len(setups)} configs in the paper's own setup: up to {_sum(downloads):.3g} GB of downloads, "
        f"{_sum(fetched):.3g} GB to fetch before (docs/data.md), about {hours:.2g} hours on one GPU"
    )
    columns = (
        TableColumn("config"),
        TableColumn("downloads"),
        TableColumn("to fetch before"),
        TableColumn("hours", "number"),
    )
    return Table(columns, {"": rows}, verdict=[total], legend=[*sizes, "hours: estimated, not measured"])


def _sum(sizes: Mapping[str, float | None]) -> float:
    return sum(filter(None, sizes.values()))


def run_papers(
    given: str | Path, overrides: Mapping[str, Any], *, runs: Path, device: str, command: str
) -> tuple[list[Path], list[str]]:
    """Run one config, or all of a folder, in the paper's own setup, and record rows that match published numbers.

    Calling it again continues. A config that cannot run, for example because its data are missing, does not stop the
    others.

    Args:
        given: A config or a folder of configs, as a path or a name of the package.
        overrides: New values by dotted key, which apply to every config.
        runs: Folder of all runs. The recorded rows go to the folder `reproduction` in it.
        device: The device, as in `run`.
        command: The command shown in the reports.

    Returns:
        The paths of the reports, and the names of the configs that did not run; a note was printed with the reason.
    """
    reports, failed = [], []
    for path in own_setups(given):
        note(f"{path.stem}, in the paper's own setup")
        try:
            report = run(path, overrides, published=True, runs=runs, device=device, command=command)
        except InputError as error:
            note(f"{path.stem} did not run: {error}")
            failed.append(path.stem)
            continue
        reports.append(report)
        with suppress(InputError):  # no row matches a published number
            record_run(report.parent, runs / RECORDED, label=PUBLISHED)
    return reports, failed
