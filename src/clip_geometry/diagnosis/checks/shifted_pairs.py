"""Pairs that are a fixed number of rows off."""

from collections.abc import Iterator

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding


@add_check(
    "shifted_pairs",
    "pairs that are a fixed number of rows off",
    threshold="The best of all n shifts stands 6 standard deviations above the largest of n random sums, and a "
    "fifth of the pairs that match at chance as given match there.",
)
def shifted_pairs(context: Context) -> Iterator[Finding]:
    for one, other in context.couples:
        found = context.matching(one, other)
        if found is not None and found.shift:
            yield finding(
                "shifted_pairs",
                "error",
                one,
                other,
                shift=found.shift,
                start=found.start,
                count=found.shifted,
                n=len(found.queries),
                pairs=found.n,
                z=found.z_shift,
                z_given=found.z,
            )
