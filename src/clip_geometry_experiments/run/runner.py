"""Runs a config, or the configs of a paper: plans cells, skips finished ones, and writes the records and the report."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from clip_geometry.catalog import descriptions
from clip_geometry.config import Config, digest, read_yaml, validate
from clip_geometry.display.table import Table, TableColumn
from clip_geometry.files import exclusive, remove_temporaries, write_atomically, write_json
from clip_geometry.paths import expanded
from clip_geometry.progress import note, progress
from clip_geometry.registry import InputError, did_you_mean, library_versions, listed, shown
from clip_geometry.results import CELLS, Results, Row
from clip_geometry_experiments.kit.base import Experiment, RunFolder, experiments
from clip_geometry_experiments.kit.training import remove_finished_checkpoints
from clip_geometry_experiments.published.recorded import record_run
from clip_geometry_experiments.published.tables import beside
from clip_geometry_experiments.report.page import Section, write_report
from clip_geometry_experiments.run.config import PUBLISHED, SMOKE, expand_sweep, find_config, shipped_configs
from clip_geometry_experiments.run.parts import PAGE, change, spread


class Needs(Config):
    """Keys of the section `published:` that state what the run needs, in addition to the keys that it replaces.

    Args:
        downloads: What the run downloads unless it is already there → its approximate size in GB; null if unknown.
        fetch: What has to be fetched beforehand, see docs/data.md → its size in GB.
        hours: Estimated hours on one GPU.
    """

    downloads: dict[str, float | None] = Field(default_factory=dict)
    fetch: dict[str, float | None] = Field(default_factory=dict)
    hours: float


def resolve(path: str | Path, overrides: Mapping[str, Any], *, smoke: bool, published: bool = False) -> dict[str, Any]:
    """Read a config and apply its section `smoke:` or `published:`, if requested, and then the overrides.

    Args:
        path: A YAML config, or the name of a config of the package.
        overrides: New values by dotted key.
        smoke: Apply the section `smoke:`.
        published: Apply the section `published:`.

    Returns:
        The config as one mapping. If it has `parts`, each of them is a complete config.

    Raises:
        InputError: If the requested section is missing or a key is unknown.
    """
    values = read_yaml(find_config(path))
    sections = {name: values.pop(name, None) for name in (SMOKE, PUBLISHED)}
    name = SMOKE if smoke else PUBLISHED
    section = sections[name] if smoke or published else {}
    if not isinstance(section, dict):
        raise InputError(f"{path} has no section {name!r}; expected dotted keys and their {'small ' * smoke}values")
    section = {key: value for key, value in section.items() if not (published and key in Needs.model_fields)}
    values = spread(values, str(path))
    for changes in (section, overrides):
        values = change(values, changes, str(path))
    return values


def plan(values: Mapping[str, Any], context: str) -> list[tuple[type[Experiment], Any]]:
    """Return the experiment and the validated config of each point of the sweep, part by part.

    Args:
        values: The config, as returned by `resolve`.
        context: Name of the config, for messages.

    Raises:
        InputError: If the config is invalid.
    """
    return [point for part in plan_parts(values, context) for point in part]


def plan_parts(values: Mapping[str, Any], context: str) -> list[list[tuple[type[Experiment], Any]]]:
    """Like `plan`, but return one list per part. A config without `parts` is a single part."""
    planned = []
    complete = spread(values, context)
    for part in complete.get("parts", [complete]):
        points = []
        for point in expand_sweep(part):
            if not isinstance(point.get("experiment"), str):
                known = did_you_mean("", experiments, listed_by=experiments.listed_by)
                raise InputError(f"{context}: key 'experiment' is missing{known}")
            kind = experiments[point["experiment"]]
            points.append((kind, validate(kind.Config, point, context)))
        planned.append(points)
    return planned


def run(
    path: str | Path,
    overrides: Mapping[str, Any],
    *,
    smoke: bool = False,
    published: bool = False,
    runs: Path = Path("runs"),
    device: str = "auto",
    command: str = "",
) -> Path:
    """Run the experiments of a config. The same call resumes an interrupted run.

    The folder `<runs>/<name>-<hash of the resolved config>/` holds config.yaml, results.jsonl, figures/, report.html
    and provenance.yaml.

    Args:
        path: A YAML config, or the name of a config of the package, such as "quickstart".
        overrides: New values by dotted key, e.g. {"pairs.size": 100}.
        smoke: Apply the config's section `smoke`: small models, few items.
        published: Apply the config's section `published`: the model, data and sizes of the paper.
        runs: Folder of all runs.
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", ….
        command: The command shown in the report.

    Returns:
        Path of the report.

    Raises:
        InputError: If anything in the config is wrong.

    Example:
        >>> import json, tempfile
        >>> from pathlib import Path
        >>> import clip_geometry as cg
        >>> from clip_geometry_experiments.run.runner import run
        >>> config = {"name": "tiny", "experiment": "geometry", "model": "scenes-clip/fresh", "figures": []}
        >>> config |= {"pairs": {"name": "scenes", "size": 8}, "measures": ["modality_gap"]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "tiny.yaml")
        ...     _ = path.write_text(json.dumps(config))
        ...     report = run(path, {}, runs=Path(folder, "runs"), device="cpu")
        ...     rows = cg.read_rows(report.parent)
        >>> report.name, rows[0]["measure"]
        ('report.html', 'modality_gap')
    """
    values = resolve(path, overrides, smoke=smoke, published=published)
    planned = plan_parts(values, str(path))
    page = {key: str(values.get(key, "")) for key in PAGE}
    resolved = [[config.model_dump(mode="json", serialize_as_any=True) for _, config in part] for part in planned]
    name = f"{page['name']}{'-smoke' if smoke else ''}-{digest(resolved if len(resolved) > 1 else resolved[0], 10)}"
    workspace = RunFolder(runs / name, device)
    workspace.folder.mkdir(parents=True, exist_ok=True)
    with exclusive(workspace.folder, lambda: note(f"waiting for another process that runs {workspace.folder}")):
        remove_temporaries(workspace.folder)
        parts = [points[0] if len(points) == 1 else {"grid": points} for points in resolved]
        document = parts[0] if len(parts) == 1 else {**page, "parts": parts}
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        write_atomically(workspace.folder / "config.yaml", text.encode())
        provenance = {
            "command": command,
            "config": str(path),
            "python": sys.version.split()[0],
            "versions": library_versions(),
        }
        write_atomically(workspace.folder / "provenance.yaml", yaml.safe_dump(provenance, sort_keys=False).encode())
        parts = [[kind(config, workspace) for kind, config in part] for part in planned]
        results = Results(workspace.folder / "results.jsonl")
        cells, names = {}, {}
        for part in parts:
            for k, experiment in enumerate(part, start=1):
                place = [experiment.config.title] if len(parts) > 1 else []
                if len(part) > 1:
                    place.append(f"{k} of {len(part)} runs")
                for cell in experiment.cells():
                    cells[cell.key] = cell
                    names[cell.key] = f"{cell.what} ({', '.join(place)})" if place else cell.what
        finished = results.finished() & cells.keys()
        with progress("cells", total=len(cells), done=len(finished)) as advance:
            for key, cell in cells.items():
                if key not in finished:
                    advance.now(names[key])
                    results.append(key, cell.compute())  # each cell is written as soon as it is done
                    remove_finished_checkpoints(workspace.folder)
                    advance(1)
        remove_finished_checkpoints(workspace.folder)
        write_json(workspace.folder / CELLS, {"finished": list(cells)})
        own = {name: text for experiment in chain(*parts) for name, text in experiment.explanations.items()}
        sections = []
        with progress("sections of the report", total=len(parts)) as advance:
            for k, part in enumerate(parts, start=1):
                figures_in = workspace.folder / "figures" / (f"part-{k}" if len(parts) > 1 else "")
                sections.append(_section(part, results.read(), figures_in))
                advance(1)
        return write_report(
            workspace.folder / "report.html",
            title=page["title"] or page["name"],
            intro=page["description"],
            sections=sections,
            explanations={**descriptions, **own},
            command=command or shlex.join(["clip-geometry", "run", "config.yaml"]),
            config=text,
            versions=library_versions(),
            smoke=smoke,
        )


def _section(planned: Sequence[Experiment], rows: Sequence[Row], figures_in: Path) -> Section:
    """Return the report's section of one part."""
    first = planned[0]
    many = len(planned) > 1
    wanted = {cell.key: experiment for experiment in planned for cell in experiment.cells()}
    rows = [row for row in rows if row["cell"] in wanted]
    figures = []
    for k, experiment in enumerate(planned, start=1):
        prefix, group = (f"{k:02d}-", experiment.label()) if many else ("", "")
        figures += experiment.figures(figures_in, prefix=prefix, group=group)
    if many:
        figures = type(first).together(planned, figures_in) + figures
    by_run = [experiment.facts() for experiment in planned]
    facts = dict(by_run[0])
    for key in facts:
        if any(of_run.get(key) != facts[key] for of_run in by_run):  # list the facts of all runs side by side
            facts[key] = " | ".join(dict.fromkeys(str(of_run.get(key)) for of_run in by_run))
    return Section(
        title=first.config.title,
        intro=first.config.description,
        facts=facts,
        sentences=type(first).sentences(planned),
        rows=[row for row in rows if wanted[row["cell"]].tabled(row)],
        beside=beside(rows, first.config.name),
        figures=figures,
        fresh_models=sorted({model for experiment in planned for model in experiment.fresh_models()}),
    )


# --- the papers' own setups

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
