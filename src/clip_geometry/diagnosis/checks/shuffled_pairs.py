"""Pairs that do not belong together: some, or all of them."""

from collections.abc import Iterator

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.checks.unrelated_spaces import unrelated
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding
from clip_geometry.diagnosis.matching import LEAST
from clip_geometry.diagnosis.ranks import random_share

CLEAN = 0.001  # share of clean pairs whose partner ranks in the farther half: 0 of 500 COCO pairs, 0 of 4,096 scenes
P_VALUE = 1e-3
MANY = 0.2  # of the pairs: not what a data set has by its nature
FEW = 0.05  # of the pairs: below, a few hard items of a weak model look the same


@add_check(
    "shuffled_pairs",
    "pairs that do not belong together",
    threshold="The ranks of the partners have a flat tail (p > 0.05), as those of random pairs have in any model, and "
    "random pairs explain all ranks better than a weak model does, by a factor of 5·10⁸ (log likelihood ratio 20). The "
    "density of the tail is the share of random pairs; 5% have to be possible. A tail that falls is that of a weak "
    "model: a note. Where all pairs match at chance, rows have to have partners elsewhere: the nearest row of "
    "the other modality is nearer, by a standard deviation, than among Gaussian rows with the same means and "
    "covariances.",
)
def shuffled_pairs(context: Context) -> Iterator[Finding]:
    from scipy.special import bdtrc

    if not context.couples:
        context.skip("shuffled_pairs", "no rows of two modalities pair")
    for one, other in context.couples:
        found = context.matching(one, other)
        if found is None:
            context.skip("shuffled_pairs", f"fewer than {LEAST} distinct pairs", one, other)
        if found is None or unrelated(context, one, other):
            continue
        n = len(found.queries)
        far = int((found.corrected > 0.5).sum() / 2)
        p_value = float(bdtrc(far - 1, n, CLEAN)) if far else 1.0
        if p_value >= P_VALUE:
            continue
        tail = random_share(found.corrected, 1 / found.candidates)
        random = found.at_chance
        named = random or (tail.separate and tail.share + 2 * tail.error > FEW)
        yield finding(
            "shuffled_pairs",
            "note" if not named else "error" if tail.share > MANY else "warning",
            one,
            other,
            share=tail.share,
            error=tail.error,
            named=named,
            most=min(1.0, tail.share + 2 * tail.error),
            start=tail.start,
            gain=tail.gain,
            far=far,
            n=n,
            pairs=found.n,
            p_value=max(p_value, 1e-300),
            z=found.z,
            random=random,
            shifted=bool(found.segments),
            partners=context.partners(one, other)._asdict() if random else None,
        )
