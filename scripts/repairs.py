"""The repair table in a few lines: on how many data sets a repair helps a mixed index, and on how many it costs recall.

CLIP_GEOMETRY_DATA=… python scripts/mixed_index.py --out=cifar10-names     # writes the set of CIFAR-10 and object names
CLIP_GEOMETRY_DATA=… python scripts/repairs.py [--runs runs]     # repairs by measures by sets, resumes
"""

import argparse
from pathlib import Path

import clip_geometry as cg
from clip_geometry_experiments.run.runner import run

MIXED, ACROSS, WITHIN = "repair_table.r_at_1", "repair_table.cross_r_at_1", "repair_table.neighbors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    report = run("repairs", {}, runs=parser.parse_args().runs)
    rows = cg.to_frame(cg.read_rows(report.parent))
    rows = rows[rows["verdict"].notna() & rows["measure"].isin([MIXED, ACROSS, WITHIN])]
    counts = rows.pivot_table(
        index="at.repair", columns=["measure", "verdict"], values="at.set", aggfunc="count", fill_value=0
    )
    counts = counts.reindex(columns=[(MIXED, "better"), (ACROSS, "worse"), (WITHIN, "worse")], fill_value=0)
    print(counts.sort_values((MIXED, "better"), ascending=False).to_string())
    print(report)


if __name__ == "__main__":
    main()
