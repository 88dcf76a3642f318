"""Which items are right for a query: pairs, labels, natural near duplicates, or none for anchors."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from clip_geometry.embeddings import Embeddings
from clip_geometry.measuring.given import given_sets
from clip_geometry.registry import InputError, shown
from clip_geometry.search.checks.copies import too_near
from clip_geometry.search.matching.scores import Best, SearchScores
from clip_geometry.search.mixed_index import MixedIndex, RelevantBy, require_one_space

LEAST = 60  # fewest queries with an answer
MANY_ITEMS = 200  # items from which all rows of one are left out together; fewer are classes
EQUAL = 1e-4  # distance of equal rows in float32, relative to the median distance to the nearest row


def anchor_sets(anchors: Any, sets: Mapping[str, Embeddings]) -> dict[str, Embeddings]:
    """Return the anchors as sets; raise InputError unless each has the dimension of the sets and enough rows."""
    if not isinstance(anchors, Mapping) or not anchors:
        raise InputError(f"anchors = {shown(anchors)}; expected modality → rows that match nothing in the other sets")
    queries = given_sets(anchors)
    require_one_space({"the items": next(iter(sets.values())), **queries}, "one index")
    for name, each in queries.items():
        if len(each) < LEAST:
            raise InputError(f"there are {len(each)} {name} anchors; expected at least {LEAST}")
        if not any(item != name for item in sets):
            raise InputError(f"there are only {name} sets to search; name the modality of the anchors otherwise")
    return queries


def relevance(
    sets: Mapping[str, Embeddings], relevant: RelevantBy | None, *, paired: bool
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return a number for each row, equal for rows that are right for each other, and the number of its item.

    If the rows are not `paired`, as with anchors, each is alone.
    """
    rows = {name: np.arange(len(each)) for name, each in sets.items()}
    if not paired:
        return rows, rows
    if len(sets) == 1:
        ((name, only),) = sets.items()
        values = only.labels if only.labels is not None else only.item_id
        codes = rows if values is None else {name: pd.factorize(values)[0]}
        return codes, codes if len(np.unique(codes[name])) >= MANY_ITEMS else rows
    index = MixedIndex.of(sets, relevant)
    if index.by is None:
        sizes = ", ".join(f"{len(each)} {name} rows" for name, each in sets.items())
        raise InputError(
            f"no item is known to be right: the rows do not pair and have no labels ({sizes}); give as many rows of "
            "each modality, common ids, or labels, or anchors={modality: rows that match nothing}"
        )
    if index.by == "labels":  # rows of one label are one item, unless there are few labels, such as classes
        labels = len(np.unique(np.concatenate(list(index.codes.values()))))
        codes = dict(index.codes)
        starts = np.cumsum([0, *(len(each) for each in sets.values())])
        alone = {name: start + rows[name] for name, start in zip(sets, starts, strict=False)}
        return codes, codes if labels >= MANY_ITEMS else alone
    groups = {name: group for name, group in index.groups.items() if group is not None}
    return groups, groups


def with_near_duplicates(scores: SearchScores) -> SearchScores:
    """Count a nearest row as right if it is much nearer than the distances of the other rows let expect."""
    squares = np.maximum(0, 2 - 2 * scores.wrong.scores)
    distances = np.sqrt(squares[:, 0])
    tail = too_near(np.maximum(distances, EQUAL * np.median(distances)))
    if tail is None:
        return scores
    near, known = squares <= tail.limit**2, scores.right.scores.shape[1]
    right = Best(*(each[:, :known] for each in scores.wrong))
    right = right._replace(scores=np.where(near[:, :known], right.scores, -np.inf))
    return replace(
        scores, right=right, wrong=scores.wrong._replace(scores=np.where(near, -np.inf, scores.wrong.scores))
    )
