"""Diagnosis of a mixed index: its faults, the repairs that help, their costs, and how to serve them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clip_geometry.embeddings import Embeddings
from clip_geometry.measuring.given import given_sets
from clip_geometry.memory import give_back
from clip_geometry.progress import Progress, quiet
from clip_geometry.registry import InputError, listed, names_in
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
    """Result of `diagnose`: the faults of an index, and a comparison of repairs of its mixed search.

    Attributes:
        findings: What the checks found, as one `Finding` each, errors first.
        comparison: The compared repairs, as a `RepairComparison`; None if no repairs were compared.
        skipped: Why no repairs were compared; None if repairs were compared.
        index: The index on which the repairs were compared.
        shapes: Modality → (n, d).
        paired: Whether rows of different modalities are known to belong to the same item, which several checks need.
        not_run: Check → why it did not run, for all or some of the sets.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(300, 8))
        >>> diagnosis = cg.diagnose(x / np.linalg.norm(x, axis=1, keepdims=True))
        >>> print(diagnosis.verdict[0])
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
        """Name of the recommended repair; "none" if no repair helps beyond noise, None if no repairs were compared."""
        return None if self.comparison is None else self.comparison.recommended

    @property
    def verdict(self) -> list[str]:
        """The conclusion in a few sentences, the last of which say what was not checked."""
        paragraphs = WORDS("verdict", diagnosis=self).split("¶")
        return [paragraph.strip() for paragraph in paragraphs if paragraph.strip()]

    def fitted(self, name: str | None = None) -> Repair:
        """Return a repair fitted on all items, or on a sample of 2,000 if there are more.

        Args:
            name: Name of the repair. By default the recommended one or, if that is a baseline and needs no repair of
                the rows, the best repair that one index can serve.

        Raises:
            InputError: No repairs were compared, or no name is given and no repair helps.
        """
        compared = self.comparison
        if self.index is None or (name is None and compared is None):
            raise InputError(f"repairs were not compared: {self.skipped}")
        if name is None and compared is not None:
            name = compared.recommended
            if compared.candidates[name].baseline:
                served = compared.served()
                name = served.name if served else "none"
        if name in (None, "none"):
            reason = "no repair helps beyond noise"
            helping = [] if compared is None else compared.helping()
            if helping:
                names = listed(candidate.name for candidate in helping)
                reason = f"each repair that helps ({names}) has a cost or needs more than one index, as the table says"
            raise InputError(f"{reason}, so no repair was fitted; name one to fit it anyway (--repair NAME)")
        return make_repair(name).fit(self.index.known(self.index.sampled(MOST_FIT)))

    def figure(self) -> "Figure":
        """Plot the gain of each repair for the goal against ordinary recall, with the Pareto front.

        Raises:
            InputError: No repairs were compared.
        """
        from clip_geometry.search.figure import draw

        if self.comparison is None:
            raise InputError(f"no repair was compared, so there is nothing to draw: {self.skipped}")
        return draw(self.comparison)

    def to_json(self) -> str:
        """Return the whole diagnosis as JSON."""
        compared = self.comparison

        def described(candidates: Mapping[str, Candidate]) -> dict[str, Any]:
            return {
                name: {
                    "numbers": {number: estimate._asdict() for number, estimate in candidate.numbers.items()},
                    "changes": {number: estimate._asdict() for number, estimate in candidate.changes.items()},
                    "costs": [str(cost) for cost in candidate.costs],
                    "serving": candidate.serving._asdict(),
                }
                for name, candidate in candidates.items()
            }

        facts = {
            "shapes": self.shapes,
            "findings": [asdict(finding) for finding in self.findings],
            "not_run": [check._asdict() for check in self.not_run],
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
    """Check an index of images and texts for faults, and compare repairs of its mixed search.

    A mixed search returns items of all modalities in one list. A repair is a change of the rows or of the scores that
    makes such a list useful, such as standardizing the scores of each modality. Repairs are fitted on random halves of
    the items and evaluated by searches in the other halves, next to baselines that need no repair.

    The recommended repair is the one that is cheapest to serve among the best for the goal `want`. It must not lower
    recall across modalities by more than two standard errors. If the goal is "both", it must not lower precision,
    change the nearest rows within a modality, or lose results of the query's own modality by more than a tolerance
    either.

    Args:
        image: The first set, or all sets; `image`, `labels` and `ids` are given as in `measure`.
        text: The second set.
        more: Further sets.
        labels: One label per row. If every modality has labels, items with equal labels are relevant to each other.
        ids: The item of each row. Without labels, rows of one item are relevant to each other.
        other: Another split of the same data, given as `image`. Rows that occur in both are reported as leakage.
        relevant: What makes items relevant if both are known: "labels" or "pairs".
        want: Goal of a search. "both": ten results with relevant items of both modalities, judged by the mean of two
            shares: the relevant items of other modalities that are found, and the relevant items of the query's own
            modality that are kept (at most four items count in each). "pairs": the relevant item of another modality
            comes first, judged by its mean reciprocal rank.
        repairs: Names of the repairs to compare, from `clip-geometry list repairs`; default: those that
            `compare_repairs` compares. An empty list compares none.
        splits: Number of random halves.
        seed: Seed of the samples, null values and splits.
        progress: Called as in `cg.embed`; the unit is one fit of a repair.

    Returns:
        A `Diagnosis` with the findings, the compared repairs and a verdict.

    Raises:
        InputError: The sets are not as described, or a repair is unknown.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> item = rng.normal(size=(100, 16))
        >>> image, text = (item + 0.5 * rng.normal(size=(100, 16)) for _ in range(2))
        >>> diagnosis = cg.diagnose(image + 2, text - 2, repairs=["zscore"], splits=4)
        >>> diagnosis.findings[0].check, diagnosis.findings[0].severity, diagnosis.recommended
        ('not_unit', 'warning', 'zscore')
    """
    seed = seed_number(seed)
    if relevant is not None:
        one_of(relevant, "relevant", ("labels", "pairs"))
    one_of(want, "want", AIMS)
    repairs = None if repairs is None else names_in(repairs, "repairs")
    sets = given_sets(image, text, *more, labels=labels, ids=ids)
    other_sets = None if other is None else given_sets(other)
    for split in (sets, other_sets or {}):
        require_one_space(split, "one index")
    context = Context(sets, other=other_sets, seed=seed)
    findings = run_checks(context)
    rows = _valid(sets, context)
    not_run = tuple(context.not_run)
    paired = len(sets) == 1 or bool(context.couples)
    del context  # frees the unit rows of all sets
    give_back()
    faults = list(dict.fromkeys(finding.check for finding in findings if finding.severity == "error"))
    index = comparison = skipped = None
    if repairs is not None and not repairs:
        skipped = "no repairs were requested"
    elif faults and repairs is None:
        skipped = f"{' and '.join(faults)} would spoil the comparison; fix that first, or name the repairs to compare"
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
        {name: embeddings.vectors.shape for name, embeddings in sets.items()},
        paired=paired,
        not_run=not_run,
    )


def _valid(sets: Mapping[str, Embeddings], context: Context) -> dict[str, Embeddings]:
    """Return the sets without zero and non-finite rows; sets that pair by position lose whole pairs."""
    without_ids = all(embeddings.item_id is None for embeddings in sets.values())
    by_position = without_ids and len({len(embeddings) for embeddings in sets.values()}) == 1
    all_valid = all(context.valid(name).all() for name in sets)
    valid = {}
    for name, embeddings in sets.items():
        if by_position and not all_valid:
            embeddings = replace(embeddings, item_id=np.arange(len(embeddings)))
        mask = context.valid(name)
        # do not copy an array on disk into memory
        whole = mask.all() and isinstance(embeddings.vectors, np.ndarray)
        valid[name] = embeddings if whole else embeddings.take(np.flatnonzero(mask))
        release(embeddings.vectors)
    return valid
