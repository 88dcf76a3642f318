"""The modality gap of COCO pairs after centering, beside the gap that sampling error alone leaves.

CLIP_GEOMETRY_DATA=… python scripts/centered_gap.py [--json FILE]     # half a minute
`normalize,center[each],normalize` is fitted on random halves of the pairs and measured on the others (mean over the
halves), and fitted and measured on all pairs. For the null values, both modalities are centered on all pairs, and the
modality labels of each pair are swapped with probability 1/2. ± of a null value is the standard deviation over swaps.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np

import clip_geometry as cg

HALVES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swaps", type=int, default=200, help="number of times that labels are swapped")
    parser.add_argument("--json", type=Path, help="file to write the gaps, their null values and p values to")
    options = parser.parse_args()
    folder = Path(os.environ["CLIP_GEOMETRY_DATA"]) / "embeddings" / "coco500-clip-vit-b16"
    pairs = {modality: np.load(folder / f"{modality}.npy") for modality in ("image", "text")}
    gap_by_name = gaps(pairs, "normalize,center[each],normalize")
    centered = cg.Pipeline("normalize,center[each]").fit(pairs).transform(pairs)
    nulls = [gaps(swapped(centered, seed), "center[each],normalize") for seed in range(options.swaps)]
    rows = []
    for name, gap in gap_by_name.items():
        null = np.array([each[name] for each in nulls])
        p = (1 + np.sum(null >= gap)) / (1 + len(null))
        rows.append({"run": "centered_gap", "number": name, "gap": gap, "swaps": len(null), "null": null.mean(),
                     "null_deviation": null.std(ddof=1), "p": p})  # fmt: skip
        print(f"{name}: {gap:.4f}; swapped labels {null.mean():.4f} ± {null.std(ddof=1):.4f}, p = {p:.3f}")
    if options.json is not None:
        options.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def swapped(rows: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The rows, the modality labels of each pair swapped at random."""
    swap = np.random.default_rng(seed).integers(2, size=len(rows["image"])).astype(bool)[:, None]
    return {name: np.where(swap, rows[other], rows[name]) for name, other in (("image", "text"), ("text", "image"))}


def gaps(rows: dict[str, np.ndarray], steps: str) -> dict[str, float]:
    """The gap after a pipeline: of the held-out halves, and of all pairs, which also fit it."""

    def gap(fit: np.ndarray, measured: np.ndarray) -> float:
        fitted = cg.Pipeline(steps).fit({name: each[fit] for name, each in rows.items()})
        moved = fitted.transform({name: each[measured] for name, each in rows.items()})
        return float(cg.geometry.modality_gap(moved["image"], moved["text"]))

    n = len(rows["image"])
    halves = [np.split(np.random.default_rng(seed).permutation(n), 2) for seed in range(HALVES)]
    return {"held-out halves": float(np.mean([gap(*each) for each in halves])), "all pairs": gap(*2 * [np.arange(n)])}


if __name__ == "__main__":
    main()
