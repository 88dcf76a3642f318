"""Two sentences on what the geometry of the rows has to do with how small they can get."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy.stats import linregress

from clip_geometry import geometry
from clip_geometry.registry import InputError
from clip_geometry.search.compression.sweep import Half

TOP = 3  # columns that may dominate
DOMINANT = 0.2  # share of the squared norm from which they do
SAMPLE = 2000  # rows for the intrinsic dimension

Losses: TypeAlias = dict[tuple[str, int, str], float]  # (cut, columns, dtype) → loss


def share(value: float) -> str:
    """Return a share in percent with one decimal."""
    return f"{100 * value:.1f}%"


def explanation(
    rows: Mapping[str, np.ndarray], frame: pd.DataFrame, length_slope: tuple[float, float] | None
) -> tuple[str, ...]:
    """Return a sentence on number types, by dominant columns, and one on cuts, by spectrum, dimension and gap.

    A sentence says "so" if the sweep agrees with what the geometry suggests, and "but" otherwise.

    Args:
        rows: Modality → unit rows, or tokens.
        frame: The table of the sweep.
        length_slope: As in `Compression`, for a sentence on the number of tokens.
    """
    every = np.concatenate(list(rows.values())).astype(np.float64)
    d = every.shape[1]
    carried = float(np.sort(np.square(every).mean(0))[-TOP:].sum())
    lines = frame[~frame.rescored & (frame.pool_factor == 1)]
    keys = zip(lines["cut"], lines["columns"], lines["dtype"], strict=True)
    plain: Losses = dict(zip(keys, lines.loss, strict=True))
    dominant = carried > max(DOMINANT, 2 * TOP / d)
    of = f"{TOP} of {d} columns carry" if dominant else f"No columns dominate: the largest {TOP} of {d} carry"
    first = f"{of} {share(carried)} of the squared norm"
    if {("all", d, "int8"), ("all", d, "int8[column]")} <= plain.keys():
        whole, column = plain["all", d, "int8"], plain["all", d, "int8[column]"]
        agrees = column < whole if dominant else column > whole - 0.01
        separate = "scale per column" if agrees else "a range per column does not help"
        together = "one range for all columns is enough" if agrees else "scale per column"
        first += f", {'so' if agrees else 'but'} {separate if dominant else together}: without rescoring, int8 loses "
        first += f"{share(whole)} of the ten nearest, int8[column] {share(column)}"
    sentences = f"{first}.", _on_cuts(rows, every, plain)
    if length_slope is None:
        return sentences
    slope, error = length_slope
    last = f"An irrelevant item with twice the tokens scores {slope:.2f} ± {error:.2f} standard deviations higher"
    return *sentences, last.replace("-", "−") + (": MaxSim favors long items." if slope > 2 * error else ".")


def slope_on_length(half: Half) -> list[tuple[float, float]]:
    """Return the slope of the score on the binary logarithm of an item's tokens, and its error, for each direction.

    Scores are MaxSim in standard deviations of a query's scores. Items that are right for a query do not count. A
    direction is left out if all items have equally many tokens.
    """
    slopes = []
    for query, item in half.directions:
        numbers = half.queries[query]
        right = half.codes[query][numbers][:, None] == half.codes[item]
        scores = np.ma.masked_where(right, half.items[query][numbers].max_sim(half.items[item]).astype(np.float64))
        means = ((scores - scores.mean(1, keepdims=True)) / scores.std(1, keepdims=True)).mean(0)
        known = ~np.ma.getmaskarray(means)
        lengths = np.log2(half.items[item].lengths[known])
        if len({*lengths}) > 1:
            fitted: Any = linregress(lengths, means[known])
            slopes.append((fitted.slope, fitted.stderr))
    return slopes


def _on_cuts(rows: Mapping[str, np.ndarray], every: np.ndarray, plain: Losses) -> str:
    projected = [key for key in plain if key[0] in ("pca", "pca[pooled]")]
    sample = next(iter(rows.values()))[:SAMPLE].astype(np.float64)
    try:
        about = f"With an intrinsic dimension of {float(geometry.two_nn(sample)):.0f}"
    except InputError:  # a lattice, or too many copies
        about = "With an unknown intrinsic dimension"
    if len(rows) == 2:
        gap = float(geometry.modality_gap(*(x.astype(np.float64) for x in rows.values())))
        about += f" and a modality gap of {gap:.2f}"
    if not projected:
        return f"{about}, there are too few rows for principal axes."
    _, columns, dtype = key = max(projected, key=lambda each: (each[1], -plain[each]))
    squares = np.linalg.svd(every, compute_uv=False) ** 2
    inside = float(squares[:columns].sum() / squares.sum())
    loss, first = plain[key], plain["first", columns, dtype]
    agrees = (loss < first) == (inside > columns / every.shape[1])
    less = "less" if loss < first else "no less"
    return (
        f"{about}, {columns} principal axes carry {share(inside)} of the squared norm, {'so' if agrees else 'but'} "
        f"{key[0]} to {columns} columns loses {less} than the first {columns} columns: {share(loss)} and "
        f"{share(first)} in {dtype}."
    )
