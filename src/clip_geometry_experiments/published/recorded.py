"""Recorded rows of runs.

The rows for published numbers are in docs/reproduction/<run>.jsonl, those of trainings in docs/training/<run>.jsonl,
and those of an article in docs/findings/records/<run>.jsonl.
"""

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
from clip_geometry_experiments.published.comparing import selected

KEPT = (
    "measure", "value", "standard_error", "n", "d", "pipeline", "fitted_on", "model", "model_options", "dataset",
    "data_options", "split", "seed", "updates", "seeds", "at", "null_value", "seed_values", "null_values",
)  # fmt: skip
KEPT_OF_TRAINING = (*KEPT, "trajectory", "steps", "note")
DIGITS = 5  # significant digits in a trajectory


def record_run(
    run: Path,
    folder: Path,
    choose: Callable[[list[Row]], Sequence[Row]] | None = None,
    *,
    keys: Sequence[str] | None = KEPT,
    label: str = "",
) -> Path:
    """Write rows of a finished run to a file.

    Each row gets the command, the name of the run, the date of the last row and the version of the package.

    Args:
        run: The run folder.
        folder: Folder of the file.
        choose: Function that takes the rows of the run and returns the rows to write. Default: the rows that the ledger
            selects.
        keys: The keys to keep; None for all.
        label: Distinguishes runs of the same config, such as runs of another model.

    Returns:
        folder/<name of the run>[.label].jsonl.

    Raises:
        InputError: If the folder is not a finished run, if it is a smoke run, or if no row is chosen.
    """
    config = read_yaml(run / "config.yaml")
    name = str((config.get("grid") or [config])[0].get("name"))
    if run.resolve().name.startswith(f"{name}-smoke-"):
        raise InputError(f"{run} is a smoke run, too small to compare with published numbers; run the config itself")
    finished = set((read_json(run / CELLS) or {}).get("finished", ()))
    if not finished:
        raise InputError(f"{run} is not a finished run; the same clip-geometry run continues it")
    rows: list[Row] = [row for row in read_rows(run) if row["cell"] in finished]
    chosen = selected(rows, name) if choose is None else choose(rows)
    if not chosen:
        raise InputError(f"no row of {run}, a run of {name}, is selected; there is nothing to record")
    provenance = read_yaml(run / "provenance.yaml")
    written = datetime.fromtimestamp((run / "results.jsonl").stat().st_mtime, tz=UTC)
    origin = {
        "command": re.sub(r" --runs \S+", "", _portable(provenance.get("command") or "")),
        "date": written.date().isoformat(),
        "version": (provenance.get("versions") or {}).get("clip-geometry"),
        "run": name,
    }
    compact = [_compact(row, keys) if keys else dict(row) for row in chosen]
    lines = [json.dumps(row | origin, ensure_ascii=False) for row in compact]
    path = folder / f"{name}{'.' if label else ''}{label}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read_recorded(folder: Path) -> dict[str, list[Row]]:
    """Read all files of a folder. Return the name of each run → its recorded rows."""
    by_run: dict[str, list[Row]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            by_run.setdefault(row["run"], []).append(row)
    return by_run


def _compact(row: Mapping[str, Any], keys: Sequence[str]) -> Row:
    """Return a row with only the given keys, portable paths and rounded trajectories."""
    compact = {key: _portable(row[key]) for key in keys if row.get(key) is not None}
    if "trajectory" in compact:
        compact["trajectory"] = [
            None if value is None else float(f"{value:.{DIGITS}g}") for value in compact["trajectory"]
        ]
    return {key: value for key, value in compact.items() if value != {}}


def _portable(value: Any) -> Any:
    """Remove the folders of this machine from paths: keep only file names, and configs from configs/ on."""
    if isinstance(value, Mapping):
        return {key: _portable(part) for key, part in value.items()}
    if not isinstance(value, str):
        return value
    return _ABSOLUTE.sub(lambda path: re.sub(r"^.*?/(?=configs/)|^.*/", "", path[0]), value)


_ABSOLUTE = re.compile(r"(?<![\w:/.)\]-])/(?:[\w.@+-]+/)+[\w.@+-]+")
