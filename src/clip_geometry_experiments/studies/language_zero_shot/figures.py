"""Accuracy by the language of the prompts: the figure and the sentences."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from clip_geometry.display.style import (
    DASHED,
    INK,
    NEUTRAL,
    SECOND,
    error_dots,
    legend_above,
    name_lines,
    new_axes,
    styled,
)
from clip_geometry.display.words import Words
from clip_geometry_experiments.kit.languages import spoken
from clip_geometry_experiments.report.gallery import Drawing, FigureEntry, save_drawings

# kind of classes → name, color, marker
KINDS = {
    "seen": ("seen classes", INK, "o"),
    "held out": ("held-out classes", SECOND, "D"),
    "": ("all classes", INK, "o"),
}
APART = 0.14  # of a line's height, between the markers
WORDS = Words(Path(__file__).with_name("words.j2"))

Row = Mapping[str, Any]


def draw_language_zero_shot(
    rows: Sequence[Row], *, folder: str | Path, origin: str, prefix: str = "", group: str = ""
) -> list[FigureEntry]:
    """The figure of these rows, saved as PNG and SVG."""
    caption = WORDS("caption", chance=rows[0]["null_value"])
    drawn = {"language_zero_shot": Drawing("Accuracy by language", language_figure(rows), caption)}
    return save_drawings(drawn, folder, origin=origin, prefix=prefix, group=group)


@styled
def language_figure(rows: Sequence[Row]) -> Figure:
    """A line for each language in the order of the rows, a marker for each kind of classes; dashed: chance."""
    languages = list(dict.fromkeys(row["at"]["language"] for row in rows))
    figure, axes = new_axes(0.85 + 0.34 * len(languages))
    kinds = _by_kind(rows)
    for number, (kind, found) in enumerate(kinds.items()):
        name, color, marker = KINDS[kind]
        shift = APART * (2 * number - len(kinds) + 1)
        places = [languages.index(row["at"]["language"]) + shift for row in found]
        gid = f"accuracy:{kind or 'all'}"
        error_dots(axes, found, places, marker=marker, markersize=4.5, color=color, label=name, gid=gid)
    axes.axvline(rows[0]["null_value"], color=NEUTRAL, linewidth=1, linestyle=DASHED, label="chance", gid="chance")
    name_lines(axes, [spoken(name) for name in languages])
    axes.set(xlim=(0, 1.03), xlabel="zero-shot accuracy")
    legend_above(figure, axes, columns=3)
    return figure


def _share(row: Row) -> str:
    error = f" ± {100 * row['standard_error']:.1f}" if row.get("standard_error") else ""
    return f"{100 * row['value']:.1f}{error}%"


def _by_kind(rows: Sequence[Row]) -> dict[str, list[Row]]:
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(row["at"].get("classes", ""), []).append(row)
    return kinds


def tell(rows: Sequence[Row]) -> list[str]:
    """The accuracy in every language, one sentence per kind of classes."""
    sentences = []
    for kind, found in _by_kind(rows).items():
        shares = [_share(row) for row in found]
        languages = [spoken(row["at"]["language"]) for row in found]
        chance = None if sentences else found[0]["null_value"]
        shares = shares if len(set(shares)) > 1 else shares[:1]
        sentences.append(WORDS("accuracy", languages, shares, found[0]["n"], KINDS[kind][0], chance))
    return sentences
