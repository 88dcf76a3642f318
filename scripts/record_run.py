"""Record a finished run for the docs; run build_docs.py afterwards.

Writes the records that have published numbers to docs/reproduction/, all records of a train_clip run to docs/training/,
or those that fulfill selectors (clip_geometry_experiments.published.comparing) to docs/findings/records/, or the whole
repair table there, a line for each set and repair.

python scripts/record_run.py runs/tyshchuk2023-zero_shot-0123456789 [--label vit-b-32]
python scripts/record_run.py runs/train_scenes_arms-0123456789 --training
python scripts/record_run.py runs/rudman2024-stability-0123456789 --where '{measure: stability.bias}'
python scripts/record_run.py runs/repairs-0123456789 --table
"""

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from clip_geometry.config import read_yaml
from clip_geometry.registry import InputError
from clip_geometry_experiments.published.comparing import flat, matches
from clip_geometry_experiments.published.recorded import KEPT_OF_TRAINING, record_run
from clip_geometry_experiments.studies.repair_table.table import NUMBERS, RepairTable, table_of

ROOT = Path(__file__).parents[1]
DIGITS = 4  # of compact records


def compact(table: RepairTable) -> list[dict[str, Any]]:
    """The table with a line for each set and repair, numbers to four digits, for records that are shipped."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for cell in table.cells.to_dict("records"):
        line = {"set": cell["set"], "control": cell["set"] in table.controls, "n": cell["n"], "d": cell["d"]}
        line |= {"splits": table.splits, "repair": cell["repair"], "values": {}}
        line = lines.setdefault((cell["set"], cell["repair"]), line)
        if pd.isna(cell["value"]):
            line.setdefault("notes", {})[cell["measure"]] = cell["note"]
        else:
            numbers = [float(f"{cell[name]:.{DIGITS}g}") for name in NUMBERS[:4]]
            line["values"][cell["measure"]] = [*numbers, cell["verdict"]]
    return list(lines.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("--label", default="", help="distinguishes it from other recorded runs of this config")
    parser.add_argument("--training", action="store_true", help="the run is of train_clip")
    parser.add_argument("--table", action="store_true", help="the run is of repair_table")
    parser.add_argument("--where", type=yaml.safe_load, help="selectors of records for an article, as YAML")
    given = parser.parse_args()
    folder = ROOT / "docs/reproduction"
    options = {"label": given.label}
    if given.table or given.where is not None:
        folder = ROOT / "docs/findings/records"
    try:
        if given.table:
            controls = [each["name"] for each in read_yaml(given.run / "config.yaml")["sets"] if each["control"]]
            options |= {"choose": lambda rows: compact(table_of(rows, controls)), "keys": None}
        elif given.where is not None:
            where = {key: tuple(value) if isinstance(value, list) else value for key, value in given.where.items()}
            options["choose"] = lambda rows: [
                row for row in rows if row["value"] is not None and matches(flat(row), where)
            ]
        elif given.training:
            folder = ROOT / "docs/training"
            options |= {"choose": list, "keys": KEPT_OF_TRAINING}
        print(record_run(given.run, folder, **options))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
