"""Hubs: rows that are among the nearest of far too many others, within a modality or class or across modalities."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import torch

from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.search.checks import NEIGHBORS, Context, Findings, add_check, chosen, finding, nearest_others
from clip_geometry.search.checks.modalities import Gaussian, foreign_numbers, gaussian, own
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
    told = {}
    for modality in context.sets:
        told[modality] = np.empty(0, dtype=np.int64)
        if context.valid(modality).sum() < LEAST:
            context.skip("hubs", f"fewer than {LEAST} rows", modality)
            continue
        near = context.neighbors(modality)
        usual = ~np.isin(near.numbers, foreign_numbers(context, modality))
        asked, n = usual[near.queries], int(usual.sum())
        if min(n, asked.sum()) < LEAST or near.indices.shape[1] < NEIGHBORS:
            context.skip("hubs", f"fewer than {LEAST} distinct rows", modality)
            continue
        lists = np.where(usual, np.cumsum(usual) - 1, -1)[near.indices[asked]]
        (null,) = _null(context, gaussian(context, modality), n, len(lists), [NEIGHBORS])
        numbers = near.numbers[usual]
        if found := _frequent(numbers, lists, null, FACTOR * max(null.mean(), NEIGHBORS / n), k=NEIGHBORS):
            told[modality] = np.array(found["rows"])
            yield finding("hubs", "warning", modality, kind="own", n=n, **found)
    for couple in context.of_one_space("hubs", permutations(context.sets, 2)):
        yield from _across(context, *couple)
    for modality, each in context.sets.items():
        if each.labels is None:
            context.skip("hubs", "no labels, so none within classes", modality)
        else:
            yield from _in_classes(context, modality, each.labels, told[modality])


def _across(context: Context, modality: str, other: str) -> Findings:
    """Report rows that are first, or in the top ten, for too many queries of the other modality."""
    numbers, rows = _distinct(context, modality)
    asked = _distinct(context, other)[1]
    if min(len(numbers), len(asked)) < LEAST:
        context.skip("hubs", f"fewer than {LEAST} distinct rows of both", modality, other)
        return
    asked = asked[context.queries(len(asked), len(numbers))]
    lists = _nearest_of(asked, rows)
    pairs = matching(context, *sorted((modality, other), key=list(context.sets).index))
    unknown = pairs is None or np.median(pairs.corrected) > MATCHED
    first = np.bincount(lists[:, 0], minlength=len(numbers)).argmax()
    usual = Gaussian.of(np.delete(rows, first, axis=0))  # an outlier would make the null rows resemble each other
    nulls = _null(context, usual, len(numbers), len(asked), (1, NEIGHBORS), gaussian(context, other))
    for k, factor, null in zip((1, NEIGHBORS), (FIRST, FACTOR), nulls, strict=True):
        limit = (UNRELATED if unknown else factor) * max(null.mean(), LEAST_FIRST if k == 1 else k / len(numbers))
        if found := _frequent(numbers, lists[:, :k], null, limit, k=k):
            yield finding("hubs", "warning", modality, other, kind="across", n=len(numbers), **found)
            return


def _in_classes(context: Context, modality: str, labels: np.ndarray, told: np.ndarray) -> Findings:
    numbers, rows = _distinct(context, modality)
    classes, codes = np.unique(labels[numbers].astype(str), return_inverse=True)
    large = np.flatnonzero(np.bincount(codes) >= LEAST_OF_CLASS)
    if len(large) < len(classes):
        reason = f"{len(classes) - len(large)} of {len(classes)} classes with fewer than {LEAST_OF_CLASS} distinct rows"
        context.skip("hubs", reason, modality)
    by_class = []
    for code in large if len(classes) > 1 else ():
        members = np.flatnonzero(codes == code)
        n, k = len(members), min(NEIGHBORS, len(members) // 20)
        lists = nearest_others(rows[members], context.queries(n), k)[1]
        (null,) = _null(context, Gaussian.of(rows[members]), n, len(lists), [k])
        if found := _frequent(numbers[members], lists, null, IN_CLASS * max(null.mean(), k / n), told, k=k):
            by_class.append(found | {"label": str(classes[code]), "n": n})
    if by_class:
        best = max(by_class, key=lambda each: each["largest"] / each["lists"])
        first, every = best["rows"][0], [row for each in by_class for row in each["rows"]]
        values = {**best, "rows": [first, *(row for row in every if row != first)], "count": len(every)}
        yield finding("hubs", "warning", modality, kind="class", **values)


def _distinct(context: Context, modality: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers and unit rows of the sample, without copies and without rows from another space."""
    sample = context.sample(modality)
    mask = (context.first_equal(modality)[sample] == sample) & own(context, modality)
    return sample[mask], chosen(context.unit(modality), mask)


def _frequent(
    numbers: np.ndarray, lists: np.ndarray, null: np.ndarray, limit: float, told: np.ndarray | tuple = (), *, k: int
) -> dict[str, Any] | None:
    """Describe the rows that appear in more than the share `limit` of the lists; None if there are none.

    lists: (q, k) positions of neighbors, −1 for ignored ones.
    """
    counts = np.bincount(lists[lists >= 0], minlength=len(numbers))
    hub = np.flatnonzero(counts > limit * len(lists))
    hub = hub[~np.isin(numbers[hub], told)]
    if not len(hub):
        return None
    hub = hub[np.argsort(-counts[hub], kind="stable")]
    return {
        "count": len(hub),
        "largest": int(counts[hub[0]]),
        "null": float(null.mean()),
        "null_error": float(np.std(null, ddof=1) / np.sqrt(len(null))),
        "rows": numbers[hub].tolist(),
        "k": k,
        "lists": len(lists),
        "reached": int(np.isin(lists, hub).any(1).sum()),
    }


def _nearest_of(asked: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return nearest(torch.from_numpy(asked), NEIGHBORS, y=StreamedRows.of(rows))[1].numpy()


def _null(
    context: Context, rows: Gaussian, n: int, lists: int, places: Sequence[int], asked: Gaussian | None = None
) -> np.ndarray:
    """Return the largest share of the lists that any one of n Gaussian rows is in, by list length in `places` and draw.

    n is capped at 20,000. asked: independent queries; by default, the rows themselves are the queries.
    """
    generator, n = torch.Generator().manual_seed(context.seed), min(n, NULL_ROWS)
    lists, shares = min(lists, max(LEAST, NULL_WORK // n)), []
    for _ in range(DRAWS):
        drawn = rows.draw(n, generator)
        if asked is None:
            indices = nearest_others(drawn, np.arange(lists), max(places))[1]
        else:
            indices = _nearest_of(asked.draw(lists, generator), drawn)
        shares.append([np.bincount(indices[:, :k].ravel()).max() / lists for k in places])
    return np.transpose(shares)
