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
    candidates, modalities = compared.candidates, list(compared.facts["n"])
    none, taken = candidates["none"], candidates[compared.recommended]
    said = [WORDS("state", before=none, by=compared.facts["relevant_by"], modalities=modalities)]
    if taken is none:
        best = max(candidates.values(), key=lambda each: each.numbers[AIM].value)
        return [*said, WORDS("no_help", best=best if best is not none else None)]
    said += [WORDS("take", taken=taken, change=taken.changes[AIM]), WORDS("costs", taken=taken)]
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
