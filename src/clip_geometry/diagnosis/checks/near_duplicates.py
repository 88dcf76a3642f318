"""Items far nearer to another item than neighbors are: an image compressed again, a caption without its stop."""

from collections.abc import Iterator

import numpy as np

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import Context, nearest_others
from clip_geometry.diagnosis.finding import Finding, finding
from clip_geometry.diagnosis.tail import LEAST, too_near


@add_check(
    "near_duplicates",
    "items that are nearly copies of others",
    threshold="Distances to the nearest item below a tenth of their median, of which the tail of the others lets "
    "expect at most one in a hundred (p < 0.0001). Pairs are compared in both modalities at once, each in units of its "
    "median distance: two captions that say the same of different images are no near copies.",
)
def near_duplicates(context: Context) -> Iterator[Finding]:
    for one, other in context.couples:
        scales = (context.scale(one), context.scale(other))
        if min(scales) > 0:
            items = context.items(one, other, scales)
            queries = context.queries(len(items.i))
            distances, indices = nearest_others(items.rows, queries, min(1, len(items.i) - 1))
            yield from _found(context, (one, other), items.i, queries, distances, indices)
    for modality in set(context.sets).difference(*context.couples):
        near = context.neighbors(modality)
        own = ~np.isin(near.numbers[near.queries], context.foreign_numbers(modality))
        yield from _found(context, (modality,), near.numbers, near.queries[own], near.distances[own], near.indices[own])


def _found(
    context: Context,
    modalities: tuple[str, ...],
    numbers: np.ndarray,
    queries: np.ndarray,
    distances: np.ndarray,
    indices: np.ndarray,
) -> Iterator[Finding]:
    """numbers: of the rows searched in. queries, distances, indices: as of Neighbors."""
    if len(distances) < LEAST:
        items = "pairs" if len(modalities) == 2 else "rows"
        context.skip("near_duplicates", f"fewer than {LEAST} distinct {items}", *modalities)
    tail = too_near(distances[:, 0]) if distances.size else None
    if tail is None:
        return
    marked = distances[:, 0] <= tail.limit
    yield finding(
        "near_duplicates",
        "warning",
        *modalities,
        count=tail.marked,
        n=len(queries),
        sampled=len(queries) < len(numbers) or len(context.sample(modalities[0])) < context.valid(modalities[0]).sum(),
        ratio=tail.limit / tail.median,
        expected=tail.expected,
        p_value=tail.p_value,
        rows=numbers[queries[marked]].tolist(),
        near=numbers[indices[marked, 0]].tolist(),
    )
