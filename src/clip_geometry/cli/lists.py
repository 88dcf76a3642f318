"""`clip-geometry list …`: what the registries have."""

import re
from collections.abc import Iterator

from clip_geometry import catalog
from clip_geometry.catalog import GROUPS, Description, describe
from clip_geometry.cli.early import LISTS, all_lists
from clip_geometry.cli.tables import console, say
from clip_geometry.registry import InputError, did_you_mean, listed, shown, unknown

WIDEST = 100  # of text that is easy to read
CATALOG = ("measures", "evaluators")  # the lists that the catalog of measures answers
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
        lines: list[Line] = index_of(what) if what in CATALOG else found["index"][what]
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
    # the models are those of open_clip; measures and evaluators have one catalog
    blocks = [*model_blocks()] if what == "models" else [] if what in CATALOG else found["blocks"][what]
    if what in CATALOG:
        blocks = [block for part in (CATALOG if name is not None else (what,)) for block in measure_blocks(part)]
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
    """The lines of measures or evaluators; a measure and its variants, an evaluator and its numbers are one."""
    found: dict[str, list[Description]] = {}
    for each in _members(what):
        found.setdefault(re.split(r"[.[]", each.name)[0], []).append(each)
    lines = []
    for name, members in found.items():
        variants = dict.fromkeys(re.findall(r"\[.*?\]", " ".join(each.name for each in members)))
        lines.append((members[0].group, name, members[0].brief or members[0].title, " ".join(variants)))
    return lines


def _members(what: str) -> list[Description]:
    members = [each for each in map(describe, catalog.names()) if bool(each.evaluator) == (what == "evaluators")]
    return sorted(members, key=lambda each: GROUPS.index(each.group))


def measure_blocks(what: str) -> Iterator[Block]:
    """The blocks of the measures or of the evaluators, from their catalog."""
    from clip_geometry.display.explained import facts  # imports NumPy

    for m in _members(what):
        reading = f"{m.summary} {m.reading}"
        yield f"{m.name}: {m.title}", reading, f"Caveat: {m.caveat}", facts(m), m.formula, m.reference


def model_blocks() -> Iterator[Block]:
    """The blocks of the models, from their registry: there are too many architectures to ship their list."""
    from clip_geometry.encoders import encoders, models
    from clip_geometry.encoders.hub import MODELS

    families, architectures = models()
    options = {entry.pattern: sorted(set(entry.config.model_fields) - {"model"}) for entry in encoders.values()}
    for pattern, summary in families:
        yield f"{pattern}: {summary}", f"options (key=value): {', '.join(options[pattern])}"
    yield ("",)
    yield "Trained models that the package brings:", *(f"{name}: {summary}" for name, summary in MODELS.items())
    yield ("NAMEs of open_clip and their TAGs, besides fresh:",)
    yield from ((f"{name}: {', '.join(tags)}",) for name, tags in architectures.items())
