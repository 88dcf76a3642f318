"""What findings and compared repairs say, in sentences: of a diagnosis, and of the records of a run."""

from collections.abc import Iterable
from pathlib import Path

from clip_geometry.diagnosis.comparison import RepairComparison
from clip_geometry.diagnosis.finding import Severity
from clip_geometry.display.words import Words

WORDS = Words(Path(__file__).with_name("verdict.j2"))


def faults(found: Iterable[tuple[str, Severity]]) -> str:
    """Name the checks that found something, errors and warnings, of (check, severity)."""
    found = list(found)
    severe, worse = (list(dict.fromkeys(c for c, s in found if s == kind)) for kind in ("error", "warning"))
    return WORDS("faults", severe=severe, worse=worse)


def sentences(compared: RepairComparison) -> list[str]:
    """Say what a mixed index finds, what to take for the goal, what is given up, and what ties with it."""
    candidates, index = compared.candidates, compared.facts["index"]
    none, taken = candidates["none"], candidates[compared.recommended]
    said = [WORDS("state", before=none, by=compared.facts["relevant_by"], index=index)]
    if taken is none:
        costly = [each for each in candidates.values() if each.costs and not each.baseline]
        best = max(costly, key=lambda each: each.numbers[compared.aim].value, default=None)
        return [*said, WORDS("no_help", best=best, aim=compared.aim, want=compared.want)]
    said += [
        WORDS("take", taken=taken, before=none, aim=compared.aim, want=compared.want),
        WORDS("full", full=compared.full.get(taken.name), aim=compared.aim, n=compared.facts["n"]),
        WORDS("after", taken=taken, alone=compared.facts.get("alone", ()), index=index),
        WORDS("given_up", taken=taken, before=none, by=compared.facts["relevant_by"]),
        WORDS("serving", taken=taken),
    ]
    if ties := [name for name in compared.ties if name != taken.name]:
        said.append(WORDS("ties", names=ties))
    if taken.baseline:
        said.append(WORDS("instead", best=compared.served(), taken=taken, aim=compared.aim))
    return [each for each in said if each]
