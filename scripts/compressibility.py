"""Does geometry predict how small vectors can get? The test of docs/compressibility.md, over folders of CLIPs.

python scripts/compressibility.py RUN… [--json compressibility.jsonl]     # 10 minutes for 80 models on one CPU core

RUN: folders that `clip-geometry run configs/train_claims.yaml` wrote, with the trained models.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

import clip_geometry as cg

PREDICTORS = ("participation_ratio", "top_columns", "intrinsic_dimension", "gap")
LOSSES = ("half", "binary")
DRAWS = 9999


def record(model: Path) -> dict[str, Any]:
    """Embed the scenes with a model, and return its predictors and losses."""
    scenes = cg.data.load_dataset("scenes", split="test", seed=2, size=1000)
    with tempfile.TemporaryDirectory() as folder:
        cg.embed(cg.encoders.resolve_encoder(f"local-dir:{model}"), scenes, Path(folder) / "store")
        sets = {
            name: np.array(side.vectors, np.float64) for name, side in cg.read_store(Path(folder) / "store").items()
        }
    sets = {name: x / np.linalg.norm(x, axis=1, keepdims=True) for name, x in sets.items()}
    rows = np.concatenate(list(sets.values()))
    d = rows.shape[1]
    loss = cg.compress(sets).frame.set_index(["cut", "columns", "dtype", "rescored"]).loss
    return {
        "model": model.name,
        "dimension": d,
        "participation_ratio": float(cg.geometry.participation_ratio(rows)) / d,
        "top_columns": float(np.sort(np.square(rows).mean(0))[-3:].sum()),
        "intrinsic_dimension": float(cg.geometry.two_nn(rows)),
        "gap": float(cg.geometry.modality_gap(sets["image"], sets["text"])),
        "half": float(loss["first", d // 2, "float32", False]),
        "binary": float(loss["all", d, "binary", False]),
    }


def correlation(ranks: pd.DataFrame, predictor: str, loss: str, orders: dict[int, np.ndarray] | None = None) -> float:
    """Return Spearman's correlation within each dimension, averaged; `orders` permute the models of each."""
    values = []
    for d, group in ranks.groupby("dimension"):
        x, y = group[predictor].to_numpy(), group[loss].to_numpy()
        values.append(np.corrcoef(rankdata(x), rankdata(y if orders is None else y[orders[int(str(d))]]))[0, 1])
    return float(np.mean(values))


def tests(records: pd.DataFrame) -> pd.DataFrame:
    """Return correlation, p-value and its Holm-corrected value of each predictor and loss."""
    rng = np.random.default_rng(0)
    sizes = records.groupby("dimension").size().to_dict()
    lines = []
    for predictor in PREDICTORS:
        for loss in LOSSES:
            rho = correlation(records, predictor, loss)
            null = [
                correlation(records, predictor, loss, {d: rng.permutation(n) for d, n in sizes.items()})
                for _ in range(DRAWS)
            ]
            lines.append((predictor, loss, rho, (1 + np.sum(np.abs(null) >= abs(rho))) / (1 + DRAWS)))
    table = pd.DataFrame(lines, columns=["predictor", "loss", "rho", "p"]).sort_values("p", ignore_index=True)
    table["holm"] = np.maximum.accumulate(np.minimum(1, table.p * np.arange(len(table), 0, -1)))
    table["predicts"] = (table.holm < 0.05) & (table.rho.abs() >= 0.5)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--json", type=Path, help="append a line for each model to this file, and skip those in it")
    options = parser.parse_args()
    known = (
        [json.loads(line) for line in options.json.read_text().splitlines()]
        if options.json and options.json.exists()
        else []
    )
    for model in sorted(model for run in options.runs for model in (run / "models").iterdir()):
        if model.name not in {each["model"] for each in known}:
            known.append(record(model))
            with (options.json or Path("/dev/null")).open("a") as file:
                file.write(f"{json.dumps(known[-1])}\n")
    records = pd.DataFrame(known)
    print(records.groupby("dimension")[[*LOSSES, *PREDICTORS]].median().round(3))
    print(tests(records).round(4).to_string())


if __name__ == "__main__":
    main()
