"""The table, the figure and the sentences of mixed_index."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clip_geometry.diagnosis.comparison import BEYOND, RepairComparison
from clip_geometry.diagnosis.figure import draw
from clip_geometry.diagnosis.search import NUMBERS
from clip_geometry.diagnosis.table import by_aim, cells_of, conditions, numbers_of
from clip_geometry.diagnosis.verdict import sentences
from clip_geometry.display.words import Words
from clip_geometry_experiments.report.gallery import Drawing, FigureEntry, save_drawings
from clip_geometry_experiments.report.grid import Grid

WORDS = Words(Path(__file__).with_name("words.j2"))


def table(compared: RepairComparison) -> Grid:
    """One line per repair, those that find most first."""
    names, order = numbers_of(compared), by_aim(compared)
    return Grid(
        title="Repairs, all queries",
        columns=("repair", *(f">{name}" for name in names), "verdict"),
        rows=[cells_of(each, compared) for each in order],
        marked=[each.name == compared.recommended for each in order],
        legend=[
            "; ".join(f"{name}: {NUMBERS[name]}" for name in names) + ".",
            WORDS("conditions", text=conditions(compared), failed=compared.failed),
        ],
    )


def draw_repairs(
    compared: RepairComparison, *, folder: str | Path, origin: str, prefix: str = "", group: str = ""
) -> list[FigureEntry]:
    """The figure of what repairs find against what they cost, saved."""
    caption = WORDS("caption", by=compared.facts["relevant_by"], number=NUMBERS[compared.aim], want=compared.want)
    drawn = {"repairs": Drawing("What repairs find, and what they cost", draw(compared), caption, wide=True)}
    return save_drawings(drawn, folder, origin=origin, prefix=prefix, group=group)


def tell(compared: RepairComparison, found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The verdict, the answer first; what the usual advice and the repair that finds most would do; the faults."""
    state, *others = sentences(compared)
    said = [f"{state} {others[0]}", *others[1:]]
    taken = compared.candidates[compared.recommended]
    own = taken.numbers[compared.aim]
    costly = {name: each.numbers[compared.aim] for name, each in compared.candidates.items() if each.costs}
    # errors are as of independent queries; those of the same queries depend on each other: rather too large
    more = {
        name: each.value
        for name, each in costly.items()
        if each.value - own.value > BEYOND * math.hypot(each.error, own.error)
        and not compared.candidates[name].baseline
    }
    if taken.name != "none" and more:
        best = compared.candidates[max(more, key=lambda name: more[name])]
        said.append(WORDS("costly", best=best, taken=taken, aim=compared.aim))
    if "center" in compared.candidates:
        said.append(WORDS("center", shares=_own(compared, "center"), before=_own(compared, "none")))
    return [*said, *(WORDS("fault", each) for each in found)]


def _own(compared: RepairComparison, name: str) -> dict[str, float]:
    """Modality → the share of it in the top ten of its queries."""
    numbers = compared.candidates[name].numbers
    return {query: numbers[f"own_share.{query}"].value for query in compared.facts["n"]}
