"""Figure and sentences about intra-modal retrieval with native and with inverted features."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from clip_geometry.display.origin import Row
from clip_geometry.display.style import INK, NEUTRAL, SECOND, error_dots, name_lines, styled
from clip_geometry.display.words import Words
from clip_geometry.modalities import plural
from clip_geometry_experiments.report.figures import Drawing, legend_above, new_axes

# number → name, color, marker, offset from the line
NUMBERS = {"native": ("native features", INK, "o", -0.12), "inverted": ("inverted features", SECOND, "D", 0.12)}
TIE = 2.0  # standard errors
WORDS = Words(Path(__file__).with_name("words.j2"))


def draw_intra_modal(rows: Sequence[Row]) -> dict[str, Drawing]:
    """Draw the figure of these rows."""
    return {"intra_modal": Drawing("Intra-modal retrieval", intra_modal_figure(rows), WORDS("caption"))}


@styled
def intra_modal_figure(rows: Sequence[Row]) -> Figure:
    """Draw one line per modality of the queries; a tick marks the chance level."""
    by_modality = _by_modality(rows)
    figure, axes = new_axes(0.95 + 0.42 * len(by_modality))
    for number, (name, color, marker, shift) in NUMBERS.items():
        places = [place + shift for place in range(len(by_modality))]
        dots = [numbers[number] for numbers in by_modality.values()]
        error_dots(axes, dots, places, marker=marker, color=color, label=name, gid=f"map:{number}")
    chance = [numbers["native"]["null_value"] for numbers in by_modality.values()]
    axes.plot(chance, range(len(by_modality)), "|", markersize=14, color=NEUTRAL, label="chance", gid="chance")
    name_lines(axes, [f"{name} queries" for name in by_modality])
    axes.set(xlim=(0, 1.03), xlabel="mean average precision within the modality")
    legend_above(figure, axes, columns=3)
    return figure


def tell(rows: Sequence[Row]) -> list[str]:
    """Say which features retrieve better, in one sentence per modality of the queries."""
    sentences = []
    for modality, numbers in _by_modality(rows).items():
        gain = numbers["gain"]
        z = gain["value"] / gain["standard_error"] if gain["standard_error"] else 0.0
        verdict = "better" if z > 0 else "worse"
        if abs(z) <= TIE:
            verdict = "tie"
        sentences.append(WORDS("gain", plural(modality), numbers, verdict))
    return sentences


def _by_modality(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """Map each modality of the queries to its rows by number."""
    by_modality: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_modality.setdefault(row["at"]["modality"], {})[row["measure"].partition(".")[2]] = row
    return by_modality
