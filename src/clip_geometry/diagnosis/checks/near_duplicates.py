"""Rows far nearer to another row than neighbors are: the same image compressed again, one caption without its stop."""

from collections.abc import Iterator

import numpy as np

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding
from clip_geometry.diagnosis.tail import too_near


@add_check(
    "near_duplicates",
    "rows that are nearly copies of others",
    threshold="Distances to the nearest row below a tenth of their median, of which the tail of the others lets expect "
    "at most one in a hundred (p < 0.0001).",
)
def near_duplicates(context: Context) -> Iterator[Finding]:
    for modality in context.sets:
        if context.valid(modality).sum() < 2:
            continue
        near = context.neighbors(modality)
        if not len(near.queries) or not near.distances.size:
            continue
        own = ~np.isin(near.numbers[near.queries], context.foreign_numbers(modality))
        distances, queries = near.distances[own, 0], near.queries[own]
        found = too_near(distances)
        if found is not None:
            marked = distances <= found.limit
            yield finding(
                "near_duplicates",
                "warning",
                modality,
                count=found.count,
                n=len(distances),
                sampled=len(near.queries) < len(context.sets[modality]) and len(near.queries) < len(near.numbers),
                cosine=1 - found.limit**2 / 2,
                distance=found.limit,
                median=found.median,
                expected=found.expected,
                p_value=found.p_value,
                rows=near.numbers[queries[marked]].tolist(),
                near=near.numbers[near.indices[own, 0][marked]].tolist(),
            )
