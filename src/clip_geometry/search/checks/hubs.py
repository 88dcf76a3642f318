"""Hubs: rows that are among the nearest of far too many others, within a modality or class or across modalities."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import torch

from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.search.checks import NEIGHBORS, Context, Findings, add_check, finding, nearest_others, selected
from clip_geometry.search.checks.modalities import Gaussian, foreign_numbers, gaussian, usual_mask
from clip_geometry.search.checks.pairs import matching

FACTOR = 2.5  # clean CLIP, drawn scenes and untrained models stay below 1.6; so do trained ones across modalities
MATCHED = 0.02  # median percentile of the partners: 0.000 to 0.005 for trained models, 0.05 or more for weak ones
FIRST = 1.75  # multiple of the null share of first places, where pairs match; trained models have up to 1.2
LEAST_FIRST = 0.02  # share of the queries; below it, a few captions that fit several images would count as hubs
UNRELATED = 3.5  # where pairs hardly match or are unknown; weak models have up to 2.0, untrained ones up to 2.8
IN_CLASS = 3.0  # clean classes of 50 to 400 rows have up to 2.5
DRAWS = 3
LEAST = 100  # fewest rows for the check
LEAST_OF_CLASS = 40
NULL_WORK = 5 * 10**6
NULL_ROWS = 20_000  # upper limit; among more rows, the most frequent one has a smaller share


@add_check
def hubs(context: Context) -> Findings:
    own_hubs = {}
    for modality in context.sets:
        own_hubs[modality] = np.empty(0, dtype=np.int64)
        if context.valid(modality).sum() < LEAST:
            context.skip("hubs", f"fewer than {LEAST} rows", modality)
            continue
        near = context.neighbors(modality)
        in_space = ~np.isin(near.numbers, foreign_numbers(context, modality))
        is_query = in_space[near.queries]
        n = int(in_space.sum())
        if min(n, is_query.sum()) < LEAST or near.indices.shape[1] < NEIGHBORS:
            context.skip("hubs", f"fewer than {LEAST} distinct rows", modality)
            continue
        lists = np.where(in_space, np.cumsum(in_space) - 1, -1)[near.indices[is_query]]
        (null,) = _null(context, gaussian(context, modality), n, len(lists), [NEIGHBORS])
        numbers = near.numbers[in_space]
        if values := _frequent(numbers, lists, null, FACTOR * max(null.mean(), NEIGHBORS / n), k=NEIGHBORS):
            own_hubs[modality] = np.array(values["rows"])
            yield finding("hubs", "warning", modality, kind="own", n=n, **values)
    for couple in context.same_dimension("hubs", permutations(context.sets, 2)):
        yield from _across(context, *couple)
    for modality, embeddings in context.sets.items():
        if embeddings.labels is None:
            context.skip("hubs", "no labels, so classes were not checked", modality)
        else:
            yield from _in_classes(context, modality, embeddings.labels, own_hubs[modality])


def _across(context: Context, modality: str, other: str) -> Findings:
    """Report rows that are first, or in the top ten, for too many queries of the other modality."""
    numbers, rows = _distinct(context, modality)
    queries = _distinct(context, other)[1]
    if min(len(numbers), len(queries)) < LEAST:
        context.skip("hubs", f"fewer than {LEAST} distinct rows of both", modality, other)
        return
    queries = queries[context.queries(len(queries), len(numbers))]
    lists = _nearest_of(queries, rows)
    pairs = matching(context, *sorted((modality, other), key=list(context.sets).index))
    unmatched = pairs is None or np.median(pairs.corrected) > MATCHED
    most_frequent = np.bincount(lists[:, 0], minlength=len(numbers)).argmax()
    # leave out the most frequent row: an outlier would make the null rows resemble each other
    others = Gaussian.of(np.delete(rows, most_frequent, axis=0))
    nulls = _null(context, others, len(numbers), len(queries), (1, NEIGHBORS), gaussian(context, other))
    for k, factor, null in zip((1, NEIGHBORS), (FIRST, FACTOR), nulls, strict=True):
        limit = (UNRELATED if unmatched else factor) * max(null.mean(), LEAST_FIRST if k == 1 else k / len(numbers))
        if values := _frequent(numbers, lists[:, :k], null, limit, k=k):
            yield finding("hubs", "warning", modality, other, kind="across", n=len(numbers), **values)
            return


def _in_classes(context: Context, modality: str, labels: np.ndarray, reported: np.ndarray) -> Findings:
    """Report rows that are in too many neighbor lists of the rows of their own class."""
    numbers, rows = _distinct(context, modality)
    classes, codes = np.unique(labels[numbers].astype(str), return_inverse=True)
    large = np.flatnonzero(np.bincount(codes) >= LEAST_OF_CLASS)
    if len(large) < len(classes):
        reason = f"{len(classes) - len(large)} of {len(classes)} classes with fewer than {LEAST_OF_CLASS} distinct rows"
        context.skip("hubs", reason, modality)
    by_class = []
    for code in large if len(classes) > 1 else ():
        members = np.flatnonzero(codes == code)
        n = len(members)
        k = min(NEIGHBORS, n // 20)
        lists = nearest_others(rows[members], context.queries(n), k)[1]
        (null,) = _null(context, Gaussian.of(rows[members]), n, len(lists), [k])
        if values := _frequent(numbers[members], lists, null, IN_CLASS * max(null.mean(), k / n), reported, k=k):
            by_class.append(values | {"label": str(classes[code]), "n": n})
    if by_class:
        largest = max(by_class, key=lambda each: each["largest"] / each["lists"])
        all_rows = [row for each in by_class for row in each["rows"]]
        rows_first = dict.fromkeys([largest["rows"][0], *all_rows])  # the row of the evidence first
        values = {**largest, "rows": list(rows_first), "count": len(all_rows)}
        yield finding("hubs", "warning", modality, kind="class", **values)


def _distinct(context: Context, modality: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the row numbers and unit rows of the sample, without copies and without rows of another model."""
    sample = context.sample(modality)
    mask = (context.first_equal(modality)[sample] == sample) & usual_mask(context, modality)
    return sample[mask], selected(context.unit(modality), mask)


def _frequent(
    numbers: np.ndarray, lists: np.ndarray, null: np.ndarray, limit: float, reported: np.ndarray | tuple = (), *, k: int
) -> dict[str, Any] | None:
    """Describe the rows that appear in more than the share `limit` of the lists; None if there are none.

    lists: (q, k) positions of neighbors, −1 for ignored ones.
    """
    counts = np.bincount(lists[lists >= 0], minlength=len(numbers))
    hubs = np.flatnonzero(counts > limit * len(lists))
    hubs = hubs[~np.isin(numbers[hubs], reported)]
    if not len(hubs):
        return None
    hubs = hubs[np.argsort(-counts[hubs], kind="stable")]
    return {
        "count": len(hubs),
        "largest": int(counts[hubs[0]]),
        "null": float(null.mean()),
        "null_error": float(np.std(null, ddof=1) / np.sqrt(len(null))),
        "rows": numbers[hubs].tolist(),
        "k": k,
        "lists": len(lists),
        "reached": int(np.isin(lists, hubs).any(1).sum()),
    }


def _nearest_of(queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return nearest(torch.from_numpy(queries), NEIGHBORS, y=StreamedRows.of(rows))[1].numpy()


def _null(
    context: Context, rows: Gaussian, n: int, lists: int, lengths: Sequence[int], queries: Gaussian | None = None
) -> np.ndarray:
    """Return the largest share of neighbor lists that one of n Gaussian rows is in: (list lengths, draws).

    n is capped at 20,000. `lists` is the number of lists and `lengths` their lengths. `queries` is the distribution of
    independent queries; by default, the rows themselves are the queries.
    """
    generator = torch.Generator().manual_seed(context.seed)
    n = min(n, NULL_ROWS)
    lists = min(lists, max(LEAST, NULL_WORK // n))
    shares = []
    for _ in range(DRAWS):
        drawn = rows.draw(n, generator)
        if queries is None:
            indices = nearest_others(drawn, np.arange(lists), max(lengths))[1]
        else:
            indices = _nearest_of(queries.draw(lists, generator), drawn)
        shares.append([np.bincount(indices[:, :k].ravel()).max() / lists for k in lengths])
    return np.transpose(shares)
