"""Pairs that do not belong together: of modalities that nothing relates, a fixed number of rows off, or shuffled."""

from scipy.special import bdtrc

from clip_geometry.search.checks import Findings, add_check, finding
from clip_geometry.search.checks.context import Context
from clip_geometry.search.checks.matching import Matching, random_share

CLEAN = 0.001  # share of clean pairs whose partner ranks in the farther half: 0 of 500 COCO pairs, 0 of 4,096 scenes
P_VALUE = 1e-3  # of so many pairs in the farther half, were all pairs clean
MANY = 0.2  # of the pairs: not what a data set has by its nature
FEW = 0.05  # of the pairs: below, a few hard items of a weak model look the same


@add_check
def unrelated_spaces(context: Context) -> Findings:
    for one, other, matching in context.matchings("unrelated_spaces"):
        if _unrelated(context, one, other, matching):
            overlapping = context.shared_space(one, other)
            n = len(matching.queries)
            values = {"count": min(int((matching.corrected > 0.5).sum()), n), "n": n, "z": matching.z}
            values |= {"overlap": overlapping.value, "overlap_z": overlapping.z}
            partners = context.partners(one, other)._asdict()
            yield finding("unrelated_spaces", "warning", one, other, **values, partners=partners)


def _unrelated(context: Context, one: str, other: str, matching: Matching) -> bool:
    """Whether the pairs match at chance, and no rows match in another order."""
    return matching.at_chance and not context.partners(one, other).exist


@add_check
def shifted_pairs(context: Context) -> Findings:
    for one, other, found in context.matchings("shifted_pairs"):
        pairs = context.pairs(one, other)
        if found.segments and pairs is not None:
            names, segments = (one, other), []
            for each in found.segments:
                rows, partners = pairs[each.side], pairs[1 - each.side]
                moved = each.shift if each.side == 0 else -each.shift
                ends = [int(partners[(k + moved) % found.n]) for k in (each.first, each.last)]
                segment = {"modality": names[each.side], "first": int(rows[each.first]), "last": int(rows[each.last])}
                segment |= {"partner": names[1 - each.side], "partners": ends}
                segments.append(segment | {"shift": each.shift, "count": each.better, "z": each.z})
            whole = segments[0]["first"] == 0 and segments[0]["last"] == len(context.sets[segments[0]["modality"]]) - 1
            largest = max(segments, key=lambda each: each["count"])
            values = {name: largest[name] for name in ("shift", "first", "last")}
            values |= {"count": sum(each["count"] for each in segments), "n": len(found.queries), "pairs": found.n}
            yield finding(
                "shifted_pairs", "error", one, other, **values, segments=segments, whole=whole, z_given=found.z
            )


@add_check
def shuffled_pairs(context: Context) -> Findings:
    for one, other, found in context.matchings("shuffled_pairs"):
        if _unrelated(context, one, other, found):
            continue
        n = len(found.queries)
        far = int((found.corrected > 0.5).sum() / 2)
        p_value = float(bdtrc(far - 1, n, CLEAN)) if far else 1.0
        if p_value >= P_VALUE:
            continue
        tail = random_share(found.corrected, 1 / found.candidates)
        random = found.at_chance
        named = random or (tail.separate and tail.share + 2 * tail.error > FEW)
        severity = "note" if not named else "error" if tail.share > MANY else "warning"
        values = {"share": tail.share, "error": tail.error, "most": min(1.0, tail.share + 2 * tail.error)}
        values |= {"named": named, "start": tail.start, "gain": tail.gain, "far": far, "n": n, "pairs": found.n}
        values |= {"p_value": max(p_value, 1e-300), "z": found.z, "random": random, "shifted": bool(found.segments)}
        partners = context.partners(one, other)._asdict() if random else None
        yield finding("shuffled_pairs", severity, one, other, **values, partners=partners)
