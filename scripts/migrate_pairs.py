"""How often predictions of `cg.search.map_index` hold between models, and whether one map serves both modalities.

clip-geometry run configs/train_claims.yaml --runs runs                    # trains 64 small CLIPs in half an hour
python scripts/migrate_pairs.py runs/train_claims-*/models --pairs 200     # an hour on one CPU core

Each pair has an old and a new model, an index of 2,000 images of the old one, and 500 of these re-embedded. Recall at
10 is measured with 500 other images, or with 250 captions while 250 others are the queries of the prediction.

Whether one orthogonal map serves images and captions (arXiv:2602.17584): captions of the new model are mapped into the
space of the old one and search its images. The rule, fixed before the run: one map serves if recall at 1 with the map
fitted on images is within 0.02 of that with a map fitted on captions, in the 95% interval (jackknife over models).
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import clip_geometry as cg

SIZE, HELD_OUT, REEMBEDDED, K, ONE_MAP_PAIRS = 2000, 500, 500, 10, 300
Rows = dict[str, np.ndarray]


def rows_of(models: Sequence[Path]) -> list[Rows]:
    data = cg.data.load_dataset("scenes", size=SIZE + HELD_OUT, seed=7, split="test")
    unit = cg.transforms.Normalize()
    embedded = [cg.embed(f"local-dir:{model}", data) for model in models]
    return [{name: unit.transform(np.float64(side.vectors)) for name, side in sets.items()} for sets in embedded]


def nearest(queries: np.ndarray, items: np.ndarray, k: int = K) -> np.ndarray:
    return np.argpartition(-queries @ items.T, k - 1, axis=1)[:, :k]


def predictions(models: list[Rows], count: int) -> Iterator[dict[str, Any]]:
    for seed, (i, j) in enumerate(ordered_pairs(models, 0)[:count]):
        rng = np.random.default_rng(seed)
        items = rng.permutation(SIZE + HELD_OUT)
        index, held_out = items[:SIZE], items[SIZE:]
        old, new, rows = models[i]["image"][index], models[j]["image"][index], rng.permutation(SIZE)[:REEMBEDDED]
        for side in ("items", "queries"):
            for kind, asked in (("image", held_out), ("text", held_out[HELD_OUT // 2 :])):
                queries = models[j]["text"][held_out[: HELD_OUT // 2]] if kind == "text" else None
                index_map = cg.search.map_index(old, new[rows], rows, side=side, queries=queries, k=K, seed=seed)
                tested = models[j][kind][asked]
                if side == "items":
                    results = nearest(tested, index_map.transform(old))
                else:
                    results = nearest(index_map.transform(tested), old)
                recall = float((results[:, :, None] == nearest(tested, new)[:, None]).any(2).mean())
                held = index_map.interval[0] <= recall <= index_map.interval[1]
                yield {"side": side, "queries": kind, "held": held, "recall": recall, "predicted": index_map.recall}


def ordered_pairs(models: list[Rows], seed: int, *, equal: bool = False) -> list[tuple[int, int]]:
    """All pairs of different models (of equal dimension) in random order."""
    dims = [model["image"].shape[1] for model in models]
    pairs = [(i, j) for i in range(len(dims)) for j in range(len(dims)) if i != j and (not equal or dims[i] == dims[j])]
    return [pairs[k] for k in np.random.default_rng(seed).permutation(len(pairs))]


def one_map(models: list[Rows]) -> pd.DataFrame:
    records = []
    for seed, (i, j) in enumerate(ordered_pairs(models, 1, equal=True)[:ONE_MAP_PAIRS]):
        items = np.random.default_rng(seed).permutation(SIZE + HELD_OUT)
        fit, tested = items[:1000], items[1000:1500]
        old, new = models[i], models[j]
        record: dict[str, Any] = {"old": i, "new": j}
        fitted_on = {"images": ["image"], "captions": ["text"], "both": ["image", "text"]}
        for name, kinds in fitted_on.items():
            source, target = (np.concatenate([model[kind][fit] for kind in kinds]) for model in (new, old))
            queries = cg.transforms.Procrustes().fit(source, target).transform(new["text"][tested])
            hits = nearest(queries, old["image"][tested], 1)[:, 0] == np.arange(len(tested))
            record[name] = float(hits.mean())
        records.append(record)
    return pd.DataFrame(records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="folder of checkpoints that open_clip reads")
    parser.add_argument("--pairs", type=int, default=200, help="pairs of models for the predictions")
    options = parser.parse_args()
    models = rows_of(sorted(options.models.iterdir()))
    table = one_map(models)
    print(table[["images", "captions", "both"]].mean().round(3).to_string())
    difference = table["images"] - table["captions"]
    without = [difference[(table.old != k) & (table.new != k)].mean() for k in range(len(models))]
    error = np.sqrt((len(models) - 1) * np.var(without))
    print(f"images − captions: {difference.mean():+.4f} ± {error:.4f}")
    frame = pd.DataFrame(predictions(models, options.pairs))
    print(frame.groupby(["side", "queries"]).mean().round(3).to_string())


if __name__ == "__main__":
    main()
