"""Two modalities that share no space: of an untrained model, or of two models."""

from collections.abc import Iterator

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding
from clip_geometry.diagnosis.matching import Matching
from clip_geometry.diagnosis.spaces import Overlap

SURE = 4.0  # standard deviations under a random rotation: p = 0.00003


@add_check(
    "unrelated_spaces",
    "modalities that share no space",
    threshold="More than half of the pairs match at chance, and the covariances of the modalities overlap by less than "
    "4 standard deviations of a random rotation, whatever the order of the rows.",
)
def unrelated_spaces(context: Context) -> Iterator[Finding]:
    for one, other in context.couples:
        matching, overlapping = context.matching(one, other), context.shared_space(one, other)
        if matching is not None and unrelated(matching, overlapping):
            yield finding(
                "unrelated_spaces",
                "warning",
                one,
                other,
                count=min(2 * matching.at_chance, len(matching.queries)),
                n=len(matching.queries),
                z=matching.z,
                overlap=overlapping.value,
                overlap_z=overlapping.z,
            )


def unrelated(matching: Matching, overlapping: Overlap) -> bool:
    return matching.at_chance > len(matching.queries) / 4 and overlapping.z < SURE
