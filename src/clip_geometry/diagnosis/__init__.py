"""Is a mixed index broken, what repairs it, what does the repair cost, and how is it shipped."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clip_geometry.diagnosis.checks import run_checks
from clip_geometry.diagnosis.comparison import AIMS, Want, compare_repairs
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding
from clip_geometry.diagnosis.index import MixedIndex, RelevantBy, logit_scale_of, require_one_space
from clip_geometry.diagnosis.result import Diagnosis
from clip_geometry.embeddings import Embeddings
from clip_geometry.measuring.given import given_sets
from clip_geometry.memory import give_back
from clip_geometry.progress import Progress, quiet
from clip_geometry.registry import InputError, shown
from clip_geometry.rows.arguments import seed_number

__all__ = ["Diagnosis", "Finding", "diagnose"]


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
        repairs: Names of the repairs to compare; default: all that are registered. An empty list compares none.
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
    if relevant not in (None, "labels", "pairs"):
        raise InputError(f"relevant is {shown(relevant)}; expected 'labels' or 'pairs'")
    if want not in AIMS:
        raise InputError(f"want is {shown(want)}; expected 'pairs' or 'both'")
    repairs = [each.strip() for each in repairs.split(",")] if isinstance(repairs, str) else repairs
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
            index = MixedIndex.of(rows, relevant, logit_scale=logit_scale_of(sets))
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
        valid[name] = each.take(np.flatnonzero(context.valid(name)))
    return valid
