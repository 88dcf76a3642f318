"""What findings and compared repairs say, in sentences: of a diagnosis, and of the records of a run."""

from collections.abc import Iterable
from pathlib import Path

from clip_geometry.diagnosis.comparison import AIM, RepairComparison
from clip_geometry.diagnosis.finding import Severity
from clip_geometry.repairs import repairs
from clip_geometry.report.words import Words

WORDS = Words(Path(__file__).with_name("verdict.j2"))


def faults(found: Iterable[tuple[str, Severity]]) -> str:
    """Name the checks that found something, errors and warnings, of (check, severity)."""
    found = list(found)
    severe, worse = (list(dict.fromkeys(c for c, s in found if s == kind)) for kind in ("error", "warning"))
    return WORDS("faults", severe=severe, worse=worse)


def sentences(compared: RepairComparison) -> list[str]:
    """Say what a mixed index finds, which repair to take, what it costs, and what ties with it."""
    candidates, index = compared.candidates, compared.facts["index"]
    none, taken = candidates["none"], candidates[compared.recommended]
    said = [WORDS("state", before=none, by=compared.facts["relevant_by"], index=index)]
    if taken is none:
        costly = [each for each in candidates.values() if each.costs and not repairs[each.name].baseline]
        return [*said, WORDS("no_help", best=max(costly, key=lambda each: each.numbers[AIM].value, default=None))]
    alone = compared.facts.get("alone", ())
    said += [
        WORDS("take", taken=taken, change=taken.changes[AIM]),
        WORDS("after", taken=taken, alone=alone, index=index),
        WORDS("costs", taken=taken),
    ]
    if ties := [name for name in compared.ties if name != taken.name]:
        said.append(WORDS("ties", names=ties))
    better = [
        each
        for each in candidates.values()
        if repairs[each.name].baseline and each.numbers[AIM].value > taken.numbers[AIM].value
    ]
    if better:
        best = max(better, key=lambda each: each.numbers[AIM].value)
        said.append(WORDS("baseline", best=best, by=compared.facts["relevant_by"]))
    return said
