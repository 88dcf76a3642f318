"""Pairs that do not belong together: some, or all of them."""

from collections.abc import Iterator
from math import sqrt

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.checks.unrelated_spaces import unrelated
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding

CLEAN = 0.001  # share of clean pairs whose partner ranks in the farther half: 0 of 500 COCO pairs, 0 of 4,096 scenes
P_VALUE = 1e-3
MANY = 0.2  # of the pairs: not what a data set has by its nature


@add_check(
    "shuffled_pairs",
    "pairs that do not belong together",
    threshold="More pairs rank in the farther half of all rows than a share of 0.1% lets expect (p < 0.001): none of "
    "4,596 clean pairs does. Half of the random pairs do, so that their share is twice that.",
)
def shuffled_pairs(context: Context) -> Iterator[Finding]:
    from scipy.special import bdtrc

    for one, other in context.couples:
        found = context.matching(one, other)
        if found is None or unrelated(found, context.shared_space(one, other)):
            continue
        far, n = found.at_chance, len(found.queries)
        p_value = float(bdtrc(far - 1, n, CLEAN)) if far else 1.0
        if p_value < P_VALUE:
            share = min(1.0, 2 * far / n)
            yield finding(
                "shuffled_pairs",
                "error" if share > MANY else "warning",
                one,
                other,
                share=share,
                error=2 * sqrt(far * (n - far) / n) / n,
                far=far,
                n=n,
                pairs=found.n,
                p_value=max(p_value, 1e-300),
                z=found.z,
                random=share > 0.9,
                shift=found.shift,
            )
