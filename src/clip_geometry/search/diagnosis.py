"""Is a mixed index broken, what repairs it, what does the repair cost, and how is it shipped."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clip_geometry.embeddings import Embeddings
from clip_geometry.measuring.given import given_sets
from clip_geometry.memory import give_back
from clip_geometry.progress import Progress, quiet
from clip_geometry.registry import InputError, instance, listed, parts
from clip_geometry.rows.arguments import one_of, seed_number
from clip_geometry.rows.streamed import release
from clip_geometry.search.checks import Context, Finding, NotRun, run_checks
from clip_geometry.search.comparison import AIMS, MOST_FIT, WORDS, Candidate, RepairComparison, Want, compare_repairs
from clip_geometry.search.mixed_index import MixedIndex, RelevantBy, require_one_space
from clip_geometry.search.repairs import Repair, make_repair

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        return [each.strip() for each in WORDS("verdict", found=self).split("¶") if each.strip()]

    def fitted(self, name: str | None = None) -> Repair:
        """Return a repair fitted on all items, or on 2,000 of them.

        Args:
            name: Of the repair; default: the recommended one, or where that is a baseline, which needs no repair, the
                best repair that one index serves.

        Raises:
            InputError: No repairs were compared, or none helps and no name is given.
        """
        compared = self.comparison
        if self.index is None or (name is None and compared is None):
            raise InputError(f"repairs were not compared: {self.skipped}")
        if name is None and compared is not None:
            name, served = compared.recommended, compared.served()
            if compared.candidates[name].baseline:
                name = served.name if served else "none"
        if name in (None, "none"):
            why = "no repair helps beyond noise"
            if compared is not None and (helping := compared.helping()):
                names = listed(each.name for each in helping)
                why = f"each repair that helps ({names}) has a cost or needs more than one index, as the table says"
            raise InputError(f"{why}, so there is none to fit; name one to have it anyway (--repair NAME)")
        return make_repair(name).fit(self.index.known(self.index.sampled(MOST_FIT)))

    def figure(self) -> "Figure":
        """Draw what the repairs find against what they cost, with the Pareto front."""
        from clip_geometry.search.figure import draw

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

        facts = {
            "shapes": self.shapes,
            "findings": [asdict(found) for found in self.findings],
            "not_run": [each._asdict() for each in self.not_run],
            "recommended": self.recommended,
            "skipped": self.skipped,
            **{name: getattr(compared, name, None) for name in ("ties", "front", "facts", "failed")},
            "repairs": described(compared.candidates) if compared else None,
            "full_index": described(compared.full) if compared else None,
            "verdict": self.verdict,
        }
        plain = lambda value: value.tolist() if hasattr(value, "tolist") else str(value)  # noqa: E731
        return json.dumps(facts, ensure_ascii=False, indent=1, default=plain)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.findings), *self.verdict])


def diagnose(
    image: Any,
    text: Any = None,
    *more: Any,
    labels: Any = None,
    ids: Any = None,
    other: Any = None,
    relevant: RelevantBy | None = None,
    want: Want = "both",
    repairs: Sequence[str] | None = None,
    splits: int = 10,
    seed: int = 0,
    progress: Progress = quiet,
) -> Diagnosis:
    """Checks an index of images and texts for faults, and compares repairs of its mixed search.

    Repairs are fitted on random halves of the items and searched with in the other halves, beside baselines that need
    no repair. The recommendation is the cheapest to serve of those that are best for the goal. Repairs that lose recall
    across modalities by more than two standard errors are not recommended; if the goal is a list of both modalities,
    neither are those that lose neighbors, precision or results of the query's own modality.

    Args:
        image: The first set, or all sets; sets, `labels` and `ids` are those of `measure`.
        text: The second set.
        more: Further sets.
        labels: One label per row; where every modality has them, equal labels are relevant to each other.
        ids: The item of each row; without labels, rows of one item are relevant to each other.
        other: Another split of the same data, in which copies of these rows would be leakage; given as `image`.
        relevant: "labels" or "pairs", where both are known.
        want: The goal. "both": a list with relevant items of both modalities, judged by the number "both", the mean of
            the relevant items found and the own results kept in the top ten, up to four of each modality. "pairs": the
            relevant item of another modality, judged by its reciprocal rank, "mrr"; results of the query's own modality
            do not count.
        repairs: Names of the repairs to compare; default: those of `compare_repairs`. An empty list compares none.
        splits: Number of random halves.
        seed: Of samples, null values and splits.
        progress: Called as in `cg.embed`; the units are fits of repairs.

    Returns:
        A `Diagnosis`: findings, repairs with their numbers, a verdict.

    Raises:
        InputError: The sets are not as described, or a repair is unknown.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> item = rng.normal(size=(100, 16))
        >>> image, text = (item + 0.5 * rng.normal(size=(100, 16)) for _ in range(2))
        >>> found = cg.diagnose(image + 2, text - 2, repairs=["zscore"], splits=4)
        >>> [(each.check, each.severity) for each in found.findings][0], found.recommended
        (('not_unit', 'warning'), 'zscore')
    """
    seed = seed_number(seed)
    if relevant is not None:
        one_of(relevant, "relevant", ("labels", "pairs"))
    one_of(want, "want", AIMS)
    if repairs is not None:
        several = [repairs] if isinstance(repairs, str) else instance(repairs, Sequence, "repairs", "names of repairs")
        repairs = [part for each in several for part in parts(instance(each, str, "a name in repairs", "text"))]
    sets = given_sets(image, text, *more, labels=labels, ids=ids)
    beside = None if other is None else given_sets(other)
    for each in (sets, beside or {}):
        require_one_space(each, "one index")
    context = Context(sets, other=beside, seed=seed)
    findings = run_checks(context)
    rows, not_run = _valid(sets, context), tuple(context.not_run)
    paired = len(sets) == 1 or bool(context.couples)
    del context  # with the unit rows of all sets
    give_back()
    wrong = list(dict.fromkeys(found.check for found in findings if found.severity == "error"))
    index = comparison = skipped = None
    if repairs is not None and not repairs:
        skipped = "none were asked for"
    elif wrong and repairs is None:
        skipped = f"{' and '.join(wrong)} would spoil the comparison; mend that first, or name the repairs to compare"
    else:
        try:
            index = MixedIndex.of(rows, relevant)
            comparison = compare_repairs(index, repairs, want=want, splits=splits, seed=seed, progress=progress)
        except InputError as error:
            if repairs is not None or relevant is not None:
                raise
            skipped = str(error)
    return Diagnosis(
        tuple(findings),
        comparison,
        skipped,
        index,
        {name: each.vectors.shape for name, each in sets.items()},
        paired=paired,
        not_run=not_run,
    )


def _valid(sets: Mapping[str, Embeddings], context: Context) -> dict[str, Embeddings]:
    """The rows that have a direction; those that pair by position still do."""
    by_position = len({len(each) for each in sets.values()}) == 1 and all(e.item_id is None for e in sets.values())
    valid = {}
    for name, each in sets.items():
        if by_position and not all(context.valid(other).all() for other in sets):
            each = replace(each, item_id=np.arange(len(each)))
        mask = context.valid(name)
        # an array on disk stays there
        whole = mask.all() and isinstance(each.vectors, np.ndarray)
        valid[name] = each if whole else each.take(np.flatnonzero(mask))
        release(each.vectors)
    return valid
