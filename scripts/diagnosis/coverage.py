"""How often the improvement that `diagnose` predicts for a repair lies inside its stated 90 % interval.

Draws tasks of a few hundred pairs from a large set, lets `compare_repairs` recommend a repair and predict its
improvement by cross-validation, then fits the repair on the whole task and measures the improvement on fresh indices of
the same size, drawn from the pairs outside of the task.

    clip-geometry embed local-dir:shipped/scenes-trained scenes --split test -o scenes size=6000
    python scripts/diagnosis/coverage.py scenes --tasks 200 --pairs 300 -o coverage.jsonl
"""

import argparse
import json
from pathlib import Path

import numpy as np

import clip_geometry as cg

NAMES = ("center", "zscore", "posterior", "posterior[centered]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a folder with image and text embeddings of the same items")
    parser.add_argument("-o", "--out", type=Path, required=True, help="a .jsonl file; tasks that are in it are skipped")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=300, help="of each task")
    parser.add_argument("--by", choices=("pairs", "labels"), default="pairs")
    parser.add_argument("--fresh", type=int, default=20, help="indices that the true improvement is averaged over")
    parser.add_argument("--splits", type=int, default=10)
    given = parser.parse_args()
    sets = cg.read_any(given.source)
    whole = cg.MixedIndex.of(sets, by=given.by)
    done = {json.loads(line)["task"] for line in given.out.read_text().splitlines()} if given.out.exists() else set()
    with given.out.open("a") as file:
        for number in sorted(set(range(given.tasks)) - done):
            order = np.random.default_rng([7, number]).permutation(whole.items)
            inside, outside = order[: given.pairs], order[given.pairs :]
            task = whole.take(inside)
            found = cg.compare_repairs(task, NAMES, splits=given.splits, seed=number)
            change = found.candidates[found.recommended].changes["mrr"]
            low, high = change.interval()
            fitted = cg.make_repair(found.recommended).fit(task.known())
            half = given.pairs - given.pairs // 2  # the index that cross-validation searched
            true = []
            for k in range(given.fresh):
                fresh = whole.take(np.random.default_rng([8, number, k]).choice(outside, half, replace=False))
                before, after = (cg.search_index(fresh, repair)["mrr"].value for repair in (None, fitted))
                true.append(after - before)
            row = {
                "task": number,
                "repair": found.recommended,
                "predicted": change.value,
                "error": change.error,
                "fit_error": change.fit_error,
                "low": low,
                "high": high,
                "true": float(np.mean(true)),
                "true_error": float(np.std(true, ddof=1) / len(true) ** 0.5),
            }
            file.write(json.dumps(row) + "\n")
            file.flush()
    rows = [json.loads(line) for line in given.out.read_text().splitlines()]
    helped = [row for row in rows if row["repair"] != "none"]
    inside = sum(row["low"] <= row["true"] <= row["high"] for row in helped)
    share = inside / len(helped)
    error = (share * (1 - share) / len(helped)) ** 0.5
    print(f"{inside} of {len(helped)} improvements inside their 90 % interval: {share:.1%} ± {error:.1%}")


if __name__ == "__main__":
    main()
