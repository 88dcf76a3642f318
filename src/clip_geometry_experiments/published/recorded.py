"""Recorded rows of runs: those beside published numbers in docs/reproduction/<run>.jsonl, trainings in
docs/training/<run>.jsonl, those of an article in docs/findings/records/<run>.jsonl."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clip_geometry.config import read_yaml
from clip_geometry.files import read_json
from clip_geometry.registry import InputError
from clip_geometry.results import CELLS, Row, read_rows
from clip_geometry_experiments.published.comparing import flat, matches, selected
from clip_geometry_experiments.published.ledger import Where

KEPT = (
    "measure", "value", "standard_error", "n", "d", "pipeline", "fitted_on", "model", "model_options", "dataset",
    "data_options", "split", "seed", "updates", "seeds", "at", "null_value", "seed_values", "null_values",
)  # fmt: skip
KEPT_OF_TRAINING = (*KEPT, "trajectory", "steps", "note")
DIGITS = 5  # of the numbers of a trajectory


def record_run(run: Path, folder: Path, *, where: Where | None = None, label: str = "") -> Path:
    """Write the rows of a run that the ledger selects, or those that fulfill other selectors.

    Args:
        run: The run folder.
        folder: Where the file goes.
        where: Selectors (see `comparing`) of rows for an article.
        label: Distinguishes runs of one config, such as those of another model.

    Returns:
        folder/<name of the run>[.label].jsonl.

    Raises:
        InputError: If the folder is not a finished run, is a smoke run, or none of its rows is selected.
    """
    name, rows = _name(run), _finished(run)
    if where is None:
        rows = selected(rows, name)
    else:
        rows = [row for row in rows if row["value"] is not None and matches(flat(row), where)]
    if not rows:
        chosen_by = "the ledger" if where is None else str(dict(where))
        raise InputError(f"{run} is a run of {name}, of which {chosen_by} selects no row; nothing to record")
    return _write([_compact(row, KEPT) for row in rows], run, folder, name, label)


def record_training(run: Path, folder: Path, *, label: str = "") -> Path:
    """Write all rows of a training, its trajectories to five digits.

    Args and return value are those of `record_run`. Raises InputError also for a run without trajectories.
    """
    name = _name(run)
    rows = _finished(run)
    if not any("trajectory" in row for row in rows):
        raise InputError(f"{run} is a run of {name}, whose rows have no trajectory; expected a training")
    return _write([_compact(row, KEPT_OF_TRAINING) for row in rows], run, folder, name, label)


def record_lines(run: Path, folder: Path, compact: Callable[[list[Row]], Sequence[Mapping[str, Any]]]) -> Path:
    """Write the lines that an experiment makes of all rows of a run, where these are too many.

    Args and return value are otherwise those of `record_run`.
    """
    name = _name(run)
    return _write([dict(line) for line in compact(_finished(run))], run, folder, name, "")


def _finished(run: Path) -> list[Row]:
    finished = set((read_json(run / CELLS) or {}).get("finished", ()))
    if not finished:
        raise InputError(f"{run} is no finished run; the same clip-geometry run continues it")
    return [row for row in read_rows(run) if row["cell"] in finished]


def _write(rows: Sequence[Row], run: Path, folder: Path, name: str, label: str) -> Path:
    shared = _origin(run) | {"run": name}
    lines = [json.dumps(row | shared, ensure_ascii=False) for row in rows]
    path = folder / f"{name}{'.' if label else ''}{label}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read_recorded(folder: Path) -> dict[str, list[Row]]:
    """Name of a run → its recorded rows, from all files of the folder."""
    found: dict[str, list[Row]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                row = json.loads(line)
                found.setdefault(row["run"], []).append(row)
            except (ValueError, TypeError, KeyError):
                raise InputError(f"{path}, line {number} is no recorded row; record the run again") from None
    return found


def _name(run: Path) -> str:
    config = read_yaml(run / "config.yaml")
    points = config.get("grid") or [config]
    name = str(points[0].get("name"))
    if run.resolve().name.startswith(f"{name}-smoke-"):
        raise InputError(f"{run} is a smoke run, too small to stand beside published numbers; run the config itself")
    return name


def _origin(run: Path) -> dict[str, Any]:
    """The date of the last row, the command and the version of the package."""
    provenance = read_yaml(run / "provenance.yaml")
    written = datetime.fromtimestamp((run / "results.jsonl").stat().st_mtime, tz=UTC)
    version = (provenance.get("versions") or {}).get("clip-geometry")
    # where the run lies says nothing
    command = re.sub(r" --runs \S+", "", str(_portable(provenance.get("command") or "")))
    return {"command": command, "date": written.date().isoformat(), "version": version}


def _compact(row: Mapping[str, Any], keys: Sequence[str]) -> Row:
    kept = {key: _portable(row[key]) for key in keys if row.get(key) is not None}
    if "trajectory" in kept:
        kept["trajectory"] = [None if each is None else float(f"{each:.{DIGITS}g}") for each in kept["trajectory"]]
    return {key: value for key, value in kept.items() if value != {}}


def _portable(value: Any) -> Any:
    """Without the folders of this machine: only file names, and configs from their folder on."""
    if isinstance(value, Mapping):
        return {key: _portable(part) for key, part in value.items()}
    if not isinstance(value, str):
        return value
    return _ABSOLUTE.sub(lambda path: re.sub(r"^.*?/(?=configs/)|^.*/", "", path[0]), value)


_ABSOLUTE = re.compile(r"(?<![\w:/.)\]-])/(?:[\w.@+-]+/)+[\w.@+-]+")
