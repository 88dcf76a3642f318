"""Accuracy by the language of the prompts: a line of dots per language; and in sentences."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from clip_geometry.experiments.kit.language_figures import spoken
from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.style import NEUTRAL, WIDTH, legend_above, save_figure, styled

SIGNS = {"seen": ("#24292F", "o"), "held out": ("#AA4499", "D"), "": ("#24292F", "o")}
NAMES = {"seen": "seen classes", "held out": "held-out classes", "": "all classes"}
APART = 0.14  # of a line's height, between the signs

Row = Mapping[str, Any]


def draw_language_zero_shot(
    rows: Sequence[Row], *, folder: str | Path, origin: str, prefix: str = "", group: str = ""
) -> list[FigureEntry]:
    """Draws the figure of these rows and saves it as PNG and SVG."""
    name = f"{prefix}language_zero_shot"
    png, svg = save_figure(language_figure(rows), folder, name)
    chance = rows[0]["null_value"]
    caption = (
        f"Share of pictures whose own class has the nearest prompt, by the language of the prompts. Chance: "
        f"{chance:.3g}. Bars: one standard error. {origin}"
    )
    return [FigureEntry(name, "Accuracy by language", caption, svg, png, group)]


@styled
def language_figure(rows: Sequence[Row]) -> Figure:
    """A line for each language in the order of the rows, a sign for each kind of classes; dashed: chance."""
    languages, kinds = _languages(rows), _kinds(rows)
    figure = Figure(figsize=(WIDTH, 0.85 + 0.34 * len(languages)), layout="constrained")
    axes = figure.add_subplot()
    for number, kind in enumerate(kinds):
        colour, marker = SIGNS[kind]
        found = {row["at"]["language"]: row for row in rows if row["at"].get("classes", "") == kind}
        places = [languages.index(name) + APART * (2 * number - len(kinds) + 1) for name in found]
        axes.errorbar(
            [row["value"] for row in found.values()],
            places,
            xerr=[row.get("standard_error") or 0 for row in found.values()],
            fmt=marker,
            markersize=4.5,
            color=colour,
            elinewidth=1,
            label=NAMES[kind],
            gid=f"accuracy:{kind or 'all'}",
        )
    axes.axvline(rows[0]["null_value"], color=NEUTRAL, linewidth=1, linestyle=(0, (3, 2)), label="chance", gid="chance")
    axes.set(
        yticks=range(len(languages)),
        yticklabels=[spoken(name) for name in languages],
        ylim=(len(languages) - 0.4, -0.6),
    )
    axes.set(xlim=(0, 1.03), xlabel="zero-shot accuracy")
    legend_above(figure, axes, columns=3)
    return figure


def _languages(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["at"]["language"] for row in rows))


def _kinds(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["at"].get("classes", "") for row in rows))


def tell(rows: Sequence[Row]) -> list[str]:
    """The accuracy in every language, by kind of classes."""
    told = []
    for kind in _kinds(rows):
        found = [row for row in rows if row["at"].get("classes", "") == kind]
        first, languages = found[0], _joined([spoken(row["at"]["language"]) for row in found])
        shares = [f"{100 * row['value']:.1f}%" for row in found]
        each = "each " if len(shares) > 1 else ""
        right = _joined(shares) if len(set(shares)) > 1 else f"{each}{shares[0]}"
        chance = f" (chance {100 * first['null_value']:.3g}%)" if not told else ""
        pictures = f"{first['n']} unseen pictures of {NAMES[kind]}"
        told.append(f"By {languages} prompts {right} of {pictures} are named right{chance}.")
    return told


def _joined(words: Sequence[str]) -> str:
    """a, b and c"""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
