"""The modality gap of held-out COCO pairs after centering, beside the gap that sampling error alone leaves.

CLIP_GEOMETRY_DATA=… python scripts/centered_gap.py [--json FILE]     # seconds
Half of the pairs fit `normalize,center[each],normalize`, and the others are measured. For the null value, both
modalities are centered on all pairs and each pair's modality labels are swapped with probability 1/2.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np

import clip_geometry as cg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=50, help="number of random halves (seeds 0, 1, …)")
    parser.add_argument("--json", type=Path, help="file to write the means and standard deviations over splits to")
    options = parser.parse_args()
    folder = Path(os.environ["CLIP_GEOMETRY_DATA"]) / "embeddings" / "coco500-clip-vit-b16"
    pairs = {modality: np.load(folder / f"{modality}.npy") for modality in ("image", "text")}
    gaps = np.array([centered_gaps(pairs, seed) for seed in range(options.splits)])
    rows = [{"run": "centered_gap", "number": name, "splits": options.splits, "mean": each.mean(),
             "deviation": each.std(ddof=1)} for name, each in zip(("gap", "null"), gaps.T, strict=True)]  # fmt: skip
    for row in rows:
        print(f"{row['number']}: {row['mean']:.4f} ± {row['deviation']:.4f}")
    if options.json is not None:
        options.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def centered_gaps(pairs: dict[str, np.ndarray], seed: int) -> tuple[float, float]:
    """The gap of the held-out half after centering, and with modality labels swapped at random."""
    rng = np.random.default_rng(seed)
    known, unseen = np.split(rng.permutation(len(pairs["image"])), 2)
    centered = cg.Pipeline("normalize,center[each]").fit(pairs).transform(pairs)
    swap = rng.integers(2, size=len(centered["image"])).astype(bool)[:, None]
    shuffled = {name: np.where(swap, centered[other], centered[name])
                for name, other in (("image", "text"), ("text", "image"))}  # fmt: skip

    def gap(rows: dict[str, np.ndarray], steps: str) -> float:
        fitted = cg.Pipeline(steps).fit({name: each[known] for name, each in rows.items()})
        moved = fitted.transform({name: each[unseen] for name, each in rows.items()})
        return float(cg.modality_gap(moved["image"], moved["text"]))

    return gap(pairs, "normalize,center[each],normalize"), gap(shuffled, "center[each],normalize")


if __name__ == "__main__":
    main()
