"""Which measures are taken: by name, the core, or all."""

from collections.abc import Iterable, Sequence

from clip_geometry.geometry import Measure, by_group, measures
from clip_geometry.registry import InputError, unknown

# what a first look needs, as it is read; all but retrieval in O(n)
CORE = (
    "average_cosine",
    "isoscore[unbiased]",
    "modality_gap",
    "relative_modality_gap",
    "modality_silhouette[cosine]",
    "matching_cosine",
    "random_cosine",
    "retrieval.image_to_text.r_at_1",
    "retrieval.text_to_image.r_at_1",
    "retrieval[mixed].image.same_modality_at_10",
    "retrieval[mixed].text.same_modality_at_10",
    "retrieval[mixed].image_to_text.r_at_1",
    "retrieval[mixed].text_to_image.r_at_1",
    "silhouette[cosine]",
)
ALL = "all"  # in place of names: the core and all default measures


def names_to_measure(names: Sequence[str] | str | None, option: str = "measures") -> tuple[list[str], bool]:
    """The measures to take, and whether what cannot be measured is left out with a note.

    Args:
        names: Of measures, or of evaluators for all of their numbers; None for the core, `ALL` for it and all default
            measures.
        option: What a message calls `names`.
    """
    if names is None:
        return list(CORE), True
    if names == ALL:
        return list(dict.fromkeys([*(each.name for each in by_group()), *CORE])), True
    given = names.split(",") if isinstance(names, str) else names
    chosen = [each.name for each in named(name.strip() for name in given if name.strip())]
    if not chosen:
        raise InputError(f"{option} is empty; give names, comma-separated, or leave it out for the core")
    return chosen, False


def named(names: Iterable[str]) -> list[Measure]:
    """Measures and numbers of evaluators; the name of an evaluator stands for all of its numbers."""
    numbers: dict[str, list[Measure]] = {}
    for measure in measures.values():
        numbers.setdefault(measure.evaluator or measure.name, []).append(measure)
    found: dict[str, Measure] = {}
    for name in names:
        if name not in measures and name not in numbers:
            evaluator = [each.name for each in numbers.get(name.partition(".")[0], ())]
            known, what = (evaluator, "evaluators") if evaluator else ([*measures, *numbers], "measures")
            raise unknown("measure", name, known, f"clip-geometry list {what}")
        found |= {each.name: each for each in numbers.get(name) or [measures[name]]}
    return list(found.values())
