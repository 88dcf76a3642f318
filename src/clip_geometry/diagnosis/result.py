"""A diagnosis: what was found, which repair to take, as text, a table, a figure, a file."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clip_geometry.diagnosis.comparison import MOST_FIT, Candidate, RepairComparison
from clip_geometry.diagnosis.context import NotRun
from clip_geometry.diagnosis.finding import Finding, Severity
from clip_geometry.diagnosis.index import MixedIndex
from clip_geometry.display.words import Words
from clip_geometry.registry import InputError, listed
from clip_geometry.repairs import Repair, make_repair

if TYPE_CHECKING:
    from matplotlib.figure import Figure


WORDS = Words(Path(__file__).with_name("verdict.j2"))


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What `diagnose` found.

    Attributes:
        findings: Of the checks, errors first.
        comparison: The repairs; None if none were compared.
        skipped: Why none were.
        index: What the repairs were compared on.
        shapes: Modality → (n, d).
        paired: Whether rows of two modalities pair, which several checks need.
        not_run: Checks that did not run, for all or for some sets, and why.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(300, 8))
        >>> found = cg.diagnose(x / np.linalg.norm(x, axis=1, keepdims=True))
        >>> print(found.verdict[0])
        The checks found no fault.
    """

    findings: Sequence[Finding]
    comparison: RepairComparison | None
    skipped: str | None
    index: MixedIndex | None
    shapes: Mapping[str, tuple[int, int]]
    paired: bool = True
    not_run: Sequence[NotRun] = ()

    @property
    def recommended(self) -> str | None:
        """The repair to take; "none" where nothing helps beyond noise, None if none were compared."""
        return None if self.comparison is None else self.comparison.recommended

    @property
    def verdict(self) -> list[str]:
        """The answer in a few sentences; what was not checked comes last."""
        said = [faults((found.check, found.severity) for found in self.findings)]
        if not self.paired:
            said.append(WORDS("unpaired"))
        if self.comparison is None:
            said.append(WORDS("skipped", why=self.skipped))
        else:
            said += sentences(self.comparison)
        if self.not_run:
            said.append(WORDS("not_run", skipped=self.not_run))
        return said

    def fitted(self, name: str | None = None) -> Repair:
        """Return a repair fitted on all items, or on 2,000 of them.

        Args:
            name: Of the repair; default: the recommended one, or where that is a baseline, which needs no repair, the
                best repair that one index serves.

        Raises:
            InputError: No repairs were compared, or none helps and no name is given.
        """
        if self.index is None or (name is None and self.comparison is None):
            raise InputError(f"repairs were not compared: {self.skipped}")
        if name is None and self.comparison is not None:
            served, name = self.comparison.served(), self.comparison.recommended
            if self.comparison.candidates[name].baseline:
                name = served.name if served else "none"
        if name in (None, "none"):
            why, helping = "no repair helps beyond noise", self.comparison.helping() if self.comparison else ()
            if helping:
                names = listed(each.name for each in helping)
                why = f"each repair that helps ({names}) has a cost or needs more than one index, as the table says"
            raise InputError(f"{why}, so there is none to fit; name one to have it anyway (--repair NAME)")
        return make_repair(name).fit(self.index.known(self.index.sampled(MOST_FIT)))

    def figure(self) -> "Figure":
        """Draw what the repairs find against what they cost, with the Pareto front."""
        from clip_geometry.diagnosis.figure import draw

        if self.comparison is None:
            raise InputError(f"no repair was compared, so that there is nothing to draw: {self.skipped}")
        return draw(self.comparison)

    def to_json(self) -> str:
        """All of it as JSON."""
        compared = self.comparison

        def described(candidates: Mapping[str, Candidate]) -> dict[str, Any]:
            return {
                name: {
                    "numbers": {number: estimate._asdict() for number, estimate in each.numbers.items()},
                    "changes": {number: estimate._asdict() for number, estimate in each.changes.items()},
                    "costs": [str(cost) for cost in each.costs],
                    "serving": each.serving._asdict(),
                }
                for name, each in candidates.items()
            }

        return json.dumps(
            {
                "shapes": {name: list(shape) for name, shape in self.shapes.items()},
                "findings": [asdict(found) for found in self.findings],
                "not_run": [each._asdict() for each in self.not_run],
                "recommended": self.recommended,
                "ties": list(compared.ties) if compared else None,
                "front": list(compared.front) if compared else None,
                "skipped": self.skipped,
                "facts": compared.facts if compared else None,
                "failed": compared.failed if compared else None,
                "repairs": described(compared.candidates) if compared else None,
                "full_index": described(compared.full) if compared else None,
                "verdict": self.verdict,
            },
            ensure_ascii=False,
            indent=1,
            default=lambda value: value.tolist() if hasattr(value, "tolist") else str(value),
        )

    def __str__(self) -> str:
        lines = [f"{found}" for found in self.findings]
        return "\n".join([*lines, *self.verdict])


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
