"""How often the improvement that `diagnose` predicts lies inside its stated 90 % interval.

Draws tasks of a few hundred pairs from one part of a large set, lets `compare_repairs` recommend and predict the
improvement by cross-validation, in the held-out index and in one of all items. Then it fits what is recommended, and
the best repair that one index serves, on the whole task and measures the improvement on indices of both sizes of the
other part of the set. Both goals' numbers are judged.

    clip-geometry embed local-dir:shipped/scenes-trained scenes --split test -o scenes size=16000
    python scripts/diagnosis/coverage.py scenes --tasks 200 --noise 1 -o coverage.jsonl
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import clip_geometry as cg
from clip_geometry.search.comparison import AIMS

NAMES = ("posterior", "other", "rrf")
UNFITTED = ("other", "rrf")  # the same after every task, and measured on all items

Indexes: TypeAlias = Mapping[
    int, Sequence[tuple[cg.search.MixedIndex, Mapping[str, Any]]]
]  # by size, searched as they are
Changes: TypeAlias = Mapping[tuple[int, str], Sequence[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a folder with image and text embeddings of the same items")
    parser.add_argument("-o", "--out", type=Path, required=True, help="a .jsonl file; tasks that are in it are skipped")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=150, help="of each task")
    parser.add_argument("--by", choices=("pairs", "labels"), default="pairs")
    parser.add_argument("--fresh", type=int, default=2000, help="items that a fitted repair is measured on")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--noise", type=float, default=0.0, help="length of Gaussian noise added to unit rows")
    options = parser.parse_args()
    whole = cg.search.MixedIndex.of(noisy(cg.read(options.source), options.noise), by=options.by)
    order = np.random.default_rng(options.seed).permutation(whole.items)
    fresh, drawn = order[: options.fresh], order[options.fresh :]
    sizes = (options.pairs - options.pairs // 2, options.pairs)
    indexes = {size: in_parts(whole, fresh, size) for size in sizes}
    everything = {size: in_parts(whole, order, size) for size in sizes}
    unfitted = {
        name: true_changes(cg.search.make_repair(name).fit(taken(whole, drawn[:2]).known()), everything)
        for name in UNFITTED
    }
    done = (
        {json.loads(line)["task"] for line in options.out.read_text().splitlines()} if options.out.exists() else set()
    )
    with options.out.open("a") as file:
        for number in sorted(set(range(options.tasks)) - done):
            part = taken(
                whole, np.random.default_rng([options.seed, number]).choice(drawn, options.pairs, replace=False)
            )
            rows = task(part, indexes, unfitted, splits=options.splits, seed=number)
            file.writelines(json.dumps({"task": number, **row}) + "\n" for row in rows)
            file.flush()
    summarize([json.loads(line) for line in options.out.read_text().splitlines()])


def noisy(sets: Mapping[str, cg.Embeddings], noise: float) -> Mapping[str, cg.Embeddings]:
    """Return unit rows with noise, as of a weaker model."""
    if not noise:
        return sets
    result = {}
    for name, each in sets.items():
        rows = np.asarray(each.vectors, dtype=np.float64)
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        generator = np.random.default_rng([len(result), 99])
        result[name] = replace(each, vectors=rows + noise * generator.normal(size=rows.shape) / np.sqrt(rows.shape[1]))
    return result


def taken(index: cg.search.MixedIndex, items: np.ndarray) -> cg.search.MixedIndex:
    """Return the index of some items; modalities that are not split stay whole."""
    chosen = {name: slice(None) if group is None else np.isin(group, items) for name, group in index.groups.items()}
    return replace(
        index,
        sets={name: each.take(chosen[name]) for name, each in index.sets.items()},
        groups={name: None if group is None else group[chosen[name]] for name, group in index.groups.items()},
        codes={name: codes[chosen[name]] for name, codes in index.codes.items()},
    )


def in_parts(
    whole: cg.search.MixedIndex, items: np.ndarray, size: int
) -> list[tuple[cg.search.MixedIndex, Mapping[str, Any]]]:
    """Return indices of so many of the items, with what is found in each without a repair."""
    parts = [taken(whole, items[k : k + size]) for k in range(0, len(items) - size + 1, size)]
    return [(part, cg.search.search_index(part)) for part in parts]


def true_changes(repair: cg.search.Repair, indexes: Indexes) -> Changes:
    """Return (size, number) → the change in each index."""
    changes = {}
    for size, some in indexes.items():
        after = [cg.search.search_index(index, repair) for index, _ in some]
        for aim in AIMS.values():
            changes[size, aim] = [
                each[aim].value - before[aim].value for each, (_, before) in zip(after, some, strict=True)
            ]
    return changes


def task(
    part: cg.search.MixedIndex, indexes: Indexes, unfitted: Mapping[str, Changes], *, splits: int, seed: int
) -> list[dict[str, Any]]:
    """Return what is predicted and what is true, for each number, candidate and size of the index."""
    compared = cg.search.compare_repairs(part, NAMES, splits=splits, seed=seed)
    served = compared.served()
    rows = []
    for role, name in (("recommended", compared.recommended), ("repair", served.name if served else "none")):
        if name == "none":
            continue
        true = unfitted.get(name) or true_changes(cg.search.make_repair(name).fit(part.known()), indexes)
        for size, candidates in zip(indexes, (compared.candidates, compared.full), strict=True):
            for aim in AIMS.values():
                change = candidates[name].changes[aim]
                low, high = change.interval()
                rows.append(
                    {
                        "number": aim,
                        "role": role,
                        "repair": name,
                        "index": size,
                        "predicted": change.value,
                        "error": change.error,
                        "split_error": change.split_error,
                        "low": low,
                        "high": high,
                        "true": float(np.mean(true[size, aim])),
                        "true_error": float(np.std(true[size, aim], ddof=1) / len(true[size, aim]) ** 0.5),
                    }
                )
    return rows


def summarize(rows: list[dict[str, Any]]) -> None:
    """Print the share of intervals that hold, by goal, role and size."""
    inside, count = Counter(), Counter()
    for row in rows:
        key = (row["number"], row["role"], row["index"])
        count[key] += 1
        inside[key] += row["low"] <= row["true"] <= row["high"]
    for key in sorted(count):
        share = inside[key] / count[key]
        error = (share * (1 - share) / count[key]) ** 0.5
        print(f"{key}: {inside[key]} of {count[key]} inside the 90 % interval: {share:.1%} ± {error:.1%}")


if __name__ == "__main__":
    main()
