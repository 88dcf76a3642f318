"""`clip-geometry list …`: what the registries have."""

import re
from collections.abc import Iterator

from clip_geometry.cli.early import LISTS, all_lists
from clip_geometry.cli.tables import console, say
from clip_geometry.registry import InputError, did_you_mean, listed, shown, unknown

WIDEST = 100  # of text that is easy to read
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
    blocks = list(model_blocks()) if what == "models" else shipped_blocks
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
