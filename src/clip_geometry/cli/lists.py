"""`clip-geometry list …`: what the registries have."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from clip_geometry.cli.early import shipped
from clip_geometry.cli.tables import console, say
from clip_geometry.registry import InputError, did_you_mean, listed, shown

if TYPE_CHECKING:
    from clip_geometry.geometry import Measure

WIDEST = 100  # of text that is easy to read
LISTS = ("measures", "evaluators", "models", "datasets", "tasks", "transforms", "experiments")
Block = tuple[str, ...]  # a head and what is said below it


def print_list(what: str) -> None:
    """Prints one of the lists; an unknown one is an InputError."""
    if what not in LISTS:
        raise InputError(
            f"there is no list of {shown(what)}{did_you_mean(what, LISTS) or f'; known are {listed(LISTS, 9)}'}"
        )
    out = console()
    out.width = min(out.width, WIDEST)
    blocks = blocks_of(what) if what == "models" else shipped()["blocks"][what]  # the models are those of open_clip
    for number, (head, *parts) in enumerate(blocks):
        if number and parts:
            out.print()
        say(out, head, indent="    ")
        for part in parts:
            say(out, f"    {part}", indent="    ")


def _described(members: "Iterable[Measure]") -> Iterator[Block]:
    from clip_geometry.report.explained import facts

    for m in members:
        reading = f"{m.summary} {m.reading}"
        yield f"{m.name}: {m.title}", reading, f"Caveat: {m.caveat}", facts(m), m.formula, m.reference


def _configured(members: Mapping[str, Any], heading: str) -> Iterator[Block]:
    for name, entry in members.items():
        options = ", ".join(key for key in entry.config.model_fields if key != "name")
        yield f"{name}: {entry.summary}", f"{heading}: {options}"


def blocks_of(what: str) -> Iterator[Block]:
    """The blocks of one of the LISTS, from its registry."""
    match what:
        case "measures":
            from clip_geometry.geometry import by_group

            yield from _described(by_group(all=True))
        case "evaluators":
            from clip_geometry.evaluators import evaluators

            yield from _described(evaluators.values())
        case "models":
            from clip_geometry.encoders import encoders, models
            from clip_geometry.encoders.hub import MODELS

            families, architectures = models()
            options = {entry.pattern: sorted(set(entry.config.model_fields) - {"model"}) for entry in encoders.values()}
            for pattern, summary in families:
                yield f"{pattern}: {summary}", f"options (key=value): {', '.join(options[pattern])}"
            yield ("",)
            yield "Trained models that the package brings:", *(f"{name}: {summary}" for name, summary in MODELS.items())
            yield ("NAMEs of open_clip and their TAGs, besides fresh:",)
            for name, tags in architectures.items():
                yield (f"{name}: {', '.join(tags)}",)
        case "datasets":
            import clip_geometry.tasks  # noqa: F401, which adds the data set of a task's items
            from clip_geometry.data import datasets

            yield from _configured(datasets, "options (key=value)")
        case "tasks":
            from clip_geometry.tasks import target_tasks, tasks

            yield from _configured({**tasks, **target_tasks}, "options")
        case "transforms":
            from clip_geometry.transforms import transforms
            from clip_geometry.transforms.step import SCOPES, usage

            scopes = f"fitted on [{'], ['.join(SCOPES)}] or a modality, such as [image]; without: each set by itself"
            pairs = "fitted on pairs: [text-to-image], or [all-to-image] for every other modality"
            for name, t in transforms.items():
                fitted = pairs if t.paired else scopes if t.fits else "nothing to fit"
                yield f"{usage(name)}: {t.summary}", t.formula, fitted
        case "experiments":
            from clip_geometry.experiments.kit.base import experiments

            for name, kind in experiments.items():
                yield f"{name}: {kind.summary}", f"keys of its config: {', '.join(kind.Config.model_fields)}"


def shipped_lists() -> str:
    """The text of lists.json, from which lists and wrong names are answered without importing the registries."""
    from clip_geometry.evaluators import evaluators
    from clip_geometry.experiments.kit.base import experiments
    from clip_geometry.geometry import measures
    from clip_geometry.references import references
    from clip_geometry.transforms import transforms

    numbers = [*evaluators, *dict.fromkeys(name.partition(".")[0] for name in evaluators)]
    names = {
        "measure": [*measures, *references, *numbers],
        "pipeline step": list(transforms),
        "experiment": list(experiments),
    }
    blocks = {what: list(blocks_of(what)) for what in LISTS if what != "models"}
    return json.dumps({"names": names, "blocks": blocks}, ensure_ascii=False, indent=1) + "\n"
