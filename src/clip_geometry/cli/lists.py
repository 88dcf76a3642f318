"""`clip-geometry list …`: what the registries have."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from clip_geometry.cli.early import LISTS, all_lists
from clip_geometry.cli.tables import console, say
from clip_geometry.registry import InputError, did_you_mean, listed, shown, unknown

if TYPE_CHECKING:
    from clip_geometry.geometry import Measure

WIDEST = 100  # of text that is easy to read
OPTIONS = "options (key=value)"
Block = tuple[str, ...]  # a head, "name: what it is", and what is said below it
Line = tuple[str, str, str, str]  # group, name, what it is, its variants


def print_list(what: str, name: str | None) -> None:
    """Prints one of the lists, a line for each entry, or one whole entry.

    Args:
        what: One of the LISTS.
        name: The entry. The name of an evaluator stands for all of its numbers.

    Raises:
        InputError: There is no such list, or no such entry.
    """
    found = all_lists()
    known = [*LISTS, *(name for name in found["index"] if name not in LISTS)]
    if what not in known:
        raise InputError(
            f"there is no list of {shown(what)}{did_you_mean(what, known) or f'; known are {listed(known, 12)}'}"
        )
    out = console()
    out.width = min(out.width, WIDEST)
    if name is None and what != "models":
        lines: list[Line] = found["index"][what]
        width, above = max(4, min(4 + max(len(name) for _, name, _, _ in lines), out.width - 28)), None
        for group, entry, says, variants in lines:
            if group and group != above:
                say(out, group, style="bold")
            above = group
            say(out, f"  {entry:<{width - 4}}  {says}", indent=" " * width)
            if variants:
                say(out, " " * width + variants, style="dim", indent=" " * width)
        say(out, f"clip-geometry list {what} NAME shows the whole entry", style="dim")
        return
    # the models are those of open_clip; measures and evaluators have one registry
    parts = ("measures", "evaluators") if what in ("measures", "evaluators") else (what,)
    shipped_blocks = [block for part in parts if part != "models" for block in found["blocks"][part]]
    blocks = list(blocks_of(what)) if what == "models" else shipped_blocks
    if name is not None:
        by_name = {head.partition(": ")[0]: (head, *parts) for head, *parts in blocks if head}
        begins = re.compile(re.escape(name) + r"(?!\w)")
        blocks = [by_name[name]] if name in by_name else [by_name[each] for each in by_name if begins.match(each)]
        if not blocks:
            names = [each.partition("(")[0] for each in by_name]
            raise unknown(what.removesuffix("s"), name, names, f"clip-geometry list {what}")
    for number, (head, *parts) in enumerate(blocks):
        if number and parts:
            out.print()
        say(out, head, indent="    ")
        for part in parts:
            say(out, f"    {part}", indent="    ")


def index_of(what: str) -> list[Line]:
    """The lines of one of the LISTS; a measure and its variants, an evaluator and its numbers are one."""
    if what not in ("measures", "evaluators"):
        return [("", name, says, "") for name, _, says in (head.partition(": ") for head, *_ in blocks_of(what))]
    found: dict[str, list[Measure]] = {}
    for each in _members(what):
        found.setdefault(re.split(r"[.[]", each.name)[0], []).append(each)
    lines = []
    for name, members in found.items():
        variants = dict.fromkeys(re.findall(r"\[.*?\]", " ".join(each.name for each in members)))
        lines.append((members[0].group, name, members[0].brief or members[0].title, " ".join(variants)))
    return lines


def _members(what: str) -> "list[Measure]":
    from clip_geometry.geometry import GROUPS, by_group, measures

    if what == "measures":
        return by_group(all=True)
    return sorted(filter(attrgetter("evaluator"), measures.values()), key=lambda each: GROUPS.index(each.group))


def _described(members: "Iterable[Measure]") -> Iterator[Block]:
    from clip_geometry.display.explained import facts

    for m in members:
        reading = f"{m.summary} {m.reading}"
        yield f"{m.name}: {m.title}", reading, f"Caveat: {m.caveat}", facts(m), m.formula, m.reference


def of_package(members: Mapping[str, Any], package: str) -> dict[str, Any]:
    """The members whose config is of that package: others may have registered some, too."""
    return {name: entry for name, entry in members.items() if entry.config.__module__.startswith(f"{package}.")}


def configured(members: Mapping[str, Any], heading: str) -> Iterator[Block]:
    for name, entry in members.items():
        options = ", ".join(key for key in entry.config.model_fields if key != "name")
        yield f"{name}: {entry.summary}", f"{heading}: {options}"


def blocks_of(what: str) -> Iterator[Block]:
    """The blocks of one of the LISTS, from its registry."""
    match what:
        case "measures" | "evaluators":
            yield from _described(_members(what))
        case "models":
            from clip_geometry.encoders import encoders, models
            from clip_geometry.encoders.hub import MODELS

            families, architectures = models()
            options = {entry.pattern: sorted(set(entry.config.model_fields) - {"model"}) for entry in encoders.values()}
            for pattern, summary in families:
                yield f"{pattern}: {summary}", f"{OPTIONS}: {', '.join(options[pattern])}"
            yield ("",)
            yield "Trained models that the package brings:", *(f"{name}: {summary}" for name, summary in MODELS.items())
            yield ("NAMEs of open_clip and their TAGs, besides fresh:",)
            yield from ((f"{name}: {', '.join(tags)}",) for name, tags in architectures.items())
        case "datasets":
            from clip_geometry.data import datasets

            yield from configured(of_package(datasets, "clip_geometry"), OPTIONS)
        case "formats":
            from clip_geometry.formats import formats

            for name, each in formats.items():
                files = ", ".join([*each.suffixes, *(["folders"] if each.recognizes else [])])
                needs = f"needs: pip install {each.package}" if each.package else ""
                limits = f"limits: {each.limits}" if each.limits else ""
                head = f"{name}: {each.title} ({files}); {each.streams or 'has to fit into memory'}"
                yield head, *filter(None, (f"holds: {each.holds}", limits, needs))
        case "transforms":
            from clip_geometry.transforms import transforms
            from clip_geometry.transforms.step import brackets, usage

            for name, t in transforms.items():
                yield f"{usage(name)}: {t.summary}", t.formula, brackets(name)
        case "repairs":
            from clip_geometry.repairs import InnerProduct, repairs

            for name, entry in repairs.items():
                inner = issubclass(entry.kind, InnerProduct)
                form = "one inner product, for any vector index" if inner else "a reranker"
                form = "a baseline of separate indices" if entry.baseline else form
                yield f"{name}: {entry.summary}", entry.formula, form, entry.reference
        case "checks":
            from clip_geometry.diagnosis.checks import checks

            for name, check in checks.items():
                yield f"{name}: {check.title}", f"reports: {check.threshold}"


def shipped_lists() -> str:
    """The text of lists.json, from which lists and wrong names are answered without importing the registries."""
    from clip_geometry.encoders import encoders
    from clip_geometry.encoders.hub import MODELS
    from clip_geometry.geometry import measures
    from clip_geometry.repairs import repairs
    from clip_geometry.shipping import targets
    from clip_geometry.transforms import transforms

    families = [name for name in of_package(encoders, "clip_geometry") if name != "scenes-clip"]
    names = {
        "measure": list(dict.fromkeys([*measures, *filter(None, (each.evaluator for each in measures.values()))])),
        "pipeline step": list(transforms),
        "repair": list(repairs),
        "target": list(targets),
        "model": [
            *MODELS,
            "scenes-clip/fresh",
            *(f"{name}:" for name in families),
        ],
    }
    shipped_ones = [what for what in LISTS if what != "models"]
    index = {what: index_of(what) for what in shipped_ones}
    blocks = {what: list(blocks_of(what)) for what in shipped_ones}
    return json.dumps({"names": names, "index": index, "blocks": blocks}, ensure_ascii=False, indent=1) + "\n"
