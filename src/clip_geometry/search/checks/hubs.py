"""Rows that are among the nearest of far too many others: of their modality, of a class of it, of another modality."""

from itertools import permutations

import numpy as np
import torch

from clip_geometry.geometry.distances.nearest import nearest
from clip_geometry.rows.streamed import StreamedRows
from clip_geometry.search.checks import Findings, add_check, finding
from clip_geometry.search.checks.context import NEIGHBORS, Context, nearest_others
from clip_geometry.search.checks.matching import chosen
from clip_geometry.search.checks.spaces import Gaussian

FACTOR = 2.5  # clean CLIP, drawn scenes and untrained models stay below 1.6, across modalities of trained models too
MATCHED = 0.02  # median rank of the partners: trained models have 0.000 to 0.005, weak ones 0.05 or more
FIRST = 1.75  # of the null's first places, where pairs match: trained models have up to 1.2
LEAST_FIRST = 0.02  # of the queries: below, a few captions that say the same of several images are hubs
UNRELATED = 3.5  # where pairs hardly match or none are known: weak models have up to 2.0, untrained ones up to 2.8
IN_CLASS = 3.0  # classes of 50 to 400 rows have up to 2.5
DRAWS = 3
LEAST = 100  # rows
LEAST_OF_CLASS = 40
NULL_WORK = 5 * 10**6


@add_check
def hubs(context: Context) -> Findings:
    told = {}
    for modality in context.sets:
        told[modality] = np.empty(0, dtype=np.int64)
        if context.valid(modality).sum() < LEAST:
            context.skip("hubs", f"fewer than {LEAST} rows", modality)
            continue
        near = context.neighbors(modality)
        foreign = np.isin(near.numbers, context.foreign_numbers(modality))
        own = ~foreign[near.queries]
        n, lists = int((~foreign).sum()), int(own.sum())
        if n < LEAST or lists < LEAST or near.indices.shape[1] < NEIGHBORS:
            context.skip("hubs", f"fewer than {LEAST} distinct rows", modality)
            continue
        place = np.cumsum(~foreign) - 1
        lists_of_own = [row[~foreign[row]] for row in near.indices[own]]
        counts = np.bincount(place[np.concatenate(lists_of_own)], minlength=n)
        null = _null(context, context.gaussian(modality), n, lists, NEIGHBORS)
        hub = np.flatnonzero(counts > FACTOR * max(null.mean(), NEIGHBORS / n) * lists)
        if len(hub):
            numbers = near.numbers[~foreign]
            reached = sum(np.isin(place[row], hub).any() for row in lists_of_own)
            values = _values(numbers, counts, hub, null, k=NEIGHBORS, lists=lists, reached=int(reached))
            told[modality] = numbers[hub]
            yield finding("hubs", "warning", modality, kind="own", n=n, **values)
    for modality, queries in permutations(context.sets, 2):
        yield from _across(context, modality, queries)
    for modality, each in context.sets.items():
        if each.labels is None:
            context.skip("hubs", "no labels, so none within classes", modality)
        else:
            yield from _in_classes(context, modality, told[modality])


def _across(context: Context, modality: str, other: str) -> Findings:
    """Rows that are first, or in the top ten, for too many queries of the other modality."""
    if context.sets[modality].dim != context.sets[other].dim:
        context.skip("hubs", "of different dimensions", modality, other)
        return
    numbers, rows = _distinct(context, modality)
    asked = _distinct(context, other)[1]
    if min(len(numbers), len(asked)) < LEAST:
        context.skip("hubs", f"fewer than {LEAST} distinct rows of both", modality, other)
        return
    asked = asked[context.queries(len(asked), len(numbers))]
    found = nearest(torch.from_numpy(asked), NEIGHBORS, y=StreamedRows.of(rows))[1].numpy()
    matching = context.matching(*sorted((modality, other), key=list(context.sets).index))
    unknown = matching is None or np.median(matching.corrected) > MATCHED
    first = np.bincount(found[:, 0], minlength=len(numbers)).argmax()
    usual = Gaussian.of(np.delete(rows, first, axis=0))  # a row that lies apart would make the noise alike
    nulls = _null_across(context, usual, context.gaussian(other), len(numbers), len(asked))
    for k, factor, null in zip((1, NEIGHBORS), (FIRST, FACTOR), nulls, strict=True):
        counts = np.bincount(found[:, :k].ravel(), minlength=len(numbers))
        limit = (UNRELATED if unknown else factor) * max(null.mean(), LEAST_FIRST if k == 1 else k / len(numbers))
        hub = np.flatnonzero(counts > limit * len(asked))
        if len(hub):
            reached = int(np.isin(found[:, :k], hub).any(1).sum())
            values = _values(numbers, counts, hub, null, k=k, lists=len(asked), reached=reached)
            yield finding("hubs", "warning", modality, other, kind="across", n=len(numbers), **values)
            return


def _in_classes(context: Context, modality: str, told: np.ndarray) -> Findings:
    labels = context.sets[modality].labels
    assert labels is not None
    numbers, rows = _distinct(context, modality)
    classes, codes = np.unique(labels[numbers].astype(str), return_inverse=True)
    sizes = np.bincount(codes)
    large = np.flatnonzero(sizes >= LEAST_OF_CLASS)
    if len(large) < len(classes):
        reason = f"{len(classes) - len(large)} of {len(classes)} classes with fewer than {LEAST_OF_CLASS} distinct rows"
        context.skip("hubs", reason, modality)
    if len(classes) == 1:
        return
    best, hubs_of_all = None, []
    for code in large:
        members = np.flatnonzero(codes == code)
        n, k = len(members), min(NEIGHBORS, len(members) // 20)
        queries = context.queries(n)
        found = nearest_others(rows[members], queries, k)[1]
        counts = np.bincount(found.ravel(), minlength=n)
        null = _null(context, Gaussian.of(rows[members]), n, len(queries), k)
        hub = np.flatnonzero(counts > IN_CLASS * max(null.mean(), k / n) * len(queries))
        hub = hub[~np.isin(numbers[members[hub]], told)]
        if len(hub):
            reached = int(np.isin(found, hub).any(1).sum())
            values = _values(numbers[members], counts, hub, null, k=k, lists=len(queries), reached=reached)
            hubs_of_all += values["rows"]
            if best is None or values["largest"] / values["lists"] > best["largest"] / best["lists"]:
                best = {**values, "label": str(classes[code]), "n": n}
    if best is not None:
        rows_first = [best["rows"][0], *(row for row in hubs_of_all if row != best["rows"][0])]
        values = {**best, "rows": rows_first, "count": len(hubs_of_all)}
        yield finding("hubs", "warning", modality, kind="class", **values)


def _distinct(context: Context, modality: str) -> tuple[np.ndarray, np.ndarray]:
    """The sampled rows of the usual space without copies, and their numbers."""
    sample = context.sample(modality)
    own = (context.first_equal(modality)[sample] == sample) & context.own(modality)
    return sample[own], chosen(context.unit(modality), own)


def _values(numbers: np.ndarray, counts: np.ndarray, hub: np.ndarray, null: np.ndarray, **values) -> dict:
    hub = hub[np.argsort(-counts[hub], kind="stable")]
    deviation = counts - counts.mean()
    return {
        "count": len(hub),
        "largest": int(counts[hub[0]]),
        "null": float(null.mean()),
        "null_error": float(np.std(null, ddof=1) / np.sqrt(len(null))),
        "skewness": float((deviation**3).mean() / (deviation**2).mean() ** 1.5),
        "rows": numbers[hub].tolist(),
        **values,
    }


def _null(context: Context, gaussian: Gaussian, n: int, lists: int, k: int) -> np.ndarray:
    """In which share of the lists the most frequent one of n Gaussian rows is, in each draw."""
    generator = torch.Generator().manual_seed(context.seed)
    lists = min(lists, max(LEAST, NULL_WORK // n))
    found = (nearest_others(gaussian.draw(n, generator), np.arange(min(n, lists)), k)[1] for _ in range(DRAWS))
    return np.array([np.bincount(indices.ravel()).max() / len(indices) for indices in found])


def _null_across(context: Context, of: Gaussian, queries: Gaussian, n: int, lists: int) -> list[np.ndarray]:
    """The same for first places and top tens among n Gaussian rows, of independent queries."""
    generator = torch.Generator().manual_seed(context.seed)
    lists, shares = min(lists, max(LEAST, NULL_WORK // n)), []
    for _ in range(DRAWS):
        rows, asked = of.draw(n, generator), queries.draw(lists, generator)
        indices = nearest(torch.from_numpy(asked), NEIGHBORS, y=StreamedRows.of(rows))[1].numpy()
        shares.append([np.bincount(indices[:, :k].ravel()).max() / lists for k in (1, NEIGHBORS)])
    return list(np.transpose(shares))
