"""Two modalities that nothing relates: of an untrained model, or of two models."""

from collections.abc import Iterator

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding
from clip_geometry.diagnosis.matching import LEAST


@add_check(
    "unrelated_spaces",
    "modalities that nothing relates",
    threshold="All pairs together match less than 4 standard deviations better than random ones, and rows have no "
    "partners elsewhere: their nearest row of the other modality is not nearer, by a standard deviation, than among "
    "Gaussian rows with the same means and covariances.",
)
def unrelated_spaces(context: Context) -> Iterator[Finding]:
    if not context.couples:
        context.skip("unrelated_spaces", "no rows of two modalities pair")
    for one, other in context.couples:
        matching = context.matching(one, other)
        if matching is None:
            context.skip("unrelated_spaces", f"fewer than {LEAST} distinct pairs", one, other)
        elif unrelated(context, one, other):
            overlapping = context.shared_space(one, other)
            yield finding(
                "unrelated_spaces",
                "warning",
                one,
                other,
                count=min(int((matching.corrected > 0.5).sum()), len(matching.queries)),
                n=len(matching.queries),
                z=matching.z,
                overlap=overlapping.value,
                overlap_z=overlapping.z,
                partners=context.partners(one, other)._asdict(),
            )


def unrelated(context: Context, one: str, other: str) -> bool:
    """Whether the pairs match at chance, and no rows match in another order."""
    matching = context.matching(one, other)
    return matching is not None and matching.at_chance and not context.partners(one, other).exist
