"""Pairs that are a fixed number of rows off, all of them or a segment."""

from collections.abc import Iterator

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding
from clip_geometry.diagnosis.matching import LEAST


@add_check(
    "shifted_pairs",
    "pairs that are a fixed number of rows off",
    threshold="The best of all n shifts stands 6 standard deviations above the largest of n random sums, and a run of "
    "rows ranks its partners there so much higher than as given that random ranks have such a run with p < 0.0001: "
    "about 15 rows of a trained model.",
)
def shifted_pairs(context: Context) -> Iterator[Finding]:
    if not context.couples:
        context.skip("shifted_pairs", "no rows of two modalities pair")
    for one, other in context.couples:
        found, pairs = context.matching(one, other), context.pairs(one, other)
        if found is None or pairs is None:
            context.skip("shifted_pairs", f"fewer than {LEAST} distinct pairs", one, other)
        elif found.segments:
            names, segments = (one, other), []
            for each in found.segments:
                rows, partners = pairs[each.side], pairs[1 - each.side]
                moved = each.shift if each.side == 0 else -each.shift
                segments.append(
                    {
                        "modality": names[each.side],
                        "first": int(rows[each.first]),
                        "last": int(rows[each.last]),
                        "partner": names[1 - each.side],
                        "partners": [int(partners[(k + moved) % found.n]) for k in (each.first, each.last)],
                        "shift": each.shift,
                        "count": each.better,
                        "z": each.z,
                    }
                )
            whole = segments[0]["first"] == 0 and segments[0]["last"] == len(context.sets[segments[0]["modality"]]) - 1
            largest = max(segments, key=lambda each: each["count"])
            yield finding(
                "shifted_pairs",
                "error",
                one,
                other,
                **{name: largest[name] for name in ("shift", "first", "last")},
                count=sum(each["count"] for each in segments),
                n=len(found.queries),
                pairs=found.n,
                segments=segments,
                whole=whole,
                z_given=found.z,
            )
