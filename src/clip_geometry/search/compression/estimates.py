"""Numbers of each combination over all folds and directions: shares, recall, the expected loss, and their errors."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from clip_geometry.geometry.uncertainty import jackknife
from clip_geometry.search.compression.codecs import CODECS
from clip_geometry.search.compression.sweep import BLOCKS, Combination, Extrapolation, Found, log_odds

Z = 1.96
MODEL = 0.25  # error of the extrapolation, relative to the change that it predicts; both in log odds
ROUNDING = 0.002  # least error of a share


def estimates(searches: Iterable[Any], sizes: Mapping[str, int], rng: np.random.Generator) -> pd.DataFrame:
    """Return the table of all combinations that every fold could fit, smallest first.

    The queries are assigned to 20 blocks, rows of one item to the same block. The standard errors are those of a
    jackknife over these blocks.

    Args:
        searches: (number of the fold, its rows, what `sweep` yields) for each combination and direction.
        sizes: Modality → size of the full index.
        rng: Assigns the queries to blocks.
    """
    means = defaultdict(list)  # combination → for each fold and direction: numbers × (all, without each block)
    folds = defaultdict(set)
    block_of: dict[Any, np.ndarray] = {}
    offset = int(rng.integers(2**31))
    for fold, half, (combination, (query, item), searched) in searches:
        key = fold, query
        if key not in block_of:
            codes = half.codes[query][half.queries[query]].astype(np.int64)
            block_of[key] = (codes * 2654435761 + offset) % 2**32 * BLOCKS // 2**32
        blocks = block_of[key]
        found = Found(*(_without_each(values, blocks) for values in searched.found))
        expected = Extrapolation(len(half.items[item]), sizes[item]).predict(found)
        others = (_without_each(values, blocks) for values in (searched.first, searched.mixed, searched.vectors))
        means[combination].append(np.stack([found.kept, expected, *others]))
        folds[combination].add(fold)
    complete = max(map(len, folds.values()))
    averages = {each: np.mean(parts, axis=0) for each, parts in means.items() if len(folds[each]) == complete}
    full = averages[next(iter(averages))]  # all columns in float32
    lines = [_line(each, numbers, full, sizes) for each, numbers in averages.items()]
    return pd.DataFrame(lines).sort_values(["bytes", "loss"], ignore_index=True)


def _without_each(values: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Return the mean of the values that are known, and the mean without each block, (21,)."""
    known = np.isfinite(values)
    sums = np.bincount(blocks[known], values[known], BLOCKS)
    counts = np.bincount(blocks[known], minlength=BLOCKS)
    totals = np.append(sums.sum(), sums.sum() - sums), np.append(counts.sum(), counts.sum() - counts)
    return totals[0] / np.where(totals[1] > 0, totals[1], np.nan)


def _line(each: Combination, numbers: np.ndarray, full: np.ndarray, sizes: Mapping[str, int]) -> dict[str, Any]:
    kept, expected, first, mixed, vectors = numbers
    change = first - full[2]
    loss = 1 - float(expected[0])
    exact = each == Combination(each.cut, "float32", False) and each.cut.name == "all"
    low, high = (0.0, 0.0) if exact else _interval(kept, expected)
    return {
        "cut": each.cut.name,
        "columns": each.cut.columns,
        "dtype": each.dtype,
        "pool_factor": each.pool_factor,
        "rescored": each.rescored,
        "bytes": round(vectors[0] * CODECS[each.dtype].bytes(each.cut.columns)),
        "kept_at_10": float(kept[0]),
        "kept_error": jackknife(kept[1:]),
        "recall_at_1": float(first[0]),
        "recall_change": float(change[0]),
        "recall_error": jackknife(change[1:]) if np.isfinite(change).all() else np.nan,
        "mixed_recall_at_10": float(mixed[0]),
        "loss": 0.0 if exact else loss,
        "low": low,
        "high": high,
    }


def _interval(kept: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """Return the ends of the 95% interval of the loss at the full size.

    It is an interval of log odds, because an extrapolation is wrong by a factor: a loss of 0.1% may be 0.2%, one of 40%
    not 80%.

    Args:
        kept, expected: (21,) mean share of kept neighbors, measured and at the full size, over all queries and without
            each block.
    """
    odds = log_odds(1 - expected)
    extrapolated = MODEL * abs(odds[0] - log_odds(1 - kept[0]))
    # a new index of this size is a sample, too
    error = float(np.hypot(np.sqrt(2) * jackknife(odds[1:]), extrapolated))
    loss = 1 - expected[0]
    low, high = (np.hypot(expit(odds[0] + z * error) - expit(odds[0]), Z * ROUNDING) for z in (-Z, Z))
    return float(max(0.0, loss - low)), float(min(1.0, loss + high))
