"""Average precision of queries in an index that holds them, and its chance level."""

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray


def average_precision(
    queries: Float[np.ndarray, "q d"],
    index: Float[np.ndarray, "n d"],
    relevant: Bool[np.ndarray, "q n"],
    itself: Int[np.ndarray, " q"],
) -> NDArray[np.float64]:
    """Mean over its relevant rows of the precision down to each, by cosine; the row `itself` of a query is left out."""
    unit = [rows.astype(float) / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, index)]
    scores = unit[0] @ unit[1].T
    scores[np.arange(len(scores)), itself] = -np.inf  # ranked last
    hits = np.take_along_axis(relevant, np.argsort(-scores, axis=1, kind="stable"), axis=1)[:, :-1]
    precision = hits.cumsum(1) / np.arange(1, hits.shape[1] + 1)
    return (precision * hits).sum(1) / hits.sum(1)


def chance_level(relevant: Int[np.ndarray, " q"], n: int) -> NDArray[np.float64]:
    """Expected average precision of a random order of n rows, some of which are relevant."""
    harmonic = (1 / np.arange(1, n + 1)).sum()
    return (harmonic + (n - harmonic) * (relevant - 1) / max(n - 1, 1)) / n
