"""Remarks on the sets, from a cheap look before they are measured: pairs out of order, duplicates, transposed sets."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.display.words import Words
from clip_geometry.embeddings import Embeddings
from clip_geometry.registry import InputError
from clip_geometry.search.checks import first_equal
from clip_geometry.search.checks.copies import explaining, unexplained_copies
from clip_geometry.search.checks.pairs import match

WORDS = Words(Path(__file__).with_name("remarks.j2"))
RUNS, RUN = 8, 500  # number and length of the runs of consecutive pairs to sample from longer sets
ROWS, LEAST = 2000, 20  # most and fewest rows used to detect a transposed set
ROUNDING = 1e-5  # unit rows in float32 that differ by less are equal
# Thresholds for a transposed set. In 10 sets of real embeddings, the lengths of items vary by 0 to 0.07 (standard
# deviation over mean) and those of dimensions by 0.4 to 1.4, 18 times as much as those of the items.
VARIED, EQUAL = 0.3, 0.2  # lengths: least variation of dimensions, largest of items relative to it
CONE = 0.1  # least average cosine of items; it is 0 for whitened or standardized columns, whose lengths are equal


def remarks_on(
    sets: Mapping[str, Embeddings],
    couples: Iterable[tuple[str, str]],
    pairs: Callable[[str, str], tuple[np.ndarray, np.ndarray]],
    *,
    all_rows: bool,
) -> Iterator[str]:
    """Yield one sentence for each thing worth knowing about the sets as they were read.

    pairs: a function that returns the matching rows of a couple, or raises InputError if there are none. all_rows:
    whether to look for copies as well, which reads every row.
    """
    layers = {layer for each in sets.values() for layer in np.unique(each.metadata.get("layer", ()))}
    if len(layers) > 1:
        yield WORDS("layers", count=len(layers))
    for modality, each in sets.items():
        if dropped := each.provenance.get("dropped"):
            yield WORDS("dropped", count=dropped, modality=modality)
        if looks_transposed(each):
            yield WORDS("transposed", modality=modality, n=len(each), d=each.dim)
    for modality, each in sets.items() if all_rows else ():
        if count := len(unexplained_copies(each, first_equal(each.vectors))):
            yield WORDS("copies", count=count, n=len(each), modality=modality, explained=bool(explaining(each)))
    several = len(sets) > 2
    for one, other in couples:
        first, second = sets[one], sets[other]
        with_ids = [each.modality for each in (first, second) if each.item_id is not None]
        if len(with_ids) == 1 and len(first) == len(second) and "label" not in (first.pair_on, second.pair_on):
            yield WORDS("ids", with_ids=with_ids[0], without=other if with_ids == [one] else one)
        if first.dim != second.dim:
            if several:
                yield WORDS("dimensions", one=one, first=first.dim, other=other, second=second.dim)
            continue
        untrained = all("/fresh" in str(each.provenance.get("model")) for each in (first, second))
        try:
            remark = out_of_order(first, second, pairs(one, other), several=several)
        except InputError:  # no rows pair; the measures of pairs report it
            continue
        if remark and not untrained:
            yield remark


def looks_transposed(embeddings: Embeddings) -> bool:
    """Return whether columns look like items: about equally long and in a cone, while the lengths of rows vary."""
    n, d = embeddings.vectors.shape
    if min(n, d) < LEAST:
        return False
    x = np.asarray(embeddings.vectors[np.linspace(0, n - 1, min(n, ROWS)).astype(int)], dtype=np.float64)
    with np.errstate(all="ignore"):  # zero columns and NaN, which the measures report
        rows, columns = (np.linalg.norm(x, axis=axis) for axis in (1, 0))
        varied, equal = (lengths.std() / lengths.mean() for lengths in (rows, columns))
        cosine = (np.square((x / columns).sum(1)).sum() - d) / (d * (d - 1))
    return bool(varied > VARIED and equal < EQUAL * varied and cosine > CONE)


def out_of_order(
    first: Embeddings, second: Embeddings, pairs: tuple[np.ndarray, np.ndarray], *, several: bool = False
) -> str | None:
    """Return a remark if pairs match no better than random ones, or match better after a shift of rows (see `match`).

    first, second: sets in one space, whose rows may lie in files. several: whether there are other couples.
    """
    numbers = np.arange(len(pairs[0]))
    if len(numbers) > RUNS * RUN:
        numbers = np.add.outer(np.linspace(0, len(numbers) - RUN, RUNS).astype(int), np.arange(RUN)).ravel()
    a, b = (_unit(each.vectors, rows[numbers]) for each, rows in zip((first, second), pairs, strict=True))
    numbers = np.arange(len(numbers))
    distinct = (first_equal(a) == numbers) & (first_equal(b) == numbers)
    matched = match(a, b, ~np.isnan((a + b).sum(1)), distinct, seed=0)  # centers both
    if matched is None or min(np.abs(a).max(), np.abs(b).max()) < ROUNDING:
        return None
    shift, *_, better, _ = max(matched.segments, key=lambda segment: segment.better, default=(0, 0, 0))
    if not (shift or matched.at_chance):
        return None
    couple = (first.modality, second.modality)
    return WORDS(
        "order", couple=couple, several=several, shift=shift, better=better, n=len(matched.queries), z=matched.z
    )


def _unit(vectors: Any, rows: np.ndarray) -> np.ndarray:
    x = np.asarray(vectors[rows], dtype=np.float64)
    with np.errstate(all="ignore"):  # zero rows and NaN, which match nothing
        return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
